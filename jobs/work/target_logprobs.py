"""Finished samples scored by the target: the log-probability of each step, one request for each chain."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from harness.chain.chain_scores import ReadChain, StepLikelihood, read_chain, step_likelihoods
from harness.cli.messages import counted
from harness.engine import Engine, RequestRefused, Role, Tokenizer, VerdictUnavailable
from harness.trace import Step
from jobs.run import derived, trace_files
from jobs.run.derived import OtherTarget, Scorer, scorer_of
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from jobs.run.trace_files import FAILED, SampleRow, StepRow

_STEP_FIELDS = ("author", "role", "text", "num_tokens", "token_ids", "finish")
COLUMNS = ["problem_id", *(f"steps.list.element.{name}" for name in _STEP_FIELDS)]
"""What is read of a trace file, beside the sample's id and its stop reason."""
_SAMPLES_PER_FILE = 500
"""Samples between two writes: what is lost where a worker is killed."""


@dataclass(frozen=True, slots=True)
class Scored:
    """What was scored."""

    num_samples: int = 0
    num_steps: int = 0
    num_tokens: int = 0
    num_cut: int = 0
    """Chains that the target's context did not hold to their end."""
    num_refused: int = 0
    """Chains that the engine refused, or gave no finite numbers for; they have rows without numbers."""

    def plus(self, other: Scored) -> Scored:
        """Return the sums of two."""
        return Scored(*(getattr(self, name) + getattr(other, name) for name in Scored.__slots__))

    @property
    def in_words(self) -> str:
        """One line without its end."""
        cut = f"; {counted(self.num_cut, 'chain is', 'chains are')} longer than its context" if self.num_cut else ""
        none = f"; {counted(self.num_refused, 'chain has', 'chains have')} no numbers" if self.num_refused else ""
        steps = counted(self.num_steps, "step")
        return f"{counted(self.num_samples, 'sample')}, {steps}, {counted(self.num_tokens, 'token')}{cut}{none}"


@dataclass(frozen=True)
class Target:
    """The target's engine, with what it needs to read the chains of a run."""

    engine: Engine
    tokenizers: Mapping[Role, Tokenizer]
    """Tokenizers of the target and of every author of a step."""
    scorer: Scorer
    concurrency: int
    """Chains in flight."""


async def score(
    run: RunFolder,
    samples: Iterable[SampleRow],
    target: Target,
    say: Callable[[str], None] = lambda _: None,
) -> Scored:
    """Score samples of a run, given by the columns `COLUMNS`, and write the rows. Raises EngineError."""
    problems, wording = {problem.id: problem for problem in run.problems()}, run.spec().wording
    slots, total, unscored = asyncio.Semaphore(target.concurrency), Scored(), iter(samples)

    async def rows_of(sample: SampleRow) -> tuple[list[Mapping[str, str | int | float | None]], Scored]:
        async with slots:
            steps = [_step(step) for step in sample["steps"]]
            chain = read_chain(problems[sample["problem_id"]], steps, target.tokenizers, wording)
            likelihoods = await _likelihoods(target.engine, chain)
            keys = {"sample_id": sample["sample_id"], "target": target.scorer.fingerprint}
            return _rows(keys, steps, likelihoods), _counted(chain, likelihoods)

    while some := list(islice(unscored, _SAMPLES_PER_FILE)):
        scored = await asyncio.gather(*(rows_of(sample) for sample in some))
        if rows := [row for rows, _ in scored for row in rows]:
            derived.write_logprobs(run, target.scorer, rows)
        for _, one in scored:
            total = total.plus(one)
        say(total.in_words)
    return total


async def score_trace_file(run: RunFolder, path: Path, target: Target) -> Scored:
    """Score the samples of one trace file that are not scored, without those that failed. Raises EngineError."""
    known = derived.scored_ids(run, target.scorer)
    columns = ["sample_id", "stop_reason", *COLUMNS]
    finished = (row for row in trace_files.iterate_rows(path, columns) if row["stop_reason"] not in (None, FAILED))
    return await score(run, (row for row in finished if row["steps"] and row["sample_id"] not in known), target)


async def score_finished(run: RunFolder, spec: RunSpec, engines: Mapping[Role, Engine], journal: Path) -> None:
    """Score what an attempt has finished, over the engines that it still has, where the run asked for it.

    Nothing is done where the run has no target, or was scored by another one, which is said. Raises EngineDied.
    """
    path = run.trace_file_of(journal)
    if spec.target is None or "target" not in engines or not path.exists():
        return
    tokenizers = {role: engine.tokenizer for role, engine in engines.items()}
    target = Target(engines["target"], tokenizers, scorer_of(spec.target, spec), spec.concurrency)
    try:
        await score_trace_file(run, path, target)
    except OtherTarget as error:
        print(error, file=sys.stderr, flush=True)


async def _likelihoods(engine: Engine, chain: ReadChain) -> list[StepLikelihood]:
    try:
        return await step_likelihoods(engine, chain)
    except (RequestRefused, VerdictUnavailable):
        return [StepLikelihood(0, None, None)] * len(chain.generated)


def _rows(
    keys: Mapping[str, str], steps: Sequence[Step], likelihoods: Sequence[StepLikelihood]
) -> list[Mapping[str, str | int | float | None]]:
    return [
        {**keys, "step_index": number, "num_characters": len(step.text), **asdict(own)}
        for number, (step, own) in enumerate(zip(steps, likelihoods, strict=True))
    ]


def _counted(chain: ReadChain, likelihoods: Sequence[StepLikelihood]) -> Scored:
    num_tokens = sum(own.num_tokens for own in likelihoods)
    is_refused = any(own.logprob is None for own in likelihoods)
    is_cut = not is_refused and num_tokens < sum(end - start for start, end in chain.generated)
    return Scored(1, len(likelihoods), num_tokens, int(is_cut), int(is_refused))


def _step(row: StepRow) -> Step:
    return Step(row["author"], row["role"], row["text"], row["num_tokens"], tuple(row["token_ids"]), row["finish"])
