"""Imports go one way and never in a circle, and heavy packages have one door each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.import_graph import cycles, import_graph, imports, module_files

ROOT = Path(__file__).parent.parent
PACKAGES = ("harness", "jobs", "grading", "warehouse")
FILES = module_files(ROOT, PACKAGES)
GRAPH = import_graph(FILES)
USED = {module: {found.package for found in imports(path)} for module, path in FILES.items()}
"""The top-level packages that each module imports."""

ALLOWED = {
    "harness": {"harness"},
    "grading": {"grading"},
    "jobs": {"jobs", "harness", "grading"},
    "warehouse": {"warehouse", "jobs", "harness", "grading"},
}
FRONTS = {
    "grading.check",
    "grading.regrade",
    "harness.doctor",
    "harness.launch",
    "harness.reproduce",
    "harness.train",
}
"""Commands that import upward, inside functions: what `python -m` runs puts the packages together."""
COMMANDS = "harness.cli.command"
"""What every command is made with: any package may import it."""

UPWARD = {"harness.api", "jobs.after"}
"""The calls for Python, which are to a script what the commands are to a shell, and the only module in jobs that
imports the warehouse. No other module imports upward: a stale entry fails the tests."""
IMPORTED_LATE = "harness.api"
"""Imported itself when something of it is first asked for, so that it may import upward at its top."""

DOORS = {
    "vllm": {"harness/engines/vllm_patches.py", "harness/engines/vllm.py"},
    "submitit": {"jobs/submission/submit.py"},
    "duckdb": {"warehouse/database.py"},
    "math_verify": {"grading/reading/symbolic.py"},
    "sympy": {"grading/reading/symbolic.py"},
    "datasets": {"harness/problems/hub.py"},
    "inspect_ai": {"warehouse/export.py"},
    "junitparser": {"warehouse/nightly/verdict.py"},
    "matplotlib": {"warehouse/report/paper_charts.py"},
    "mlflow": {"jobs/finished/tracking.py"},
    "wandb": {"jobs/finished/tracking.py"},
    "httpx": {"harness/engines/served/connection.py"},
    "peft": {"harness/training/tuning.py"},
}


def upward(module: str, *, is_deferred: bool) -> set[str]:
    """Return the modules above its own package that a module imports, inside functions or outside."""
    allowed = ALLOWED[module.partition(".")[0]]
    return {
        target
        for target, deferred in GRAPH[module].items()
        if target.partition(".")[0] not in allowed and target != COMMANDS and deferred == is_deferred
    }


def is_command(path: Path) -> bool:
    return path.name == "__main__.py" or 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("package", DOORS)
def test_a_heavy_package_has_one_door(package: str) -> None:
    users = {str(FILES[module].relative_to(ROOT)) for module, used in USED.items() if package in used}
    assert users == DOORS[package]


def test_imports_go_one_way_and_make_no_cycle() -> None:
    assert [module for module in FILES if upward(module, is_deferred=False)] == [IMPORTED_LATE]
    assert {module for module in FILES if upward(module, is_deferred=True)} == (FRONTS | UPWARD) - {IMPORTED_LATE}
    assert not cycles(GRAPH), "\n".join(" -> ".join(cycle) for cycle in cycles(GRAPH))


def test_what_imports_upward_at_its_top_is_imported_late() -> None:
    importers = [targets[IMPORTED_LATE] for targets in GRAPH.values() if IMPORTED_LATE in targets]
    assert importers
    assert all(importers)


def test_fronts_are_commands_and_the_other_exceptions_are_not() -> None:
    assert {module for module in FRONTS | UPWARD if is_command(FILES[module])} == FRONTS


def test_what_every_command_is_made_with_needs_no_other_package_of_the_project() -> None:
    assert GRAPH[COMMANDS].keys() == {
        "harness.environment",
        "harness.cli.exit_codes",
        "harness.cli.permissions",
        "harness.cli.messages",
        "harness.cli.screen",
    }
    assert GRAPH["harness.environment"].keys() == {"harness.gpus"}
    for module in ("harness.cli.exit_codes", "harness.cli.messages", "harness.cli.permissions", "harness.gpus"):
        assert not GRAPH[module]


def test_nothing_of_the_product_imports_what_is_not_installed() -> None:
    assert not [module for module, used in USED.items() if used & {"tools", "tests"}]


def test_cycles_are_shortest_and_neither_diamonds_nor_for_the_type_checker_alone(tmp_path: Path) -> None:
    sources = {
        "a": "import p.b, p.c, p.d\n",
        "b": "def f():\n    from p import c, a\n",
        "c": "from p.b import x\n",
        "d": "import p.e\nif TYPE_CHECKING:\n    import p.a\n",
        "e": "if typing.TYPE_CHECKING:\n    import p.d\nelse:\n    import os\n",
    }
    (tmp_path / "p").mkdir()
    for name, source in sources.items():
        (tmp_path / "p" / f"{name}.py").write_text(source)
    files = module_files(tmp_path, ["p"])
    assert [found.module for found in imports(files["p.e"])] == ["os"]
    assert cycles(import_graph(files)) == [["p.a", "p.b", "p.a"], ["p.c", "p.b", "p.c"]]
