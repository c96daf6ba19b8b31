"""The parent of the grader processes has the symbolic libraries loaded."""

from __future__ import annotations

import subprocess
import sys


def test_importing_the_module_loads_the_libraries() -> None:
    program = "import sys, grading.warm; assert {'sympy', 'math_verify'} <= set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
