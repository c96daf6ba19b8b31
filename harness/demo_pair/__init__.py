"""Training of small models on data that the harness itself makes."""
