"""The wording that the demo asks with; the pair is trained on it and on the built-in one."""

from __future__ import annotations

from importlib import resources

from harness import prompt_file

_NAME = "demo_prompts.toml"
DEMO_PROMPTS = prompt_file.parse((resources.files("harness") / "data" / _NAME).read_text("utf-8"), _NAME)
