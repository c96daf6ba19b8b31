"""Log-probabilities of generated tokens: asked for where the launch says so, and without influence on texts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jobs.run import trace_files
from jobs.run.endings import compact
from tests.jobs.runs import ENGINES, finished_run, texts


def test_the_column_is_null_unless_they_are_asked_for(tmp_path: Path) -> None:
    seen = {}
    for logprobs in (None, True):
        run = finished_run(tmp_path, engine=replace(ENGINES, logprobs=logprobs))
        compact(run)
        candidates = [
            candidate["mean_logprob"]
            for part in run.trace_files()
            for row in trace_files.read_rows(part)
            for step in row["steps"]
            for candidate in step["candidates"]
        ]
        assert candidates
        assert all((mean is not None) == bool(logprobs) for mean in candidates)
        seen[logprobs] = texts(run)
    assert seen[None] == seen[True]
