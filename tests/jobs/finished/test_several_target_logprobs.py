"""A suite that asks for the target's log-probabilities has those of all its runs, of the draft alone too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.engine import EngineDied
from jobs import suite
from jobs.__main__ import main
from jobs.drive import LaunchFailed
from jobs.finished import scoring
from jobs.run import derived
from jobs.run.folder import RunFolder
from tests.jobs.finished.test_target_logprobs import places, scored_places
from tests.jobs.runs import launch_suite
from warehouse.database import reader, rows

SUITE = """
output = "{output}"
engine = "scripted"
cluster = "{cluster}"
dataset = "demo"
limit = 2
samples = 1
target-logprobs = true

[[run]]
method = "vanilla"

[[run]]
method = "vanilla"
model = "draft"

[[run]]
method = "speccot"
drafts = 2
"""
TWO_TARGETS = '\n[[run]]\nmethod = "vanilla"\ntarget = "demo-draft"\n'


def written(folder: Path, cluster: str = "debug", more: str = "") -> Path:
    path = folder / "scored.toml"
    path.write_text(SUITE.format(output=folder / "runs", cluster=cluster) + more, encoding="utf-8")
    return path


@pytest.mark.parametrize("cluster", ["debug", "local"])
def test_all_runs_of_a_suite_are_scored_and_loaded_and_the_draft_alone_by_the_others_target(
    tmp_path: Path, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, cluster)
    main.main(["suite", str(path)], standalone_mode=False)
    printed = " ".join(capsys.readouterr().out.split())
    runs = [prepared.run for prepared in suite.prepare(suite.read(path), None)]
    assert all(scored_places(run) == places(run) for run in runs)
    assert len({_scorer(run)["fingerprint"] for run in runs}) == 1
    with reader(tmp_path / "runs" / "warehouse.duckdb") as connection:
        found = rows(connection, "SELECT run_id, distance FROM distance_from_target")
    assert {row["run_id"] for row in found} == {run.path.name for run in runs}
    assert sum(row["distance"] is not None for row in found) == 2, "all but the target alone"
    assert "distance in nats" in (tmp_path / "runs" / "scored.html").read_text(encoding="utf-8")
    assert "--target-of" not in printed, "nothing is left to be asked for by hand"


def test_the_same_suite_again_scores_and_says_nothing_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path)
    before = {file: file.read_bytes() for run in launch_suite(suite.read(path), None) for file in _files(run)}
    capsys.readouterr()
    runs = launch_suite(suite.read(path), None)
    assert {file: file.read_bytes() for run in runs for file in _files(run)} == before
    assert "log-probabilities" not in capsys.readouterr().out


def test_what_killed_workers_have_left_is_scored_after_the_runs(tmp_path: Path) -> None:
    path = written(tmp_path)
    runs = launch_suite(suite.read(path), None)
    for run in runs:
        for file in _files(run):
            file.unlink()
    launch_suite(suite.read(path), None)
    assert all(scored_places(run) == places(run) for run in runs)


def test_a_target_that_dies_while_it_reads_is_one_line_and_the_same_suite_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = suite.read(written(tmp_path))

    async def dies(*_: object) -> None:
        raise EngineDied("the target engine did not start: no memory")

    with monkeypatch.context() as patched:
        patched.setattr("jobs.finished.scoring._read_run", dies)
        with pytest.raises(
            LaunchFailed, match=r"not read finished chains of demo-\S+: the target engine did not start"
        ):
            launch_suite(chosen, None)
    assert all(scored_places(run) == places(run) for run in launch_suite(chosen, None))


def test_a_run_that_cannot_be_scored_is_named_and_the_others_are_scored_and_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path)
    target, draft, method = launch_suite(suite.read(path), None)
    for file in (*_files(target), *_files(draft), *_files(method)):
        file.unlink()
    spec = target.spec()
    assert spec.target is not None
    another = derived.scorer_of(replace(spec.target, model="other", fingerprint="other"), spec)
    derived.write_logprobs(target, another, [])
    [other] = _files(target)
    (tmp_path / "runs" / "warehouse.duckdb").unlink()
    with pytest.raises(LaunchFailed, match=f"could not read finished chains of {target.path.name}: ") as failed:
        launch_suite(suite.read(path), None)
    assert "move" in str(failed.value), "it says what to do"
    assert draft.path.name not in str(failed.value)
    assert all(scored_places(run) == places(run) for run in (draft, method))
    with reader(tmp_path / "runs" / "warehouse.duckdb") as connection:
        found = rows(connection, "SELECT DISTINCT run_id FROM distance_from_target")
    assert {row["run_id"] for row in found} >= {draft.path.name, method.path.name}
    other.unlink()
    assert all(scored_places(run) == places(run) for run in launch_suite(suite.read(path), None))


def test_a_draft_alone_that_a_killed_suite_left_unscored_is_mentioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("jobs.drive._score_targets", killed)
        with pytest.raises(KeyboardInterrupt):
            launch_suite(suite.read(path), None)
    _, draft, _ = (prepared.run for prepared in suite.prepare(suite.read(path), None))
    line = scoring.notice(draft)
    assert line.startswith("2 samples have no log-probabilities by a target yet")


def test_with_several_targets_the_plan_says_how_to_choose_the_one_that_reads_the_draft_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, more=TWO_TARGETS)
    path.write_text(path.read_text().replace('"scripted"', '"transformers"'), encoding="utf-8")
    prepared = suite.prepare(suite.read(path), None)
    assert [launch.target_of for launch in prepared] == [None] * 4
    main.main(["suite", str(path), "--dry-run"], standalone_mode=False)
    assert "--target-of OTHER-RUN" in " ".join(capsys.readouterr().out.split())


def test_a_run_without_a_target_that_is_scored_has_no_notice(tmp_path: Path) -> None:
    _, draft, _ = launch_suite(suite.read(written(tmp_path)), None)
    assert scoring.notice(draft) == ""
    for file in _files(draft):
        file.unlink()
    line = scoring.notice(draft)
    assert line.startswith("2 samples have no log-probabilities by a target yet")
    assert line.endswith("--target-of RUN")


def _files(run: RunFolder) -> list[Path]:
    return run.derived("target_logprobs")


def _scorer(run: RunFolder) -> dict[str, str]:
    [file, *_] = _files(run)
    found: dict[str, str] = derived.header(file)["scorer"]
    return found
