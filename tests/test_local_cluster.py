"""The command of the local Slurm cluster, without any Slurm."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_a_python_without_its_packages_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    venv.create(tmp_path, symlinks=True)
    python = tmp_path / "bin" / "python"
    command = [str(ROOT / "slurm" / "local-cluster"), "--folder", str(tmp_path / "cluster"), "up"]
    done = subprocess.run(command, env={"PYTHON": str(python)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{python} has no click: run `make venv`, or name a Python that has it in PYTHON\n"
