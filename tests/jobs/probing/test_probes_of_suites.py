"""A suite with a table [probe]: its judging runs are probed at the end, resumed, and shown in its report."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from harness.cli import exit_codes
from jobs import drive, suite
from jobs.__main__ import main
from jobs.continuations import continuation
from jobs.continuations import probe as probing
from jobs.finished.grading import finished_samples
from jobs.outcome import LaunchFailed
from jobs.run import trace_files
from jobs.run.folder import RunFolder, run_folders
from warehouse.database import reader, rows

SUITE = """
output = "{output}"
engine = "scripted"
cluster = "debug"
dataset = "demo"
limit = 3
samples = 1
target-logprobs = true

[[run]]
method = "vanilla"

[[run]]
method = "specreason"

[[run]]
method = "speccot"
drafts = 2

[latency]
limit = 2
target-logprobs = false

[probe]
points = 4
rollouts = 2
"""
SPECCOT, LATENCY = '[[run]]\nmethod = "speccot"\ndrafts = 2\n', "[latency]\nlimit = 2\ntarget-logprobs = false\n"


def written(folder: Path, text: str = SUITE) -> Path:
    path = folder / "small.toml"
    path.write_text(text.format(output=folder / "runs"), encoding="utf-8")
    return path


def probes(folder: Path) -> list[RunFolder]:
    return [run for run in run_folders([folder / "runs"]) if run.path.name.startswith("probe-")]


def launched(path: Path, *words: str) -> None:
    main.main(["suite", str(path), *words], standalone_mode=False)


def assert_every_continuation_once(probe: RunFolder) -> None:
    samples = Counter(sample["sample_id"] for sample, _ in finished_samples(probe))
    assert samples == Counter(unit.sample_id for shard in probe.shards() for unit in shard)
    [points] = probe.derived("probe_points")
    assert len(samples) == 2 * 2 * len(trace_files.read_rows(points))


def test_every_judging_run_is_probed_once(tmp_path: Path) -> None:
    launched(written(tmp_path))
    found = probes(tmp_path)
    methods = {RunFolder(tmp_path / "runs" / run.path.name.removeprefix("probe-")).path.name for run in found}
    assert len(found) == len(methods) == 2, "not the target alone, and not the runs with one sample in flight"
    for probe in found:
        assert_every_continuation_once(probe)
    with reader(tmp_path / "runs" / "warehouse.duckdb") as connection:
        judged = rows(connection, "SELECT DISTINCT source_run_id FROM probe", {})
    assert len(judged) == 2


@pytest.mark.parametrize("place", [(continuation.Continuation, "write"), (drive, "InProcessWorker")])
def test_a_probe_that_was_killed_is_completed_by_the_same_command(
    place: tuple[object, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, SUITE.replace(SPECCOT, "").replace(LATENCY, ""))

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    launches = suite.prepare(chosen := suite.read(path), None)
    console = Console(quiet=True)
    drive.drive([launches], console)
    with monkeypatch.context() as patched:
        patched.setattr(*place, killed)
        with pytest.raises(KeyboardInterrupt):
            drive.drive(probing.rounds(launches, chosen.probe, console), console)
    assert probes(tmp_path)
    launched(path)
    for probe in probes(tmp_path):
        assert_every_continuation_once(probe)


def test_a_suite_whose_probe_fails_is_compared_and_reported_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(*_: object, **__: object) -> None:
        raise LaunchFailed("the probe's worker died")

    path = written(tmp_path, SUITE.replace(SPECCOT, "").replace(LATENCY, ""))
    monkeypatch.setattr(probing, "rounds", failed)
    with pytest.raises(SystemExit) as ended:
        launched(path)
    assert ended.value.code == 1
    assert (tmp_path / "runs" / "small.html").exists()


def test_a_dry_run_names_the_probe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launched(written(tmp_path), "--dry-run")
    [line] = [line for line in capsys.readouterr().out.splitlines() if " probe " in line]
    assert re.findall(r"\d+", line) == ["2", "4", "2"], "runs, decisions, continuations each way"
    assert not (tmp_path / "runs").exists()


def test_an_interrupted_probe_ends_the_suite_without_a_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(probing, "rounds", interrupted)
    with pytest.raises(SystemExit) as ended:
        launched(written(tmp_path, SUITE.replace(SPECCOT, "").replace(LATENCY, "")))
    assert ended.value.code == exit_codes.INTERRUPTED
    assert run_folders([tmp_path / "runs"])
    assert not (tmp_path / "runs" / "small.html").exists()
