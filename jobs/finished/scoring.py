"""Score finished runs: steps with a reward model (`jobs score`), chains with a target (`target-logprobs`).

Scores are stored in `derived/scores-<scorer>.parquet` and `derived/target_logprobs-….parquet` in the run folder and
loaded into the database. A judgment without a score has a row with the reason, and is retried the next time. A
scorer is identified by the model's content and the prompt version.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, takewhile
from pathlib import Path
from shlex import quote
from typing import cast

from harness.chain import chain_scores
from harness.chain.chain_scores import RewardModel, Written, judgment_ids
from harness.cli.messages import counted
from harness.cli.program import typed
from harness.engine import Engine, EngineDied, RequestRefused, Role, Tokenizer, VerdictUnavailable
from harness.engines.pool import EnginePool
from harness.engines.registry import open_engines
from harness.engines.settings import cpu_kv_bytes, pair_settings
from harness.methods import build
from harness.prompts import prompt_hash
from harness.sizing.card_plan import ModelFiles, RunSizing, chosen_here
from harness.weights.models import ModelRef
from harness.weights.tokenizer import HFTokenizer
from jobs.run import derived
from jobs.run.derived import Scorer, scorer_of
from jobs.run.endings import finished_records
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec, check_model
from jobs.run.trace_files import SampleRow, ScoreRow, counting_records
from jobs.work.engine_settings import reopen, without_speculation
from jobs.work.target_logprobs import COLUMNS, Scored
from jobs.work.target_logprobs import score as score_chains

_SAMPLES_PER_WRITE = 200
"""Samples between two writes of the file: the maximum loss if the command is killed."""
_UNSCORED_ROLES = frozenset({"answer", "chain", "closing", "rethink"})
"""Roles of the steps at which scoring of a sample ends: a reward model judges only the reasoning steps before them."""
_MORE_TOKENS = 64
"""Margin in tokens, because the judgment with the longest text need not have the most tokens."""
_Place = tuple[str, int, int | None]
"""Sample id, step index, and candidate index; None: the step itself."""


@dataclass(frozen=True)
class _Judgment:
    """One request to the reward model: steps, the last of which is judged, and the place of that step."""

    problem_id: str
    steps: tuple[str, ...]
    place: _Place


def source(ref: ModelRef) -> ModelFiles:
    """Return a reward model's `ModelFiles`, named after the scorer: `<model>@<content>/<prompt version>`."""
    content = (ref.fingerprint or ref.revision or "unpinned")[:16]
    return ModelFiles(f"{ref.name}@{content}/{chain_scores.REWARDS_VERSION}", ref.path_or_hub_id, ref.revision)


def score_run(
    run: RunFolder, model: ModelFiles, kind: str, max_context: int | None, concurrency: int, say: Callable[[str], None]
) -> tuple[int, int]:
    """Start an engine for the reward model and score the run; return the result of `score`.

    `max_context`: maximum judgment length in tokens; None: as needed. Raises EngineDied, and ValueError if the model is
    not a reward model or does not fit.
    """
    if max_context is None:
        max_context = longest_judgment(run, HFTokenizer(model.path, model.revision), model.name)
        if max_context is None:
            return 0, 0

    async def work() -> tuple[int, int]:
        models: dict[Role, ModelFiles] = {"target": model}
        chosen = chosen_here(kind, RunSizing(models, max_context, {"target": max_context}, concurrency))
        settings = pair_settings(kind, ("target",), max_context=max_context, models=chosen, concurrency=concurrency)
        async with open_engines(None, model, ("target",), settings, run.logs_dir / "score") as engines:
            return await score(run, RewardModel(engines["target"]), model.name, concurrency, say)

    return asyncio.run(work())


