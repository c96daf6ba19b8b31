"""Training of small models."""
