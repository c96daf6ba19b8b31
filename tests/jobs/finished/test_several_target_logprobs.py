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


def test_all_runs_of_a_suite_with_a_target_are_scored_once_and_the_draft_alone_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scored.toml"
    path.write_text(SUITE.format(output=tmp_path / "runs", cluster="debug"), encoding="utf-8")
    target, draft, method = runs = launch_suite(suite.read(path), None)
    assert all(scored_places(run) == places(run) for run in (target, method))
    assert not _files(draft)
    assert f"jobs target-logprobs {draft.path} --target-of RUN" in " ".join(capsys.readouterr().out.split())
    before = {file: file.read_bytes() for run in runs for file in _files(run)}
    launch_suite(suite.read(path), None)
    assert {file: file.read_bytes() for run in runs for file in _files(run)} == before
    main.main(["target-logprobs", str(draft.path), "--target-of", str(target.path)], standalone_mode=False)
    assert scored_places(draft) == places(draft)
    assert len({derived.header(_files(run)[0])["scorer"]["fingerprint"] for run in runs}) == 1
    assert scoring.notice(draft) == ""


def _files(run: RunFolder) -> list[Path]:
    return run.derived("target_logprobs")
