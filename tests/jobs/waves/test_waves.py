"""Comparisons in waves, on this machine with scripted engines: decided, never decided, killed, and continued."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from jobs import launching_several, suite
from jobs.__main__ import main
from jobs.after.grading import finished_samples
from jobs.launching import LaunchFailed
from jobs.outcome import of_status
from jobs.run import locks, waves
from jobs.run.endings import num_unfinished
from jobs.run.files import append_record
from jobs.run.folder import RunFolder
from jobs.watch.listing import listed
from jobs.watch.status import status
from jobs.waves import comparison, looking
from jobs.waves.planned import NotInWaves, of_suite
from tests.jobs.runs import plan
from warehouse.database import reader, rows

SUITE = """
output = "{output}"
engine = "scripted"
cluster = "debug"
dataset = "demo"
limit = 6
samples = {samples}
shards = 2

[[run]]
method = "vanilla"

[[run]]
method = "speccot"
drafts = 2
"""
ALL_EQUAL_AT_LOOK_1, ALL_EQUAL_AT_LOOK_2 = 0.62, 0.52
"""Margins at which six problems without a difference are decided: their intervals reach −58 and −50 points."""


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def written(folder: Path, samples: int = 4, text: str = SUITE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "small.toml"
    path.write_text(text.format(output=folder / "runs", samples=samples), encoding="utf-8")
    return path


def launched(path: Path, margin: float) -> list[RunFolder]:
    return comparison.launch(of_suite(suite.read(path), None), margin, Console(quiet=True)).runs


def texts(run: RunFolder) -> dict[str, str]:
    return {sample["sample_id"]: sample["text"] for sample in finished_samples(run)}


def state(run: RunFolder) -> tuple[object, ...]:
    """What a kill must not change."""
    begun = waves.read(run)
    planned = sorted(unit.sample_id for shard in run.shards() for unit in shard)
    return begun, planned, texts(run), json.loads(run.results_path.read_bytes())["pass_at_1"]


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    """The runs of the same suite with all samples at once."""
    return suite.launch(suite.read(written(tmp_path_factory.mktemp("fixed"))), None)


def test_a_comparison_is_stopped_when_it_is_decided_and_a_normal_launch_adds_the_rest(
    tmp_path: Path, fixed: list[RunFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path)
    main.main(["suite", str(path), "--until-decided", "--margin", str(100 * ALL_EQUAL_AT_LOOK_2)])
    printed = " ".join(capsys.readouterr().out.split())
    assert "Look 1: not decided yet" in printed
    assert "Look 2: demo-speccot" in printed
    assert "not worse than demo-vanilla" in printed
    assert "STOPPED BY DECISION" in printed
    assert "24 of 48 samples drawn; 24 not needed" in printed
    runs = [RunFolder(tmp_path / "runs" / run.path.name) for run in fixed]
    for run, whole in zip(runs, fixed, strict=True):
        begun, result = waves.read(run), json.loads(run.results_path.read_bytes())
        assert begun is not None
        assert begun.is_stopped
        assert begun.wave == 2
        assert texts(run).items() < texts(whole).items(), "the same samples as with all at once, and fewer"
        assert result["stopped_by_decision"] is True
        assert result["state"] == "finished"
        assert (result["planned"], result["finished"], sum(result["verdicts"].values())) == (12, 12, 12)
        assert result["verdicts"]["not_run"] == 0
        assert result["pass_at_1_interval"] == "group-sequential bounded mean"
        assert any("STOPPED BY DECISION" in line for line in result["warnings"])
        assert "stopped by decision" in status(run).waves
    page = (tmp_path / "runs" / "small.html").read_text(encoding="utf-8")
    assert "(STOPPED)" in page or "STOPPED" in page
    assert [run.path for run in launched(path, ALL_EQUAL_AT_LOOK_2)] == [run.path for run in runs], (
        "what is decided stays decided"
    )
    assert all(run.num_planned() == 12 for run in runs)
    suite.launch(suite.read(path), None)
    for run, whole in zip(runs, fixed, strict=True):
        result = json.loads(run.results_path.read_bytes())
        assert texts(run) == texts(whole)
        assert (result["planned"], result["stopped_by_decision"]) == (24, False)
        assert result["pass_at_1_interval"] == "group-sequential bounded mean", "it was looked at"


def test_a_comparison_that_is_never_decided_has_all_samples(tmp_path: Path, fixed: list[RunFolder]) -> None:
    for run, whole in zip(launched(written(tmp_path), 0.02), fixed, strict=True):
        begun = waves.read(run)
        assert begun is not None
        assert begun.is_whole
        assert not begun.is_stopped
        assert begun.num_looks == waves.NUM_WAVES
        assert (begun.look_margins, begun.margin) == ((0.02,) * waves.NUM_WAVES, None)
        assert texts(run) == texts(whole)
        assert num_unfinished(run) == 0


def test_looks_of_an_earlier_version_have_no_margin_unless_they_decided(tmp_path: Path) -> None:
    run = plan(tmp_path, samples=4)
    waves.begin(run, run.spec())
    for record in (
        {"look": 1, "decision": None},
        {"look": 2, "decision": "not worse", "margin": 0.02, "baseline": "b"},
    ):
        append_record(run.path / "waves.jsonl", {"at": 0.0, **record}, run.spec().run_id)
    begun = waves.read(run)
    assert begun is not None
    assert (begun.num_looks, begun.decision, begun.margin, begun.look_margins) == (2, "not worse", 0.02, (None, None))


def test_the_estimates_of_a_stopped_run_take_the_first_wave_for_several_samples(tmp_path: Path) -> None:
    run, _ = launched(written(tmp_path, samples=8), ALL_EQUAL_AT_LOOK_2)
    with reader(tmp_path / "runs" / "warehouse.duckdb") as connection:
        sql = "SELECT metric, max(k) AS k, max(num_samples) AS samples, any_value(interval_kind) AS kind FROM estimate "
        sql += "WHERE run_id = $run AND grader_version IS NOT NULL GROUP BY metric"
        found = {row["metric"]: row for row in rows(connection, sql, {"run": run.path.name})}
        [row] = rows(connection, "SELECT * FROM run WHERE run_id = $run", {"run": run.path.name})
        shares = rows(
            connection, "SELECT sum(share) AS s FROM verdict_counts WHERE run_id = $run", {"run": run.path.name}
        )
    assert (found["pass_at_k"]["k"], found["pass_at_k"]["samples"]) == (2, 12)
    assert (found["maj_at_k"]["k"], found["pass_at_1"]["samples"]) == (2, 24)
    assert {found[metric]["kind"] for metric in ("pass_at_1", "pass_at_k")} == {"group-sequential bounded mean"}
    assert (row["waves"], row["wave"], row["first_wave"], row["samples"]) == ([2, 4, 6, 8], 2, 2, 8)
    assert row["interval_level"] == pytest.approx(0.98951, abs=1e-4)
    assert shares[0]["s"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("place", "name", "call"),
    [
        (waves, "append_record", 2),  # the plan of the second run
        (waves, "record_look", 2),  # the decision on one run is recorded, that on the other is not
        (waves, "draw", 1),
        (waves, "draw", 2),  # one run has its next wave, the other has not
        (launching_several, "carry_out_several", 2),
        (comparison, "report", 1),
    ],
)
def test_what_is_killed_between_waves_goes_on_and_ends_alike(
    place: Any,
    name: str,
    call: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: list[tuple[object, ...]],
) -> None:
    path, before = written(tmp_path), getattr(place, name)
    with monkeypatch.context() as patched:
        patched.setattr(place, name, killed_at(call, before))
        with pytest.raises(Killed):
            launched(path, ALL_EQUAL_AT_LOOK_2)
    assert [state(run) for run in launched(path, ALL_EQUAL_AT_LOOK_2)] == undisturbed


def test_a_run_that_is_killed_between_waves_is_under_way_and_to_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before: list[str] = []

    def killed_look(runs: list[RunFolder], *arguments: object) -> object:
        before.extend(status(run).how_to_resume for run in runs)
        raise Killed

    monkeypatch.setattr(looking, "look", killed_look)
    with pytest.raises(Killed):
        launched(written(tmp_path), ALL_EQUAL_AT_LOOK_2)
    runs = [RunFolder(path) for path in (tmp_path / "runs").iterdir() if path.is_dir()]
    assert [run.state for run in listed(runs)] == ["under way"] * 2
    now = [status(run) for run in runs]
    assert [of_status(*pair)["state"] for pair in zip(now, runs, strict=True)] == ["under way"] * 2
    if locks.are_listed():
        assert before == ["", ""], "the launch is looking"
        assert all("run its launch command again" in run_status.how_to_resume for run_status in now)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[object, ...]]:
    path = written(tmp_path_factory.mktemp("undisturbed"))
    return [state(run) for run in launched(path, ALL_EQUAL_AT_LOOK_2)]


def killed_at(number: int, function: Callable[..., object]) -> Callable[..., object]:
    calls = 0

    def called(*arguments: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls == number:
            raise Killed
        return function(*arguments, **named)

    return called


def test_a_run_that_was_begun_with_all_samples_keeps_them(tmp_path: Path) -> None:
    path = written(tmp_path)
    suite.launch(suite.read(path), None, [0])
    base, own = launched(path, ALL_EQUAL_AT_LOOK_1)
    assert (waves.read(base), base.num_planned()) == (None, 24)
    begun = waves.read(own)
    assert begun is not None
    assert begun.is_stopped
    assert own.num_planned() == 6


def test_samples_that_are_missing_decide_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waves, "record_look", lambda *arguments: pytest.fail("a look was recorded"))
    path = written(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(launching_several, "_in_this_process", lambda *arguments: [LaunchFailed("no worker came")])
        with pytest.raises(LaunchFailed, match="no worker came"):
            launched(path, ALL_EQUAL_AT_LOOK_1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SUITE.replace("{samples}", "3"), "samples 3; valid: one number for all runs, at least 4"),
        (SUITE + "samples = 5\n", "samples 4, 5; valid: one number for all runs"),
        (SUITE.partition('[[run]]\nmethod = "speccot"')[0], "demo has one run, and a comparison needs two"),
    ],
)
def test_what_is_no_comparison_in_waves_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(NotInWaves, match=message):
        launched(written(tmp_path, text=text), 0.02)
    assert not (tmp_path / "runs").exists()


def test_a_margin_belongs_to_waves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["suite", str(written(tmp_path)), "--margin", "3"])
    assert ended.value.code == 2
    assert "--until-decided" in capsys.readouterr().err


def test_a_dry_run_names_the_waves_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main.main(["suite", str(written(tmp_path, 16)), "--until-decided", "--dry-run"], standalone_mode=False)
    printed = capsys.readouterr().out
    assert "2 runs in waves of 4, 8, 12, 16 samples per problem" in printed
    assert "This wave: GPU-hours unknown for 2 runs." in printed
    assert not (tmp_path / "runs").exists()


def test_sentences_about_waves_fit_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)
    comparison.preview(of_suite(suite.read(written(tmp_path, 16)), None), 0.02, console)
    lines = screen.getvalue().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("2 runs in waves of "))
    assert "with a look after each wave: at most 4 looks" in " ".join(" ".join(lines[first:]).split())
    assert max(map(len, lines[first:])) <= 80
