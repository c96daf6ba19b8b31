"""A suite with a table [probe]: its judging runs are probed at the end, resumed, and shown in its report."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from jobs import drive, suite
from jobs.__main__ import main
from jobs.continuations import continuation
from jobs.continuations import probe as probing
from jobs.finished.grading import finished_samples
from jobs.outcome import LaunchFailed
from jobs.run import trace_files
from jobs.run.folder import RunFolder, run_folders
from jobs.suite import BadSuite
from warehouse.database import reader, rows

SUITE = """
output = "{output}"
engine = "scripted"
cluster = "debug"
dataset = "demo"
limit = 4
samples = 2
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
points = 8
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


def test_every_judging_run_is_probed_once_and_the_report_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path)
    launched(path)
    found = probes(tmp_path)
    methods = {RunFolder(tmp_path / "runs" / run.path.name.removeprefix("probe-")).path.name for run in found}
    assert len(found) == len(methods) == 2, "not the target alone, and not the runs with one sample in flight"
    for probe in found:
        assert_every_continuation_once(probe)
    printed = capsys.readouterr().out
    assert printed.count("Probe of ") == 2
    assert "pass@1" not in printed[printed.index("PROBE of") : printed.rindex("Probe of ")], "that of continuations"
    assert printed.rindex("Probe of ") < printed.rindex("small.html: "), "the suite's own table and report come last"
    with reader(tmp_path / "runs" / "warehouse.duckdb") as connection:
        judged = rows(connection, "SELECT DISTINCT source_run_id FROM probe", {})
    assert len(judged) == 2
    launched(path)
    assert [run.path for run in probes(tmp_path)] == [run.path for run in found]
    for probe in found:
        assert_every_continuation_once(probe)


@pytest.mark.parametrize("place", ["before the points", "before the workers"])
def test_a_probe_that_was_killed_is_completed_by_the_same_command(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, SUITE.replace(SPECCOT, "").replace(LATENCY, ""))

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    launches = suite.prepare(chosen := suite.read(path), None)
    console = Console(quiet=True)
    drive.drive([launches], console)
    with monkeypatch.context() as patched:
        if place == "before the points":
            patched.setattr(continuation.Continuation, "write", killed)
        else:
            patched.setattr(drive, "InProcessWorker", killed)
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
    assert "Then a probe of 2 runs: 8 decisions, continued 2 times each way" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SUITE.replace("points = 8", "points = 1"), r"\[probe\]: points: Input should be greater than or equal to "),
        (SUITE.replace("rollouts = 2", 'rollouts = "two"'), r"\[probe\]: rollouts: Input should be a valid integer"),
        (SUITE + "runs = 3\n", "unknown key 'runs'; valid: points, rollouts, seed, concurrency"),
        ("probe = 3\n" + SUITE.partition("[probe]")[0], r"\[probe\]: "),
    ],
)
def test_a_wrong_table_is_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadSuite, match=message):
        suite.read(written(tmp_path, text))
