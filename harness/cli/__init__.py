"""Command-line infrastructure: commands, errors, exit codes, tables, TOML files."""
