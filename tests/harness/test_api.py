"""Runs and results from Python: what a script or a notebook calls, on scripted engines and without a mock."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.methods.speccot import SpecCoT
from tests.own_methods import no_methods, write_method

__all__ = ["no_methods"]

SMALL: dict[str, Any] = {"dataset": "demo", "engine": "scripted", "cluster": "local", "limit": 3, "samples": 2}
FAILING = """
from dataclasses import dataclass
from harness.methods import Method

def look_up(table):
    return table["missing"]

@dataclass(frozen=True)
class Failing(Method):
    async def __call__(self, chain, draft, target):
        look_up({})
"""
SCRIPT = """
import json
from pathlib import Path

import harness

with Path("started.txt").open("a") as file:
    file.write("once more\\n")
small = dict(dataset="demo", engine="scripted", cluster="local", limit=3, samples=2)
run = harness.run(method="speccot", drafts=2, **small)
counts = harness.results(run)[["run_id", "n", "k", "num_not_run", "num_ungraded"]].to_dict("records")
print(json.dumps([counts, run.run_id, run.summary.params["drafts"], run.num_unfinished]))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[harness.Run, harness.Run]:
    """Two finished runs beside each other: speccot and the target alone, by a worker in this process."""
    output = tmp_path_factory.mktemp("api") / "runs"
    small = SMALL | {"output": output, "quiet": True, "cluster": "debug", "wait": True}
    return harness.run(method="speccot", drafts=3, **small), harness.run(method="vanilla", **small)


def test_importing_the_package_imports_no_other_one() -> None:
    code = "import sys; before = set(sys.modules); import harness; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    others = {name for name in done.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names}
    assert others == {"harness"}
    assert {"run", "load", "results", "HarnessError"} <= set(dir(harness))
    with pytest.raises(AttributeError, match="nothing"):
        _ = harness.nothing


def test_a_script_needs_no_main_guard_and_is_run_once(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert (tmp_path / "started.txt").read_text() == "once more\n"
    [counts], run_id, *others = json.loads(done.stdout.splitlines()[-1])
    assert counts == {"run_id": run_id, "n": 3, "k": 2, "num_not_run": 0, "num_ungraded": 0}
    assert others == [2, 0]
    assert "6/6 samples" in done.stdout


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"sampels": 3}, "unknown key 'sampels' (did you mean 'samples'?); valid: flags without leading --"),
        ({"method": SpecCoT()}, "expected a name, FILE.py:CLASS, PACKAGE.MODULE:CLASS, or a class"),
        ({"method": int}, "method int is not a method; a method is a"),
        ({"output": Path("/dev/null/x")}, "--output /dev/null/x: "),
    ],
)
def test_wrong_input_is_one_line_that_says_what_is_valid(flags: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(harness.HarnessError) as caught:
        harness.run(**{"method": "vanilla", "output": tmp_path / "runs", **SMALL, **flags})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None, "not a chain of tracebacks"
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("no_methods")
def test_a_failing_method_shows_its_own_traceback(tmp_path: Path) -> None:
    file = write_method(tmp_path, FAILING, "failing.py")
    with pytest.raises(harness.RunFailed) as caught:
        harness.run(method=f"{file}:Failing", **SMALL, output=tmp_path / "runs", quiet=True)
    line, _, shown = str(caught.value).partition("\n\nIn the worker:\n\n")
    assert line.startswith("1 of 1 workers failed: the method raised KeyError: 'missing' (failing.py:6). Log: ")
    assert shown == caught.value.worker_traceback
    assert 'failing.py", line 6, in look_up\n    return table["missing"]' in shown
    assert 'failing.py", line 11, in __call__\n    look_up({})' in shown
    assert shown.count("KeyError: 'missing'\n") == 1, "one sample's, not those of all in flight"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value), "raised in a pool of processes"


@pytest.mark.usefixtures("no_methods")
def test_a_method_may_be_a_class_of_an_imported_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_method(tmp_path, name="own_rules.py")
    monkeypatch.syspath_prepend(tmp_path)
    import own_rules  # type: ignore[import-not-found]

    preview = {**SMALL, "output": tmp_path / "runs", "dry_run": True, "quiet": True}
    by_class = harness.run(method=own_rules.Confident, threshold=-0.7, **preview)
    by_name = harness.run(method=f"{file}:Confident", threshold=-0.7, **preview)
    assert by_class == by_name
    assert by_class.run_id != harness.run(method=own_rules.Confident, **preview).run_id
    assert harness.run(method=SpecCoT, **preview) == harness.run(method="speccot", **preview)
    assert not (tmp_path / "runs").exists()


def test_a_class_of_a_cell_or_a_function_is_refused_with_the_remedy() -> None:
    class Inner(SpecCoT):
        pass

    of_cell = type("Cell", (SpecCoT,), {"__module__": "__main__"})
    for method in (Inner, of_cell):
        with pytest.raises(harness.HarnessError, match="Move it to the top level of a separate f"):
            harness.run(method=method, **SMALL)


def test_results_have_a_row_for_each_of_what_is_asked(runs: tuple[harness.Run, harness.Run]) -> None:
    speccot, vanilla = runs
    table = harness.results(vanilla, speccot)
    assert list(table["run_id"]) == [vanilla.run_id, speccot.run_id], "in the order of the arguments"
    assert list(table["n"] * table["k"]) == [6, 6]
    assert list(table["pass_at_1"]) == [vanilla.summary.pass_at_1, speccot.summary.pass_at_1]
    assert table["fallback_rate"].isna().tolist() == [True, False]
    assert {level: len(speccot.results(level)) for level in ("problem", "sample")} == {"problem": 3, "sample": 6}
    steps, candidates = speccot.results("step"), speccot.results("candidate")
    samples = speccot.results("sample")
    num_steps = samples.set_index("sample_id")["num_steps"].to_dict()
    assert steps["sample_id"].value_counts().to_dict() == num_steps
    assert set(candidates["sample_id"]) == set(steps["sample_id"])
    assert set(speccot.results("call")["model"]) == {"draft", "target"}


def test_a_run_folder_is_loaded_into_the_database_that_is_named(
    runs: tuple[harness.Run, harness.Run], tmp_path: Path
) -> None:
    speccot, vanilla = runs
    loaded = harness.load(speccot.folder, tmp_path / "other.duckdb")
    assert loaded == harness.Run(speccot.folder, tmp_path / "other.duckdb")
    assert harness.load(speccot) == speccot
    assert list(harness.results(database=loaded.database)["run_id"]) == [speccot.run_id]
    with pytest.raises(harness.HarnessError, match=r"contains no run .*; load it with harness\.load\('.*'\)"):
        _ = harness.Run(vanilla.folder, loaded.database).summary


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda folder: harness.load(folder / "none"), "none is not a run folder: it does not exist"),
        (harness.load, "cannot be loaded"),
        (lambda folder: harness.results(database=folder / "none.duckdb"), "no database at"),
        (lambda folder: harness.results(level="token"), "level 'token': unknown; valid: run, problem, sample, step"),
    ],
)
def test_what_cannot_be_read_is_one_line(call: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(harness.HarnessError, match=message):
        call(tmp_path)
