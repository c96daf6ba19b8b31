"""Scores of a process reward model: every step and candidate once, what is scored stays, what is too long has none."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from harness.engines.scripted import ScriptedEngine
from harness.rewards import RewardModel
from jobs.after.score import score
from jobs.run import trace_files
from jobs.run.folder import RunFolder
from jobs.work.worker import run_shard
from tests.jobs.runs import plan


def rewards(prompts: list[str], context: int = 1 << 20) -> RewardModel:
    def judge(prompt: str, labels: tuple[str, ...]) -> list[float]:
        prompts.append(prompt)
        return [0.3, 0.1]

    engine = ScriptedEngine(lambda prompt, sampling: [""], judge)
    engine.context_tokens = context
    return RewardModel(engine)


def places(run: RunFolder) -> Counter[tuple[str, int, int | None]]:
    """Count the reasoning steps and their candidates in the trace files, by sample, step and candidate."""
    places: Counter[tuple[str, int, int | None]] = Counter()
    for part in run.trace_files():
        for row in trace_files.read_rows(part):
            for number, step in enumerate(row["steps"]):
                if step["role"] in {"answer", "chain", "rethink"}:
                    break
                indices: list[int | None] = [None, *range(len(step["candidates"]))]
                places.update((row["sample_id"], number, index) for index in indices)
    return places


def test_every_step_and_candidate_is_scored_once_behind_the_accepted_steps(tmp_path: Path) -> None:
    run = plan(tmp_path)
    run_shard(str(run.path), 0)
    prompts: list[str] = []
    judged, refused = asyncio.run(score(run, rewards(prompts), "toy@1/1"))
    [path] = run.scores_dir.glob("*.parquet")
    rows = trace_files.read_rows(path)
    assert (judged, refused) == (len(rows), 0)
    assert Counter((row["sample_id"], row["step_index"], row["candidate_index"]) for row in rows) == places(run)
    assert {round(row["score"], 9) for row in rows} == {0.75}
    assert {prompt.count("ки") for prompt in prompts} == {row["step_index"] + 1 for row in rows}
    assert asyncio.run(score(run, rewards(prompts), "toy@1/1")) == (0, 0)
    assert asyncio.run(score(run, rewards(prompts), "other@1/1")) == (judged, 0)


def test_a_judgement_that_does_not_fit_has_no_score(tmp_path: Path) -> None:
    run = plan(tmp_path, samples=1)
    run_shard(str(run.path), 0)
    judged, refused = asyncio.run(score(run, rewards([], context=8), "toy@1/1"))
    assert judged == refused > 0
