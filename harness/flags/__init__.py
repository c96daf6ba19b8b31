"""The flags of a launch, declared once, a module for each part of what a launch is told."""
