"""Score finished samples with the target: the log-probability of each step, with one request per chain."""

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
from jobs.run.derived import OtherTarget, scorer_of
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from jobs.run.trace_files import FAILED, SampleRow

_STEP_FIELDS = ("author", "role", "text", "num_tokens", "token_ids", "finish")
COLUMNS = ["problem_id", *(f"steps.list.element.{name}" for name in _STEP_FIELDS)]
"""Columns read from a trace file, in addition to sample id and stop reason."""
_SAMPLES_PER_FILE = 500
"""Samples between two writes: the maximum loss if a worker is killed."""


@dataclass
class Scored:
    """Counts of scored samples, steps and tokens, and of chains that could not be scored completely."""

    num_samples: int = 0
    num_steps: int = 0
    num_tokens: int = 0
    num_cut: int = 0
    """Chains truncated by the target's context."""
    num_refused: int = 0
    """Chains rejected by the engine or without finite values; they have rows with null values."""

    def add(self, chain: ReadChain, likelihoods: Sequence[StepLikelihood]) -> None:
        """Count a chain with the log-probabilities of its steps."""
        num_tokens = sum(own.num_tokens for own in likelihoods)
        is_refused = any(own.logprob is None for own in likelihoods)
        self.num_samples += 1
        self.num_steps += len(likelihoods)
        self.num_tokens += num_tokens
        self.num_refused += is_refused
        self.num_cut += not is_refused and num_tokens < sum(end - start for start, end in chain.generated)

    @property
    def in_words(self) -> str:
        """The counts in one line, without a final period."""
        cut = f"; {counted(self.num_cut, 'chain')} longer than the target's context" if self.num_cut else ""
        none = f"; {counted(self.num_refused, 'chain')} without log-probabilities" if self.num_refused else ""
        steps = counted(self.num_steps, "step")
        return f"{counted(self.num_samples, 'sample')}, {steps}, {counted(self.num_tokens, 'token')}{cut}{none}"


async def score(
    run: RunFolder,
    samples: Iterable[SampleRow],
    spec: RunSpec,
    engine: Engine,
    tokenizers: Mapping[Role, Tokenizer],
    say: Callable[[str], None] = lambda _: None,
) -> Scored:
    """Score samples of a run, given by the columns `COLUMNS`, and write the rows. Raises EngineError.

    `spec`: defines the target (run by `engine`) and the concurrency. `tokenizers`: those of the target and of every
    model that wrote a step.
    """
    assert spec.target is not None
    problems, wording, scorer = {p.id: p for p in run.problems()}, run.spec().wording, scorer_of(spec.target, spec)
    slots, total, unscored = asyncio.Semaphore(spec.concurrency), Scored(), iter(samples)

    async def rows_of(sample: SampleRow) -> list[Mapping[str, str | int | float | None]]:
        async with slots:
            steps = [
                Step(row["author"], row["role"], row["text"], row["num_tokens"], tuple(row["token_ids"]), row["finish"])
                for row in sample["steps"]
            ]
            chain = read_chain(problems[sample["problem_id"]], steps, tokenizers, wording)
            try:
                likelihoods = await step_likelihoods(engine, chain)
            except (RequestRefused, VerdictUnavailable):
                likelihoods = [StepLikelihood(0, None, None)] * len(chain.generated)
            total.add(chain, likelihoods)
            keys = {"sample_id": sample["sample_id"], "target": scorer.fingerprint}
            return [
                {**keys, "step_index": number, "num_characters": len(step.text), **asdict(own)}
                for number, (step, own) in enumerate(zip(steps, likelihoods, strict=True))
            ]

    while some := list(islice(unscored, _SAMPLES_PER_FILE)):
        if rows := [row for rows in await asyncio.gather(*map(rows_of, some)) for row in rows]:
            derived.write_logprobs(run, scorer, rows)
        say(total.in_words)
    return total


async def score_finished(run: RunFolder, spec: RunSpec, engines: Mapping[Role, Engine], journal: Path) -> None:
    """Score the finished samples of an attempt with its open engines.

    Does nothing if the attempt has no target or no trace file; prints a message if the run was scored by another
    target. Raises EngineDied.
    """
    path = run.trace_file_of(journal)
    if spec.target is None or "target" not in engines or not path.exists():
        return
    try:
        known = derived.scored_ids(run, scorer_of(spec.target, spec))
    except OtherTarget as error:
        print(error, file=sys.stderr, flush=True)
        return
    finished = trace_files.iterate_rows(path, ["sample_id", "stop_reason", *COLUMNS])
    unscored = (row for row in finished if row["steps"] and row["sample_id"] not in known)
    ended = (row for row in unscored if row["stop_reason"] not in (None, FAILED))
    await score(run, ended, spec, engines["target"], {role: engine.tokenizer for role, engine in engines.items()})
