"""A suite that asks for the target's log-probabilities has those of all its runs with a target."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs import suite
from jobs.__main__ import main
from jobs.finished import scoring
from jobs.run import derived
from jobs.run.folder import RunFolder
from tests.jobs.finished.test_target_logprobs import places, scored_places
from tests.jobs.runs import launch_suite

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


def written(folder: Path, cluster: str = "debug") -> Path:
    path = folder / "scored.toml"
    path.write_text(SUITE.format(output=folder / "runs", cluster=cluster), encoding="utf-8")
    return path


@pytest.mark.parametrize("cluster", ["debug", "local"])
def test_all_runs_of_a_suite_with_a_target_are_scored_and_loaded_and_the_draft_alone_is_named(
    tmp_path: Path, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, cluster)
    main.main(["suite", str(path)], standalone_mode=False)
    printed = " ".join(capsys.readouterr().out.split())
    target, draft, method = [prepared.run for prepared in suite.prepare(suite.read(path), None)]
    assert all(scored_places(run) == places(run) for run in (target, method))
    assert not _files(draft)
    assert f"jobs target-logprobs {draft.path} --target-of RUN" in printed
    main.main(["target-logprobs", str(draft.path), "--target-of", str(target.path)], standalone_mode=False)
    assert scored_places(draft) == places(draft)
    assert len({_scorer(run)["fingerprint"] for run in (target, draft, method)}) == 1
    assert scoring.notice(draft) == ""


def test_the_same_suite_again_scores_and_says_nothing_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path)
    before = {file: file.read_bytes() for run in launch_suite(suite.read(path), None) for file in _files(run)}
    capsys.readouterr()
    runs = launch_suite(suite.read(path), None)
    assert {file: file.read_bytes() for run in runs for file in _files(run)} == before
    assert capsys.readouterr().out.count("log-probabilities") == 1, "the draft alone's, which a command adds"


def _files(run: RunFolder) -> list[Path]:
    return run.derived("target_logprobs")


def _scorer(run: RunFolder) -> dict[str, str]:
    [file, *_] = _files(run)
    found: dict[str, str] = derived.header(file)["scorer"]
    return found
