"""Launch settings: each declared once, and read from flags, files, presets, suites and Python."""
