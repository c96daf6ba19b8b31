"""Imports go one way, and heavy packages have one door each."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("harness", "jobs", "grading", "warehouse")
FRONTS = {
    "harness/launch.py",
    "harness/papers/__main__.py",
    "harness/doctor.py",
    "harness/project.py",
    "harness/reproduce.py",
    "harness/train.py",
    "harness/bench/planning.py",
    "jobs/__main__.py",
    "jobs/after/conclude.py",
    "jobs/launching.py",
    "jobs/nightly.py",
    "grading/check.py",
    "grading/regrade.py",
    "grading/bench/__main__.py",
}
"""Command-line fronts may reach across, inside functions."""
COMMANDS = "harness.command"
"""What every front is made with; it imports nothing of the project."""

DOORS = {
    "vllm": {
        "harness/engines/vllm.py",
        "harness/engines/vllm_process.py",
        "harness/engines/vllm_arguments.py",
        "harness/bench/bare_vllm.py",
    },
    "submitit": {"jobs/submission/submit.py"},
    "duckdb": {"warehouse/database.py"},
    "math_verify": {"grading/reading/symbolic.py", "grading/bench/bare.py"},
    "sympy": {"grading/reading/symbolic.py", "grading/second/formula.py"},
    "datasets": {"harness/benchmarks.py"},
    "inspect_ai": {"warehouse/inspect_log.py"},
    "peft": {"harness/training/tuning.py", "harness/training/merging.py"},
}
ALLOWED = {
    "harness": {"harness"},
    "grading": {"grading"},
    "jobs": {"jobs", "harness", "grading"},
    "warehouse": {"warehouse", "jobs", "harness", "grading"},
}


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """Top-level package and column of every import statement; imports for the type checker alone are left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    only_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in only_types:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], node.col_offset) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module if node.module == COMMANDS else node.module.partition(".")[0], node.col_offset


@pytest.mark.parametrize("package", DOORS)
def test_a_heavy_package_has_one_door(package: str) -> None:
    users = {str(path.relative_to(ROOT)) for path in sources() if package in {name for name, _ in imported(path)}}
    assert users == DOORS[package]


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    allowed = ALLOWED[name.partition("/")[0]]
    for package, column in imported(path):
        if package in PACKAGES and package not in allowed:
            assert name in FRONTS, f"{name} imports {package}"
            assert column > 0, f"{name} imports {package} at its top"


def test_help_and_lists_need_no_heavy_package() -> None:
    code = (
        "import sys; from harness.launch import main\n"
        "for arguments in (['--help'], ['--list', 'methods'], ['--list', 'models'], ['--list', 'datasets']):\n"
        "    try: main(arguments)\n"
        "    except SystemExit as stop: assert not stop.code, stop.code\n"
        "heavy = {'torch', 'vllm', 'transformers', 'datasets', 'sympy', 'duckdb', 'pyarrow'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
