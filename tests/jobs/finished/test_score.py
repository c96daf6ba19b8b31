"""Scores of a process reward model: every step and candidate once, what is scored stays, what is too long has none."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from harness.chain.chain_scores import RewardModel
from harness.engine import EngineDied
from harness.engines.scripted import ByteTokenizer, ScriptedEngine
from jobs.finished.scoring import longest_judgment, score
from jobs.run import trace_files
from jobs.run.folder import RunFolder
from tests.jobs.runs import finished_run
from warehouse.database import reader, rows
from warehouse.loading.runs import load_run


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
    run = finished_run(tmp_path)
    prompts: list[str] = []
    judged, missing = asyncio.run(score(run, rewards(prompts), "toy@1/1"))
    [path] = run.derived("scores")
    found = trace_files.read_rows(path)
    assert (judged, missing) == (len(found), 0)
    assert Counter((row["sample_id"], row["step_index"], row["candidate_index"]) for row in found) == places(run)
    assert {round(row["score"], 9) for row in found} == {0.75}
    assert {prompt.count("ки") for prompt in prompts} == {row["step_index"] + 1 for row in found}
    assert asyncio.run(score(run, rewards(prompts), "toy@1/1")) == (0, 0)
    assert asyncio.run(score(run, rewards(prompts), "other@1/1")) == (judged, 0)


@pytest.mark.parametrize(("context", "missing"), [(8, "all"), (300, "some")])
def test_a_run_with_judgements_that_do_not_fit_loads_and_counts_them(
    context: int, missing: str, tmp_path: Path
) -> None:
    run = finished_run(tmp_path, samples=1)
    judged, unscored = asyncio.run(score(run, rewards([], context), "toy@1/1"))
    assert {"all": unscored == judged, "some": 0 < unscored < judged}[missing]
    load_run(run, tmp_path / "w.duckdb")
    with reader(tmp_path / "w.duckdb") as connection:
        [quality] = rows(connection, "FROM step_quality")
        [counts] = rows(
            connection,
            "SELECT num_candidates + num_steps AS judged, num_missing_candidates + num_missing_steps AS missing "
            "FROM step_quality",
        )
        reasons = rows(connection, "SELECT DISTINCT missing FROM step_score WHERE score IS NULL")
    assert counts == {"judged": judged - unscored, "missing": unscored}
    assert quality["step_quality"] == (None if missing == "all" else pytest.approx(0.75))
    [reason] = (row["missing"] for row in reasons)
    assert str(context) in reason.split()


def test_what_is_missing_is_asked_for_again_and_nothing_else(tmp_path: Path) -> None:
    run = finished_run(tmp_path, samples=1)
    _, missing = asyncio.run(score(run, rewards([], context=300), "toy@1/1"))
    longest = longest_judgment(run, ByteTokenizer(), "toy@1/1")
    assert longest is not None
    assert asyncio.run(score(run, rewards([], context=longest), "toy@1/1")) == (missing, 0)
    assert longest_judgment(run, ByteTokenizer(), "toy@1/1") is None


def test_behind_guidance_that_ends_inside_a_step_the_whole_step_is_judged(tmp_path: Path) -> None:
    """Guidance of 4 characters ends in the first step, which the draft completes."""
    run = finished_run(tmp_path, samples=1, guidance_tokens=4)
    [trace_file] = run.trace_files()
    prompts: list[str] = []
    asyncio.run(score(run, rewards(prompts), "toy@1/1"))
    for sample in trace_files.read_rows(trace_file):
        guidance, first = sample["steps"][:2]
        assert guidance["finish"] == "length"
        shown = " ".join((guidance["text"] + first["text"]).split())
        asked = [prompt for prompt in prompts if shown in prompt]
        assert asked, "guidance and what completes it are one step"
        assert all(f"Step 1: {shown}" in prompt for prompt in asked)


def test_an_engine_that_dies_leaves_no_judgement_without_a_score(tmp_path: Path) -> None:
    run = finished_run(tmp_path, samples=1)
    deaths = {7: EngineDied("out of memory")}
    engine = ScriptedEngine(lambda prompt, sampling: [""], lambda prompt, labels: [0.3, 0.1], failures=deaths)
    with pytest.raises(EngineDied):
        asyncio.run(score(run, RewardModel(engine), "toy@1/1"))
    asyncio.run(score(run, rewards([]), "toy@1/1"))
    [path] = run.derived("scores")
    found = trace_files.read_rows(path)
    assert Counter((row["sample_id"], row["step_index"], row["candidate_index"]) for row in found) == places(run)
    assert {row["missing"] for row in found} == {None}
