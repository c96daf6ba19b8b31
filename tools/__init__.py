"""Scripts that build and measure this project from a checkout; not installed, and not imported by the product."""
