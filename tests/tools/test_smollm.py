"""SmolLM2 is made once, whoever asks first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.needs_tool("smollm")
def test_two_processes_that_need_the_model_make_it_once(tmp_path: Path) -> None:
    environment = os.environ | {"HARNESS_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "tools.smollm"]
    both = [subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE) for _ in range(2)]
    folders = {process.communicate(timeout=600)[0].strip() for process in both}
    assert len(folders) == 1
    files = {path.name for path in Path(folders.pop()).iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= files
    assert not list(tmp_path.glob(".converting-*"))
