"""A table `[latency]` of a suite: every run once more with one sample in flight, and both regimes shown apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs import suite
from jobs.preparation import prepare
from tests.jobs.test_suite import SUITE, engine_starts

LATENCY = """
output = "{output}"
engine = "scripted"
cluster = "debug"
dataset = "demo"
concurrency = 2
limit = 3
samples = 2

[[run]]
method = "vanilla"
row = "alone"

[[run]]
method = "specreason"
threshold = [3, 5]

[[run]]
method = "scot"
concurrency = 1

[latency]
limit = 2
samples = 1
"""


def with_latency(folder: Path) -> Path:
    path = folder / "both.toml"
    path.write_text(LATENCY.format(output=folder / "runs"), encoding="utf-8")
    return path


def test_a_table_latency_stands_for_every_run_once_more_with_one_sample_in_flight(tmp_path: Path) -> None:
    chosen = suite.read(with_latency(tmp_path))
    planned = [(run.method, run.parameters.get("threshold"), run.concurrency, run.limit) for run in chosen.launches]
    many = [("vanilla", None, 2, 3), ("specreason", 3, 2, 3), ("specreason", 5, 2, 3), ("scot", None, 1, 3)]
    one = [("vanilla", None, 1, 2), ("specreason", 3, 1, 2), ("specreason", 5, 1, 2)]
    assert planned == many + one, "a run with one sample in flight is not run twice"
    assert {run.samples for run in chosen.launches[len(many) :]} == {1}
    assert chosen.rows == ("alone", None, None, None, "alone", None, None)
    changed = suite.read(with_latency(tmp_path), overrides={"concurrency": 8, "samples": 3})
    assert [run.concurrency for run in changed.launches] == [8] * 4 + [1] * 4
    assert {run.samples for run in changed.launches} == {3}


def test_parameters_of_latency_are_on_top_of_those_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "both.toml"
    run = "[[run]]\nmethod = 'speccot'\ndataset = 'demo'\n[run.parameters]\nstep_tokens = 64\n"
    path.write_text(f"{run}[latency.parameters]\ndrafts = 2\n", encoding="utf-8")
    many, one = suite.read(path).launches
    assert one.parameters == {**many.parameters, "drafts": 2}
    assert one.parameters["step_tokens"] == 64


def test_a_run_with_one_sample_in_flight_that_the_file_has_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "both.toml"
    run = "[[run]]\nmethod = 'vanilla'\ndataset = 'demo'\n"
    path.write_text(f"{run}{run}concurrency = 1\n[latency]\n", encoding="utf-8")
    assert [launch.concurrency > 1 for launch in suite.read(path).launches] == [True, False]


def test_both_regimes_of_a_suite_share_engines_and_are_shown_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from jobs.__main__ import main

    path = tmp_path / "both.toml"
    text = SUITE.format(output=tmp_path / "runs", drafts=2).replace("samples = 1", "samples = 1\nconcurrency = 2")
    path.write_text(f"{text}\n[latency]\nlimit = 1\n", encoding="utf-8")
    main.main(["suite", str(path)])
    printed = capsys.readouterr().out
    assert printed.count("by the\n") + printed.count("by the  ") == 1, "one table"
    lines = [line for line in printed.splitlines() if line.startswith(("vanilla", "speccot"))]
    rows = [line.split()[0] for line in lines if "flight" not in line]
    assert rows == ["vanilla", "speccot"], "with a row for each setting"
    assert "NOT ALIKE" not in printed, "within a regime all but the methods is alike"
    prepared = [prepare(launch) for launch in suite.read(path).launches]
    starts = [engine_starts(prepared[number].run) for number in (1, 3)]
    assert len(set().union(*starts)) == 2, "one pair of engines serves both regimes"
