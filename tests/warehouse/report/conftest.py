"""Loaded runs of `tests.warehouse.conftest`, and runs whose models wrote what no page may obey."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.trace import Decision
from jobs.run.folder import RunFolder
from tests.shared import known
from tests.warehouse import runs
from tests.warehouse.report.browser import browser
from warehouse.loading.runs import load_run
from warehouse.report.__main__ import main

__all__ = ["browser"]

HOSTILE = (
    "</script><script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'> {{ 7*7 }} <!-- <script> "
    "\u202egnp.exe \x1b[2J $\\href{javascript:window.pwned=3}{x}$ \\(\\htmlData{a=b}{x}\\) "
)
FORMULAS = (
    "Costs $5 and $6. Then $x^2 + y_1$, \\(\\frac{1}{2}\\), \\[\\sum_{i=1}^n i\\] and \\boxed{\\frac{3}{4}}; "
    "$\\undefinedmacro{$ stays.\n"
)


def report(database: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--database", str(database), *arguments])


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A page about runs of a database, which is written once for all tests that ask for the same."""

    @cache
    def write(database: Path, *arguments: str) -> Path:
        page = tmp_path_factory.mktemp("page") / "report.html"
        result = report(database, *arguments, "-o", str(page))
        assert result.exit_code == 0, result.output
        return page

    return write


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunFolder]:
    """A run whose steps, candidates, errors, answers and problems hold markup, scripts and control characters."""
    where = tmp_path_factory.mktemp("hostile")
    spec = replace(runs.SPEC, params={"drafts": 2, "note": "<script>window.pwned = 4</script>\u202e\x1b"})
    folder = runs.create(where, spec)
    units = runs.planned(folder)
    traces = [runs.speculative(unit, refused=i % 2 == 1, text=HOSTILE + FORMULAS) for i, unit in enumerate(units)]
    traces[0].target_prompt = HOSTILE
    traces[5] = runs.ended(traces[5], "error", f"RequestRefused: {HOSTILE}")
    load_run(runs.write(folder, traces, ["correct"] * 3), where / "w.duckdb")
    return where / "w.duckdb", folder


@pytest.fixture(scope="session")
def decided(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run that decides by other means than verdicts, of kinds that no method may call so: markup, and an entropy."""
    where = tmp_path_factory.mktemp("decided")
    folder = runs.create(where, replace(runs.SPEC, method="own", params={}))
    traces = [runs.speculative(unit, refused=i % 2 == 1) for i, unit in enumerate(runs.planned(folder))]
    for i, trace in enumerate(traces):
        trace.steps[1].verdicts = []
        trace.steps[1].decision = Decision.at_most("entropy", 0.75 if i % 2 else 0.25, 0.5)
    known(traces[0].steps[1].decision).kind = HOSTILE
    load_run(runs.write(folder, traces, "correct"), where / "w.duckdb")
    return where / "w.duckdb", folder.path.name
