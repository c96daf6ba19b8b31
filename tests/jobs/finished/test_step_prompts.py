"""The prompts of a step are those that the run sent, put together again from the run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jobs.finished.step_prompts import prompts_of
from jobs.run.trace_files import counting_records
from tests.jobs.runs import finished_run
from warehouse.loading.runs import load_run
from warehouse.trace import main


@pytest.mark.parametrize(
    ("method", "params"),
    [("vanilla", {}), ("speccot", {}), ("specreason", {"first_steps": 1}), ("scot", {}), ("specguard", {})],
)
def test_every_call_of_every_step_is_put_together_as_it_was_sent(
    tmp_path: Path, method: str, params: dict[str, Any]
) -> None:
    run = finished_run(tmp_path, samples=1, method=method, **params)
    [sample, *_] = counting_records(run, ["problem_id", "steps", "calls"])
    for step in range(len(sample["steps"])):
        sent = prompts_of(run, sample["problem_id"], 0, step)
        recorded = [call for call in sample["calls"] if call["step"] == step]
        assert [(one.call.purpose, one.call.prompt_tokens) for one in sent] == [
            (call["purpose"], call["prompt_tokens"]) for call in recorded
        ]
        assert all(one.is_as_recorded for one in sent)
        before = "".join(one["text"] for one in sample["steps"][:step])
        writing = [prompt for one in sent if one.call.purpose != "verdict" for prompt in one.prompts]
        assert all(before in prompt for prompt in writing)


def test_a_reply_that_the_trace_does_not_keep_is_told_and_the_viewer_prints_the_calls(tmp_path: Path) -> None:
    run = finished_run(tmp_path, samples=1, method="lookahead")
    [sample, *_] = counting_records(run, ["problem_id", "steps"])
    sent = prompts_of(run, sample["problem_id"], 0, 0)
    assert sent[0].is_as_recorded
    assert not all(one.is_as_recorded for one in sent)
    load_run(run, tmp_path / "w.duckdb")
    arguments = [str(run.path), sample["problem_id"], "0", "--database", str(tmp_path / "w.duckdb"), "--prompt"]
    printed = CliRunner().invoke(main, [*arguments, "0"])
    assert printed.exit_code == 0
    assert len([line for line in printed.stdout.splitlines() if line.startswith("── step 0")]) == len(sent)
    refused = CliRunner().invoke(main, [*arguments, "99"])
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
