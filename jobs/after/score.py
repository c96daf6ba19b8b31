"""Scores of stored steps and candidates by a process reward model: `python -m jobs score RUN --model PRM`.

They are written to `scores/<scorer>.parquet` in the run folder, which the warehouse loads. Scores that exist are kept.
A scorer is named by the model's content and the version of the prompt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from harness import rewards
from harness.engine import RequestRefused, Role
from harness.engines.factory import open_engines
from harness.engines.settings import Kind, pair_settings
from harness.plural import counted
from harness.rewards import RewardModel
from harness.sizing.here import chosen_here
from harness.sizing.run_sizing import ModelFiles, RunSizing
from harness.weights.models import ModelRef
from jobs.run import own_files, trace_files
from jobs.run.folder import RunFolder
from jobs.run.grades import file_name
from jobs.run.state import finished_records

_SAMPLES_PER_WRITE = 200
"""Samples between two writes of the file: what is lost where the command is killed."""
_UNSCORED_ROLES = frozenset({"answer", "chain", "rethink"})
"""Roles of steps that are an answer or a whole chain; a reward model judges steps of reasoning."""


@dataclass(frozen=True)
class _Judgment:
    """One request to the reward model: the steps of which it judges the last, and the columns that identify it."""

    problem_id: str
    steps: tuple[str, ...]
    columns: dict[str, Any]


@dataclass(frozen=True)
class Source:
    """The location of a reward model, and the name under which its scores are stored."""

    path: str
    revision: str | None
    scorer: str
    """`<model>@<content>/<version of the prompt>`."""


def source(ref: ModelRef) -> Source:
    """Return the location and the scorer's name of a reward model."""
    content = (ref.fingerprint or ref.revision or "unpinned")[:16]
    return Source(ref.path_or_hub_id, ref.revision, f"{ref.name}@{content}/{rewards.VERSION}")


def score_run(
    run: RunFolder, location: Source, kind: Kind, max_context: int, concurrency: int, say: Callable[[str], None]
) -> tuple[int, int]:
    """Start an engine for the reward model and score the run with it; returns what `score` returns.

    Raises EngineDied, and ValueError where the model cannot be used as a reward model or does not fit.
    """

    async def work() -> tuple[int, int]:
        model: dict[Role, ModelFiles] = {"target": ModelFiles(location.scorer, location.path, location.revision)}
        chosen = chosen_here(kind, RunSizing(model, max_context, {"target": max_context}, concurrency))
        settings = pair_settings(
            kind,
            ("target",),
            max_context=max_context,
            concurrency=concurrency,
            tensor_parallel=chosen.tensor_parallel,
            memory=chosen.memory,
        )
        async with open_engines(None, location, ("target",), settings, run.logs_dir / "score") as engines:
            return await score(run, RewardModel(engines["target"]), location.scorer, concurrency, say)

    return asyncio.run(work())


async def score(
    run: RunFolder, model: RewardModel, scorer: str, concurrency: int = 64, say: Callable[[str], None] = lambda _: None
) -> tuple[int, int]:
    """Score every step and candidate that this scorer has not scored.

    Returns how many were judged, and how many of them did not fit into the model's context and have no score.
    """
    path = run.scores_dir / file_name(scorer)
    rows, metadata = own_files.rows_to_extend(run, path), {trace_files.RUN_KEY: run.spec().run_id}
    scored_ids = {row["sample_id"] for row in rows}
    problems = {problem.id: problem.text for problem in run.problems()}
    slots = asyncio.Semaphore(concurrency)
    num_refused = 0

    async def judge(judgment: _Judgment) -> dict[str, Any]:
        async with slots:
            try:
                quality: float | None = await model.quality(problems[judgment.problem_id], judgment.steps)
            except RequestRefused:
                quality = None
        return {**judgment.columns, "scorer": scorer, "score": quality}

    before, num_samples = len(rows), 0
    unscored = (s for s in finished_records(run, ["problem_id", "steps"]) if s["sample_id"] not in scored_ids)
    while samples := list(islice(unscored, _SAMPLES_PER_WRITE)):
        new_rows = await asyncio.gather(*(judge(judgment) for s in samples for judgment in _judgments(s)))
        num_refused += sum(row["score"] is None for row in new_rows)
        rows += new_rows
        trace_files.write_table(path, trace_files.SCORES, rows, metadata)
        num_samples += len(samples)
        say(f"{counted(len(rows) - before, 'judgment')} of {counted(num_samples, 'sample')}")
    return len(rows) - before, num_refused


def _judgments(sample: dict[str, Any]) -> Iterator[_Judgment]:
    before: list[str] = []
    for step_index, step in enumerate(sample["steps"]):
        if step["role"] in _UNSCORED_ROLES:
            return
        texts = [(None, step["text"]), *enumerate(candidate["text"] for candidate in step["candidates"])]
        for candidate_index, text in texts:
            columns = {"sample_id": sample["sample_id"], "step_index": step_index, "candidate_index": candidate_index}
            yield _Judgment(sample["problem_id"], (*before, text), columns)
        before.append(step["text"])
