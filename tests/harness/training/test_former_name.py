"""The former name of the toy pair's training is refused with the new one."""

from __future__ import annotations

import subprocess
import sys


def test_the_former_name_of_the_toy_pairs_training_is_refused() -> None:
    done = subprocess.run([sys.executable, "-m", "harness.training"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "python -m harness.demo_pair" in done.stderr
    assert done.stderr.count("\n") == 1
