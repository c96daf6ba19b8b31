"""What a run needs of a machine, looked at without loading a model: one module per subject, `every` runs them all."""
