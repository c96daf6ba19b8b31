"""Quality of stored steps and candidates, by a process reward model: `python -m jobs score RUN --model PRM`.

Writes `scores/<scorer>.parquet` in the run folder, which the warehouse loads. What is scored already stays; a scorer is
a model's content and the version of the form in which it is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from harness import rewards
from harness.engine import RequestRefused
from harness.engines.factory import open_engines
from harness.engines.settings import Kind, pair_settings
from harness.models import ModelRef
from harness.rewards import RewardModel
from jobs.run import trace_files
from jobs.run.folder import RunFolder
from jobs.run.grades import file_name
from jobs.run.records import counting_records

_KEPT_EVERY = 200
"""Samples between two writes of the file: what a kill may cost."""
_UNSCORED = frozenset({"answer", "chain", "rethink"})
"""Steps that are an answer or a whole chain: a reward model judges steps of reasoning."""


@dataclass(frozen=True)
class _Asked:
    """One judgement: the steps of which the last one is judged, and the columns that say where it belongs."""

    problem_id: str
    steps: tuple[str, ...]
    place: dict[str, Any]


@dataclass(frozen=True)
class Source:
    """Where a reward model lies, and what its scores are filed under."""

    path: str
    revision: str | None
    scorer: str
    """`<model>@<content>/<version of the form>`."""


def source(ref: ModelRef) -> Source:
    """The reward model of a reference."""
    content = (ref.fingerprint or ref.revision or "unpinned")[:16]
    return Source(ref.path_or_hub_id, ref.revision, f"{ref.name}@{content}/{rewards.VERSION}")


def score_run(
    run: RunFolder, where: Source, kind: Kind, max_context: int, concurrency: int, say: Callable[[str], None]
) -> tuple[int, int]:
    """`score` with an engine of its own. Raises EngineDied, and ValueError where the model cannot be asked."""

    async def work() -> tuple[int, int]:
        settings = pair_settings(kind, ("target",), max_context=max_context, concurrency=concurrency)
        async with open_engines(None, where, ("target",), settings, run.logs_dir / "score") as engines:
            return await score(run, RewardModel(engines["target"]), where.scorer, concurrency, say)

    return asyncio.run(work())


async def score(
    run: RunFolder, model: RewardModel, scorer: str, concurrency: int = 64, say: Callable[[str], None] = lambda _: None
) -> tuple[int, int]:
    """Score every step and candidate that this scorer has not scored; returns how many were, and how many it refused.

    A step that does not fit into the model's context has no score.
    """
    path = run.scores_dir / file_name(scorer)
    rows = trace_files.read_rows(path) if path.exists() else []
    known = {row["sample_id"] for row in rows}
    problems = {problem.id: problem.text for problem in run.problems()}
    room = asyncio.Semaphore(concurrency)
    refused = 0

    async def one(asked: _Asked) -> dict[str, Any]:
        async with room:
            try:
                quality: float | None = await model.quality(problems[asked.problem_id], asked.steps)
            except RequestRefused:
                quality = None
        return {**asked.place, "scorer": scorer, "score": quality}

    before, num_samples = len(rows), 0
    unscored = (s for s in counting_records(run, ["problem_id", "steps"], failed=False) if s["sample_id"] not in known)
    while samples := list(islice(unscored, _KEPT_EVERY)):
        found = await asyncio.gather(*(one(asked) for sample in samples for asked in _of_sample(sample)))
        refused += sum(row["score"] is None for row in found)
        rows += found
        trace_files.write_table(path, trace_files.SCORES, rows)
        num_samples += len(samples)
        say(f"{len(rows) - before} judgements of {num_samples} samples")
    return len(rows) - before, refused


def _of_sample(sample: dict[str, Any]) -> Iterator[_Asked]:
    before: list[str] = []
    for step_index, step in enumerate(sample["steps"]):
        if step["role"] in _UNSCORED:
            return
        texts = [(None, step["text"]), *enumerate(candidate["text"] for candidate in step["candidates"])]
        for candidate_index, text in texts:
            place = {"sample_id": sample["sample_id"], "step_index": step_index, "candidate_index": candidate_index}
            yield _Asked(sample["problem_id"], (*before, text), place)
        before.append(step["text"])
