"""make builds its environment once, in any folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.needs_tool("make")
_PYTHON = """#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then shift 2; set -- -m venv --without-pip "$@"; fi
exec "{python}" "$@"
"""


def make(folder: Path, *arguments: str) -> str:
    return subprocess.run(["make", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "harness").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    (folder / "harness" / "__init__.py").touch()
    (folder / "harness" / "installation.py").write_text("import sys; print('installed', sys.prefix, *sys.argv[1:])")
    python = folder / "python"
    python.write_text(_PYTHON.format(python=sys.executable))
    python.chmod(0o755)
    return folder


def test_an_environment_in_a_folder_with_a_space_is_built_once_for_each_engine_and_extra(checkout: Path) -> None:
    venv = checkout / "with a space" / "venv"
    arguments = (f"VENV={venv}", f"PYTHON={checkout / 'python'}", "venv")
    assert f"installed {venv}\n" in make(checkout, *arguments)
    assert "installed" not in make(checkout, *arguments)
    assert f"installed {venv} --engine cpu\n" in make(checkout, "ENGINE=cpu", *arguments)
    assert "installed" not in make(checkout, *arguments)
    make(checkout, f"VENV={venv}", "clean")
    assert not venv.exists()
    assert (checkout / "with a space").is_dir()
