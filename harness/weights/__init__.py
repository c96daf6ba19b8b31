"""A model's files: models known by name, the bundled weights, and tokenizers."""
