"""The command line: commands, their exit codes and errors, the program that has all of them, TOML files."""
