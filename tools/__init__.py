"""What makes and measures this project from a checkout: not installed, and imported by nothing of the product."""
