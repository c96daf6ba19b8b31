"""The pictures of the README: its terminal and two pages of the report."""
