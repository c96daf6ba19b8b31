"""Model files: named models, bundled weights, adapters, tokenizers and chat templates."""
