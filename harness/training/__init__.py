"""Training of models on data that the harness itself makes."""
