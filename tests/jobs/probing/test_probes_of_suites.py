"""A suite with a table [probe]: its judging runs are probed at the end, resumed, and shown in its report."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.cli import exit_codes
from jobs import drive, suite
from jobs.__main__ import main
from jobs.continuations import continuation
from jobs.continuations import probe as probing
from jobs.finished.grading import finished_samples
from jobs.outcome import LaunchFailed
from jobs.run import trace_files
from jobs.run.folder import RunFolder, run_folders
from tests.jobs.runs import launch_suite, write_suite
from warehouse.database import reader, rows

RUNS = ({"method": "vanilla"}, {"method": "specreason"}, {"method": "speccot", "drafts": 2})
PROBE, LATENCY = "[probe]\npoints = 4\nrollouts = 2\n", "[latency]\nlimit = 2\ntarget-logprobs = false\n"
COMMON: dict[str, Any] = {"limit": 3, "samples": 1, "target-logprobs": True}


def probes(folder: Path) -> list[RunFolder]:
    return [run for run in run_folders([folder / "runs"]) if run.path.name.startswith("probe-")]


def launched(path: Path, *words: str) -> None:
    main.main(["suite", str(path), *words], standalone_mode=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite whose runs have ended without their probes."""
    path = write_suite(tmp_path_factory.mktemp("suite"), *RUNS[:2], tables=PROBE, **COMMON)
    launch_suite(suite.read(path))
    return path


def ending(path: Path) -> object:
    with pytest.raises(SystemExit) as ended:
        launched(path)
    return ended.value.code


def test_judging_runs_are_probed_once_by_the_same_command_wherever_it_was_killed(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    places: list[tuple[object, str]] = [(continuation.Continuation, "write"), (drive, "InProcessWorker")]
    for place in places:
        with monkeypatch.context() as patched:
            patched.setattr(*place, killed)
            assert ending(finished) == exit_codes.INTERRUPTED
        assert probes(finished.parent)
    launched(finished)
    [probe] = probes(finished.parent)
    assert "specreason" in probe.path.name, "not the target alone"
    samples = Counter(sample["sample_id"] for sample, _ in finished_samples(probe))
    assert samples == Counter(unit.sample_id for shard in probe.shards() for unit in shard)
    [points] = probe.derived("probe_points")
    assert len(samples) == 2 * 2 * len(trace_files.read_rows(points))
    with reader(finished.parent / "runs" / "warehouse.duckdb") as connection:
        judged = rows(connection, "SELECT DISTINCT source_run_id FROM probe", {})
    assert [f"probe-{row['source_run_id']}" in probe.path.name for row in judged] == [True]


@pytest.mark.parametrize(
    ("error", "exit_code", "is_reported"),
    [
        (LaunchFailed("the probe's worker died"), exit_codes.TROUBLE, True),
        (KeyboardInterrupt(), exit_codes.INTERRUPTED, False),
    ],
)
def test_a_suite_whose_probe_fails_is_compared_and_reported_unless_it_was_interrupted(
    error: BaseException, exit_code: int, is_reported: bool, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(*_: object, **__: object) -> None:
        raise error

    page = finished.parent / "runs" / "small.html"
    page.unlink(missing_ok=True)
    monkeypatch.setattr(probing, "rounds", failed)
    assert (ending(finished), page.exists()) == (exit_code, is_reported)


def test_a_dry_run_names_the_probe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launched(write_suite(tmp_path, *RUNS, tables=LATENCY + PROBE, **COMMON), "--dry-run")
    [line] = [line for line in capsys.readouterr().out.splitlines() if " probed: " in line]
    found = re.findall(r"\d+", line)
    assert found == ["2", "4", "2", "2"], "not the runs with one sample in flight; decisions, continuations each way"
    assert not (tmp_path / "runs").exists()
