"""Scores of stored steps and candidates by a process reward model: `python -m jobs score RUN --model PRM`.

They are written to `derived/scores-<scorer>.parquet` in the run folder, which the warehouse loads. Scores that exist
are kept. A judgment that the model could not give has a row with the reason, and is asked for again the next time. A
scorer is named by the model's content and the version of the prompt.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import cast

from harness.chain import chain_scores
from harness.chain.chain_scores import Form, RewardModel, Written
from harness.cli.messages import counted
from harness.engine import RequestRefused, Role, Tokenizer, VerdictUnavailable
from harness.engines.registry import open_engines
from harness.engines.settings import pair_settings
from harness.sizing.card_plan import ModelFiles, RunSizing, chosen_here
from harness.weights.models import ModelRef
from harness.weights.tokenizer import HFTokenizer
from jobs.run import derived
from jobs.run.endings import finished_records
from jobs.run.folder import RunFolder
from jobs.run.trace_files import SampleRow, ScoreRow

_SAMPLES_PER_WRITE = 200
"""Samples between two writes of the file: what is lost where the command is killed."""
_UNSCORED_ROLES = frozenset({"answer", "chain", "rethink"})
"""Roles of steps that are an answer or a whole chain; a reward model judges steps of reasoning."""
_MORE_TOKENS = 64
"""Room for a judgment that has more tokens than the longest text."""
_Place = tuple[str, int, int | None]
"""Sample, step, and candidate; None: the step itself."""


@dataclass(frozen=True)
class _Judgment:
    """One request to the reward model: the steps of which it judges the last, and where that step stands."""

    problem_id: str
    steps: tuple[str, ...]
    place: _Place

    @property
    def num_characters(self) -> int:
        return sum(map(len, self.steps))


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
    return Source(ref.path_or_hub_id, ref.revision, f"{ref.name}@{content}/{chain_scores.REWARDS_VERSION}")


def score_run(
    run: RunFolder, location: Source, kind: str, max_context: int | None, concurrency: int, say: Callable[[str], None]
) -> tuple[int, int]:
    """Start an engine for the reward model and score the run with it; returns what `score` returns.

    `max_context`: longest judgment in tokens; None: as long as the run's longest. Raises EngineDied, and ValueError
    where the model cannot be used as a reward model or does not fit.
    """
    if max_context is None:
        max_context = longest_judgment(run, HFTokenizer(location.path, location.revision), location.scorer)
        if max_context is None:
            return 0, 0

    async def work() -> tuple[int, int]:
        model: dict[Role, ModelFiles] = {"target": ModelFiles(location.scorer, location.path, location.revision)}
        chosen = chosen_here(kind, RunSizing(model, max_context, {"target": max_context}, concurrency))
        settings = pair_settings(kind, ("target",), max_context=max_context, models=chosen, concurrency=concurrency)
        async with open_engines(None, location, ("target",), settings, run.logs_dir / "score") as engines:
            return await score(run, RewardModel(engines["target"]), location.scorer, concurrency, say)

    return asyncio.run(work())


async def score(
    run: RunFolder, model: RewardModel, scorer: str, concurrency: int = 64, say: Callable[[str], None] = lambda _: None
) -> tuple[int, int]:
    """Score every step and candidate that has no score by this scorer.

    Returns how many were judged, and to how many of them the model could give no score.
    """
    rows = _scored(run, scorer)
    problems = {problem.id: problem.text for problem in run.problems()}
    slots = asyncio.Semaphore(concurrency)

    async def judge(judgment: _Judgment) -> ScoreRow:
        quality: float | None = None
        missing: str | None = None
        async with slots:
            try:
                quality = await model.quality(problems[judgment.problem_id], judgment.steps)
            except RequestRefused:
                missing = f"longer than the context of {model.context_tokens} tokens"
            except VerdictUnavailable:
                missing = "no finite probabilities"
        sample_id, step_index, candidate_index = judgment.place
        return ScoreRow(
            sample_id=sample_id,
            step_index=step_index,
            candidate_index=candidate_index,
            scorer=scorer,
            score=quality,
            missing=missing,
        )

    before, num_samples = len(rows), 0
    unscored = _unscored(run, _places(rows))
    while samples := list(islice(unscored, _SAMPLES_PER_WRITE)):
        rows += await asyncio.gather(*(judge(judgment) for of_sample in samples for judgment in of_sample))
        derived.write(run, "scores", scorer, rows)
        num_samples += len(samples)
        say(f"{counted(len(rows) - before, 'judgment')} of {counted(num_samples, 'sample')}")
    missing = Counter(row["missing"] for row in rows[before:] if row["missing"])
    for reason, number in sorted(missing.items()):
        say(f"{counted(number, 'judgment')} without a score: {reason}")
    return len(rows) - before, missing.total()


def longest_judgment(run: RunFolder, tokenizer: Tokenizer, scorer: str) -> int | None:
    """Return the context that the longest judgment of a run needs, in tokens; None where all have their score."""
    problems, form = {problem.id: problem.text for problem in run.problems()}, Form()
    longest = (
        max(judgments, key=lambda judgment: judgment.num_characters)
        for judgments in _unscored(run, _places(_scored(run, scorer)))
    )
    needed = [form.context_tokens(tokenizer, problems[one.problem_id], one.steps) for one in longest]
    return max(needed) + _MORE_TOKENS if needed else None


def _scored(run: RunFolder, scorer: str) -> list[ScoreRow]:
    """Return the rows of a scorer that have a score."""
    rows = derived.rows_to_extend(run, "scores", scorer)
    return [cast(ScoreRow, row) for row in rows if row["score"] is not None]


def _places(rows: list[ScoreRow]) -> set[_Place]:
    return {(row["sample_id"], row["step_index"], row["candidate_index"]) for row in rows}


def _unscored(run: RunFolder, scored: Collection[_Place]) -> Iterator[list[_Judgment]]:
    """Yield the judgments that are asked for, by sample; samples without one are left out."""
    separator = run.spec().wording.step_separator
    for sample in finished_records(run, ["problem_id", "steps"]):
        if judgments := [one for one in _judgments(sample, separator) if one.place not in scored]:
            yield judgments


def _judgments(sample: SampleRow, separator: str) -> Iterator[_Judgment]:
    steps = list(takewhile(lambda step: step["role"] not in _UNSCORED_ROLES, sample["steps"]))
    whole = chain_scores.whole_steps([Written(step["text"], step["finish"]) for step in steps], separator)
    for number, (step, shown) in enumerate(zip(steps, whole, strict=True)):
        texts = [(None, step["text"] + shown.rest), *enumerate(candidate["text"] for candidate in step["candidates"])]
        for candidate, text in texts:
            place = (sample["sample_id"], number, candidate)
            yield _Judgment(sample["problem_id"], (*shown.before, shown.begun + text), place)
