"""What a launch may be told: each setting declared once, and read from flags, files, presets, suites and Python."""
