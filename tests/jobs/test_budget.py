"""A budget of GPU-hours: a launch above it, or without an estimate, is refused before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from jobs import suite
from jobs.forecast import Forecast

FLAGS = ("--method", "vanilla", "--dataset", "demo", "--limit", "4", "--samples", "4", "--engine", "scripted")


def _exit_code(command: click.Command, words: list[str]) -> int:
    try:
        command.main(words)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_what_is_left_by_history_is_refused_above_the_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.launch import main
    from jobs import after

    known = Forecast(2.0, 7.0, 9.5, 4, "history: earlier on 4 × H100")
    monkeypatch.setattr(after, "forecast", lambda *_: known)
    flags = [*FLAGS, "--output", str(tmp_path / "runs"), "--max-gpu-hours", "7.9"]
    for further in ([], ["--dry-run"]):
        with pytest.raises(SystemExit) as refused:
            main.main([*flags, *further])
        assert refused.value.code == 2
        told = capsys.readouterr()
        sentence = "--max-gpu-hours 7.9 is below the estimate: 8.0 GPU-hours left (history: earlier on 4 × H100; 7.0 to"
        assert sentence in told.err
    assert "estimate: 8.0 GPU-hours left" in told.out, "a dry run shows what it is that is refused"
    assert not (tmp_path / "runs").exists()


def test_without_an_estimate_a_launch_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from harness.launch import main

    assert _exit_code(main, [*FLAGS, "--output", str(tmp_path / "runs"), "--max-gpu-hours", "8"]) == 2
    assert "--max-gpu-hours 8: no estimate for demo-vanilla" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("hours", ["0", "-1", "nan", "inf", "many"])
def test_a_wrong_budget_is_refused(tmp_path: Path, hours: str, capsys: pytest.CaptureFixture[str]) -> None:
    from harness.launch import main

    with pytest.raises(SystemExit) as refused:
        main.main([*FLAGS, "--output", str(tmp_path / "runs"), "--max-gpu-hours", hours])
    assert refused.value.code == 2
    assert "--max-gpu-hours" in capsys.readouterr().err


SUITE = """
output = "{output}"
engine = "scripted"
cluster = "{cluster}"
dataset = "demo"
limit = 4
samples = 3
concurrency = 1
shards = 2
{budget}

[[run]]
method = "vanilla"

[[run]]
method = "speccot"
drafts = 2
"""


def suite_file(folder: Path, cluster: str = "debug", of_suite: str = "") -> Path:
    path = folder / "small.toml"
    path.write_text(SUITE.format(output=folder / "runs", cluster=cluster, budget=of_suite), encoding="utf-8")
    return path


def ran(words: Sequence[str]) -> int:
    from jobs.__main__ import main

    return _exit_code(main, list(words))


def test_a_dry_run_of_a_suite_adds_up_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobs import after

    known = Forecast(2.0, 7.0, 9.5, 4, "history: earlier on 4 × H100")
    monkeypatch.setattr(after, "forecast", lambda *_: known)
    flags = ["suite", str(suite_file(tmp_path)), "--dry-run"]
    assert ran(flags) == 0
    told = capsys.readouterr().out
    assert told.count("estimate: ") == 2
    assert "Total: 16.0 GPU-hours (14.0 to 19.0) left." in told
    assert ran([*flags, "--max-gpu-hours", "15.9"]) == 2
    assert "--max-gpu-hours 15.9 is below the estimate: 16.0 GPU-hours left of 2 runs" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("place", ["max-gpu-hours = -1", 'max-gpu-hours = "many"'])
def test_a_wrong_budget_of_a_suite_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(suite.BadSuite, match="max-gpu-hours"):
        suite.read(suite_file(tmp_path, of_suite=place))
    for table in ("", "[latency]\n"):
        file = suite_file(tmp_path)
        file.write_text(f"{file.read_text()}{table}max-gpu-hours = 3\n")
        with pytest.raises(suite.BadSuite, match="set max-gpu-hours once at the top"):
            suite.read(file)
