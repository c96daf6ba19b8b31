"""Scripts that build and measure this project from a checkout; neither installed nor imported by the harness."""
