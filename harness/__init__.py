"""What happens to one problem."""
