"""Finished runs scored by their target: `python -m jobs target-logprobs RUN…`.

The rows are written to `derived/` in the run folder, which the warehouse loads. Samples that are scored stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path
from shlex import quote

from harness.cli.messages import counted
from harness.cli.program import typed
from harness.engine import Engine, EngineDied, Role, Tokenizer
from harness.engines.pool import EnginePool
from harness.engines.settings import cpu_kv_bytes
from harness.methods import build
from harness.prompts import prompt_hash
from harness.weights.tokenizer import HFTokenizer
from jobs.run import derived
from jobs.run.derived import Scorer, scorer_of
from jobs.run.endings import finished_records
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec, check_model
from jobs.run.trace_files import counting_records
from jobs.work.engine_settings import reopen, without_speculation
from jobs.work.target_logprobs import COLUMNS, Scored, Target, score

_OF_TARGET = ("target", "engine")
"""What a run without a target takes over from another one."""


def check(runs: Sequence[RunFolder], target_of: RunFolder | None) -> list[RunSpec]:
    """Return the specification that each run is scored by. Raises ValueError where one cannot be scored."""
    return [_with_target(run, target_of) for run in runs]


def score_runs(
    runs: Sequence[RunFolder], specs: Sequence[RunSpec], say: Callable[[str], None] = lambda _: None
) -> list[Scored]:
    """Score what is not scored of runs over as few starts of engines as possible; what was scored, by run.

    Raises the first ValueError or EngineDied, once all others are scored.
    """
    found = score_each(runs, specs, say)
    for one in found:
        if isinstance(one, Exception):
            raise one
    return [one for one in found if isinstance(one, Scored)]


def score_each(
    runs: Sequence[RunFolder], specs: Sequence[RunSpec], say: Callable[[str], None] = lambda _: None
) -> list[Scored | ValueError | EngineDied]:
    """Score as `score_runs` does; by run what was scored, or why it could not be."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_score_runs(runs, specs, say))
    with ThreadPoolExecutor(1) as pool:  # a notebook's loop is running
        return pool.submit(lambda: asyncio.run(_score_runs(runs, specs, say))).result()


def num_unscored(run: RunFolder) -> int:
    """Return how many finished samples are not scored: by the run's target, or where it has none, by any.

    Raises OtherTarget.
    """
    spec = run.spec()
    known = derived.scored_ids(run, scorer_of(spec.target, spec) if spec.target else None)
    records = counting_records(run, ["steps.list.element.finish"], failed=False)
    return sum(bool(row["steps"]) and row["sample_id"] not in known for row in records)


def notice(run: RunFolder) -> str | None:
    """Return a line on finished samples that are not scored, of a run that asks for it; None: there are none."""
    try:
        number = num_unscored(run)
    except derived.OtherTarget as error:
        return str(error)
    if not number:
        return None
    has, command = counted(number, "sample has", "samples have"), f"{typed('jobs target-logprobs')} "
    by, ending = ("the target", "") if run.spec().target else ("a target", " --target-of RUN")
    return f"{has} no log-probabilities by {by} yet: {command}{quote(str(run.path))}{ending}"


async def _score_runs(
    runs: Sequence[RunFolder], specs: Sequence[RunSpec], say: Callable[[str], None]
) -> list[Scored | ValueError | EngineDied]:
    kv_bytes = cpu_kv_bytes()
    found: list[Scored | ValueError | EngineDied] = []
    async with EnginePool() as pool:
        for run, spec in zip(runs, _of_one_size(specs), strict=True):
            try:
                found.append(await _score_run(pool, run, spec, kv_bytes, say))
            except (EngineDied, ValueError) as error:
                found.append(error)
    return found


def _of_one_size(specs: Sequence[RunSpec]) -> list[RunSpec]:
    """Return the specifications with the context and the samples in flight of the largest with the same target.

    Neither changes a number, and engines of one size are started once.
    """
    contexts: dict[str, int] = {}
    for spec in specs:
        if spec.target is not None and spec.engine.max_context is not None:
            known = contexts.get(spec.target.fingerprint, 0)
            contexts[spec.target.fingerprint] = max(known, spec.engine.max_context)
    most = max((spec.concurrency for spec in specs), default=1)
    return [
        replace(spec, concurrency=most, engine=replace(spec.engine, max_context=contexts[spec.target.fingerprint]))
        if spec.target is not None and spec.engine.max_context is not None
        else replace(spec, concurrency=most)
        for spec in specs
    ]


async def _score_run(
    pool: EnginePool,
    run: RunFolder,
    spec: RunSpec,
    kv_bytes: int,
    say: Callable[[str], None],
) -> Scored:
    scorer = _scorer(spec)
    known = derived.scored_ids(run, scorer)
    unscored = (row for row in finished_records(run, COLUMNS) if row["steps"] and row["sample_id"] not in known)
    first = next(unscored, None)
    if first is None:
        return Scored()  # before an engine is started
    engines = await reopen(pool, run, build("vanilla", {"model": "target"}), spec, kv_bytes)
    target = Target(engines["target"], _tokenizers(spec, engines["target"]), scorer, spec.concurrency)
    return await score(run, chain([first], unscored), target, lambda words: say(f"{run.path.name}: {words}"))


def _scorer(spec: RunSpec) -> Scorer:
    assert spec.target is not None
    return scorer_of(spec.target, spec)


def _with_target(run: RunFolder, target_of: RunFolder | None) -> RunSpec:
    """Return a run's specification with a target that only reads. Raises ValueError where it cannot be scored."""
    spec = run.spec()
    current, recorded = prompt_hash(spec.wording), spec.prompt_hash.partition("-")[0]
    if current != recorded:  # what follows after a hyphen is of the questions of verdicts, which are not read
        raise ValueError(
            f"{run.path.name} was made with other prompts ({recorded}) than this code has ({current}), so the target "
            "would read its chains behind another one: score it with the code that made it"
        )
    if spec.target is None:
        spec = _with_target_of(run, spec, target_of)
    derived.scored_ids(run, _scorer(spec))
    for model in (spec.target, spec.draft):
        if model is not None:
            check_model(run.path.name, model)
    return without_speculation(spec)


def _with_target_of(run: RunFolder, spec: RunSpec, other: RunFolder | None) -> RunSpec:
    remedy = "name a run whose target shall read its chains: --target-of RUN, e.g. one by the target alone"
    if other is None:
        raise ValueError(f"{run.path.name} has no target: {remedy}")
    theirs = other.spec()
    if theirs.target is None:
        raise ValueError(f"--target-of {other.path.name} has no target either: {remedy}")
    return replace(spec, **{name: getattr(theirs, name) for name in _OF_TARGET})


def _tokenizers(spec: RunSpec, engine: Engine) -> dict[Role, Tokenizer]:
    """Return the tokenizers of target and draft; a draft of the same files has the target's."""
    tokenizers: dict[Role, Tokenizer] = {"target": engine.tokenizer, "draft": engine.tokenizer}
    draft = spec.draft
    if draft is not None and spec.engine.can.runs_models and draft != spec.target:
        revision = None if Path(draft.path).is_dir() else draft.revision
        tokenizers["draft"] = HFTokenizer(draft.path, revision, spec.conventions("draft"))
    return tokenizers
