"""The command line: commands, the options that `harness.launch_options` declares, presets and TOML config files."""