async def score(
    run: RunFolder, model: RewardModel, scorer: str, concurrency: int = 64, say: Callable[[str], None] = lambda _: None
) -> tuple[int, int]:
    """Score every step and candidate that has no score from this scorer.

    Returns the number of judgments, and how many of them have no score.
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
    """Return the context needed for the longest missing judgment, in tokens; None if none is missing."""
    problems = {problem.id: problem.text for problem in run.problems()}
    longest = (
        max(judgments, key=lambda judgment: sum(map(len, judgment.steps)))
        for judgments in _unscored(run, _places(_scored(run, scorer)))
    )
    needed = [len(judgment_ids(tokenizer, problems[one.problem_id], one.steps)) + 1 for one in longest]
    return max(needed) + _MORE_TOKENS if needed else None


def _scored(run: RunFolder, scorer: str) -> list[ScoreRow]:
    """Return the rows of a scorer that have a score."""
    rows = derived.rows_to_extend(run, "scores", scorer)
    return [cast(ScoreRow, row) for row in rows if row["score"] is not None]


def _places(rows: list[ScoreRow]) -> set[_Place]:
    return {(row["sample_id"], row["step_index"], row["candidate_index"]) for row in rows}


def _unscored(run: RunFolder, scored: Collection[_Place]) -> Iterator[list[_Judgment]]:
    """Yield the missing judgments of each sample that has any."""
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


def score_each(
    runs: Sequence[RunFolder], target_of: RunFolder | None = None, say: Callable[[str], None] = lambda _: None
) -> list[Scored | ValueError | EngineDied]:
    """Score the unscored chains of runs, which share engines if possible; return the result or error of each run.

    `target_of`: the run whose target scores chains of runs without a target. Raises ValueError, before anything is
    scored, if the chains of a run cannot be scored.
    """
    specs, kv_bytes = _of_one_size([_spec_of(run, target_of) for run in runs]), cpu_kv_bytes()

    async def read() -> list[Scored | ValueError | EngineDied]:
        found: list[Scored | ValueError | EngineDied] = []
        async with EnginePool() as pool:
            for run, spec in zip(runs, specs, strict=True):
                try:
                    found.append(await _read_run(pool, run, spec, kv_bytes, say))
                except (EngineDied, ValueError) as error:
                    found.append(error)
        return found

    return asyncio.run(read())


def notice(run: RunFolder) -> str:
    """Return a line on finished samples without target log-probabilities; empty if there are none."""
    spec = run.spec()
    try:
        known = derived.scored_ids(run, scorer_of(spec.target, spec) if spec.target else None)
    except derived.OtherTarget as error:
        return str(error)
    records = counting_records(run, ["steps.list.element.finish"], failed=False)
    number = sum(bool(row["steps"]) and row["sample_id"] not in known for row in records)
    if not number:
        return ""
    has, command = counted(number, "sample has", "samples have"), f"{typed('jobs target-logprobs')} "
    by, ending = ("the target", "") if spec.target else ("a target", " --target-of RUN")
    return f"{has} no log-probabilities from {by} yet: {command}{quote(str(run.path))}{ending}"


def _of_one_size(specs: Sequence[RunSpec]) -> list[RunSpec]:
    """Return the specifications, each with the largest concurrency of all and the largest context for its target.

    The larger sizes affect no result, and engines of equal size are started only once.
    """
    most, longest = max((spec.concurrency for spec in specs), default=1), Counter[str]()
    for spec in specs:
        of_target = spec.target.fingerprint if spec.target else ""
        longest[of_target] = max(longest[of_target], spec.engine.max_context or 0)

    def sized(spec: RunSpec) -> RunSpec:
        context = spec.engine.max_context and longest[spec.target.fingerprint if spec.target else ""]
        return replace(spec, concurrency=most, engine=replace(spec.engine, max_context=context))

    return list(map(sized, specs))


async def _read_run(
    pool: EnginePool, run: RunFolder, spec: RunSpec, kv_bytes: int, say: Callable[[str], None]
) -> Scored:
    known = derived.scored_ids(run, _scorer(spec))
    unscored = (row for row in finished_records(run, COLUMNS) if row["steps"] and row["sample_id"] not in known)
    first = next(unscored, None)
    if first is None:
        return Scored()  # no engine needed
    engines = await reopen(pool, run, build("vanilla", {"model": "target"}), spec, kv_bytes)
    engine, samples = engines["target"], chain([first], unscored)
    tokenizers = _tokenizers(spec, engine)
    return await score_chains(run, samples, spec, engine, tokenizers, lambda words: say(f"{run.path.name}: {words}"))


def _scorer(spec: RunSpec) -> Scorer:
    assert spec.target is not None
    return scorer_of(spec.target, spec)


def _spec_of(run: RunFolder, target_of: RunFolder | None) -> RunSpec:
    """Return the specification for scoring a run's chains. Raises ValueError if they cannot be scored."""
    spec = run.spec()
    current, recorded = prompt_hash(spec.wording), spec.prompt_hash
    if current != recorded:
        raise ValueError(
            f"{run.path.name} was generated with different prompts ({recorded}; this version: {current}), so scores "
            "would not match: use the version that generated it"
        )
    if spec.target is None:
        remedy = "with --target-of RUN, pass a run whose target is to score the chains, e.g. a target-only run"
        if target_of is None:
            raise ValueError(f"{run.path.name} has no target: {remedy}")
        theirs = target_of.spec()
        if theirs.target is None:
            raise ValueError(f"--target-of {target_of.path.name} has no target either: {remedy}")
        spec = replace(spec, target=theirs.target, engine=theirs.engine)
    derived.scored_ids(run, _scorer(spec))
    for model in (spec.target, spec.draft):
        if model is not None:
            check_model(run.path.name, model)
    return without_speculation(spec)


def _tokenizers(spec: RunSpec, engine: Engine) -> dict[Role, Tokenizer]:
    """Return the tokenizers of target and draft; equal models share the target's."""
    tokenizers: dict[Role, Tokenizer] = {"target": engine.tokenizer, "draft": engine.tokenizer}
    draft = spec.draft
    if draft is not None and spec.engine.can.runs_models and draft != spec.target:
        revision = None if Path(draft.path).is_dir() else draft.revision
        tokenizers["draft"] = HFTokenizer(draft.path, revision, spec.conventions("draft"))
    return tokenizers
