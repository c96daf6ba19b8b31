"""Probes: the value of a run's accepted and rejected drafts, measured by continuing its chains from sampled steps.

Points are a weighted, stratified random sample of the decided steps: steps of finished samples with a draft proposal
that was accepted or rejected. The target continues each point equally often from two places: after the draft's
proposal, and before it, where the target writes the step itself.

A probe is a separate run (see `continuation`): the target alone, on two problems per point. Probes of a suite that have
equal target settings run consecutively on one engine.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console

from harness.cli.messages import counted
from harness.cli.program import typed
from harness.engine import normalized
from harness.methods import build
from harness.problems.problem import Problem
from harness.settings.declaration import Flags
from jobs.continuations import continuation
from jobs.continuations.continuation import Continuation
from jobs.preparation import PreparedLaunch
from jobs.run import trace_files
from jobs.run.endings import finished_records, num_unfinished
from jobs.run.folder import RunFolder
from jobs.run.trace_files import SampleRow, StepRow

_COLUMNS = ("problem_id", "steps")
_THIRDS = 3
_ENDS_REPLY = "eos"
_WHERE = (
    "output", "cluster", "profile", "slurm", "shards", "shards_per_task", "workers_per_task",
    "accept_code_change",
)  # fmt: skip
"""Flags of a run that also apply to its probe."""
Stratum = tuple[bool, int]
"""Whether the draft was accepted, and the third of the chain that contains the step, numbered from 0."""
_Count = Annotated[int, Field(ge=1, strict=True)]


class NothingToProbe(ValueError):
    """The run has no decision that can be probed; the message is one line."""


class ProbeSettings(BaseModel):
    """Probe settings: the table `[probe]` of a suite file, whose runs are probed when they are finished."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    points: Annotated[int, Field(ge=2, strict=True)] = 200
    """Number of decisions to sample per run."""
    rollouts: _Count = 8
    """Number of continuations after the draft's proposal at each point; as many again start before the proposal."""
    seed: Annotated[int, Field(strict=True)] = 0
    """Seed for sampling points and continuations."""
    concurrency: _Count = 64
    """Continuations in flight per worker."""


@dataclass(frozen=True)
class Point:
    """One decision about a draft proposal."""

    sample_id: str
    problem_id: str
    step_index: int
    candidate_index: int
    """Index of the accepted candidate, or of a random rejected one."""
    num_steps: int
    """Number of steps in the whole chain."""
    kind: str
    """`choice` or `score` if a verdict decided; other kinds are method-specific (harness.trace.Decision)."""
    value: float | None
    """The value that determined the decision; for a choice, the probability that any candidate is accepted."""
    accepts_below: bool
    accepted: bool
    before: str
    """The chain before the step."""
    draft: str
    """The draft's proposal."""
    weight: float
    """Number of the run's decisions represented by the point: the inverse of its sampling probability."""

    @property
    def stratum(self) -> Stratum:
        """Stratum from which the point was sampled."""
        return self.accepted, _third(self.step_index, self.num_steps)


@dataclass(frozen=True)
class Population:
    """Counts of a run's decisions that can be probed, by stratum, and of those that cannot."""

    strata: Mapping[Stratum, int]
    num_ending: int
    """Number of decisions on proposals that end the reply, so nothing can follow them."""


def draw(run: RunFolder, num_points: int, seed: int, *, writes: bool = True) -> tuple[list[Point], Population]:
    """Return a random sample of the run's decisions, half of them rejections if there are enough, and the population.

    Among accepted drafts and among rejected ones, each third of the chain is represented proportionally. The same run,
    number and seed give the same points. `writes`: see `finished_records`. Raises NothingToProbe.
    """
    places, num_ending = _places(run, writes=writes)
    strata = {stratum: len(keys) for stratum, keys in places.items()}
    if not strata:
        raise NothingToProbe(_reason(run, num_ending))
    sizes = _sizes(strata, num_points)
    weights = {
        key: strata[stratum] / sizes[stratum]
        for stratum, keys in places.items()
        for key in random.Random(f"{seed}/{stratum}").sample(sorted(keys), sizes[stratum])
    }
    points = [
        _point(sample, step_index, step, seed, weight)
        for sample in finished_records(run, _COLUMNS, writes=False)
        for step_index, step in _decided(sample)
        if (weight := weights.get((sample["sample_id"], step_index)))
    ]
    return sorted(points, key=lambda point: (point.sample_id, point.step_index)), Population(strata, num_ending)


def problems_of(points: Iterable[Point], problems: Mapping[str, Problem], dataset: str) -> list[Problem]:
    """Return two problems per point, in order: one continues after the draft's proposal, the other before it."""
    return [
        replace(problems[point.problem_id], id=f"{dataset}/{number}-{arm}", dataset=dataset, beginning=beginning)
        for number, point in enumerate(points)
        for arm, beginning in (("draft", point.before + point.draft), ("own", point.before))
    ]


def _places(run: RunFolder, *, writes: bool) -> tuple[dict[Stratum, list[tuple[str, int]]], int]:
    """Return sample and step of each decision that can be probed, by stratum, and the number of those that cannot."""
    places: dict[Stratum, list[tuple[str, int]]] = defaultdict(list)
    num_ending = 0
    for sample in finished_records(run, _COLUMNS, writes=writes):
        for step_index, step in _decided(sample):
            accepted = _is_accepted(step)
            if all(offer["finish"] == _ENDS_REPLY for offer in ([step] if accepted else step["candidates"])):
                num_ending += 1
            else:
                stratum = accepted, _third(step_index, len(sample["steps"]))
                places[stratum].append((sample["sample_id"], step_index))
    return places, num_ending


def _point(sample: SampleRow, step_index: int, step: StepRow, seed: int, weight: float) -> Point:
    accepted, candidates = _is_accepted(step), step["candidates"]
    if accepted:
        candidate = next((number for number, one in enumerate(candidates) if one["accepted"]), 0)
        text = step["text"]
    else:
        offered = [number for number, one in enumerate(candidates) if one["finish"] != _ENDS_REPLY]
        candidate = random.Random(f"{seed}/{sample['sample_id']}/{step_index}").choice(offered)
        text = candidates[candidate]["text"]
    kind, value, accepts_below = _decided_by(step)
    return Point(
        sample_id=sample["sample_id"],
        problem_id=sample["problem_id"],
        step_index=step_index,
        candidate_index=candidate,
        num_steps=len(sample["steps"]),
        kind=kind,
        value=value,
        accepts_below=accepts_below,
        accepted=accepted,
        before="".join(before["text"] for before in sample["steps"][:step_index]),
        draft=text,
        weight=weight,
    )


def _decided(sample: SampleRow) -> Iterator[tuple[int, StepRow]]:
    for step_index, step in enumerate(sample["steps"]):
        if step["candidates"] and (step["verdicts"] or step.get("decision") is not None):
            yield step_index, step


def _decided_by(step: StepRow) -> tuple[str, float | None, bool]:
    """Return the kind of a decision, its value, and whether low values are accepted."""
    decision = step.get("decision")
    if decision is not None:
        return decision["kind"], decision["value"], bool(decision["accepts_below"])
    verdict = step["verdicts"][-1]  # a decided step has a decision or a verdict
    if verdict["kind"] != "choice":
        return verdict["kind"], verdict["score"], False
    return "choice", 1.0 - normalized(verdict["logprobs"])[-1], False  # the last option rejects all candidates


def _is_accepted(step: StepRow) -> bool:
    made = step.get("decision") or step["verdicts"][-1]
    return bool(made["accepted"])


def _third(step_index: int, num_steps: int) -> int:
    return _THIRDS * step_index // num_steps


def _sizes(strata: Mapping[Stratum, int], num_points: int) -> dict[Stratum, int]:
    """Return the number of points per stratum, at least one and at most the stratum's number of decisions."""
    totals = {accepted: sum(n for stratum, n in strata.items() if stratum[0] is accepted) for accepted in (True, False)}
    refused = min(totals[False], max(num_points // 2, num_points - totals[True]))
    wanted = {False: refused, True: min(totals[True], num_points - refused)}
    return {
        stratum: min(count, max(1, round(wanted[stratum[0]] * count / totals[stratum[0]])))
        for stratum, count in strata.items()
    }


def _reason(run: RunFolder, num_ending: int) -> str:
    if num_ending:
        return (
            f"{run.path.name} has no decision from which a probe can continue: the proposals end the reply "
            f"({counted(num_ending, 'decision')})"
        )
    if run.journals():
        return f"{run.path.name} has no finished samples in trace files yet; run {typed('jobs finalize')} to write them"
    return (
        f"{run.path.name} has no decision about a draft proposal in its finished samples; valid: runs of methods that "
        "accept and reject drafts, e.g. speccot and specreason"
    )


def plan(source: RunFolder, flags: Flags, *, settings: ProbeSettings, is_preview: bool = False) -> PreparedLaunch:
    """Sample the points and prepare the run that continues the chains, without writing it.

    Journals of the probed run are compacted, unless `is_preview`. `flags`: launch flags, e.g. the location. Raises
    ValueError (including NothingToProbe) and the errors of a launch.
    """
    points, population = draw(source, settings.points, settings.seed, writes=not is_preview)
    problems = problems_of(points, {p.id: p for p in source.problems()}, continuation.dataset_of(source, "probe"))
    rows = [
        {
            **{name: value for name, value in vars(point).items() if name in trace_files.PROBE_POINTS.names},
            "draft_problem_id": behind.id,
            "own_problem_id": own.id,
            "source_run_id": source.path.name,
            "num_ending": population.num_ending,
        }
        for point, behind, own in zip(points, problems[::2], problems[1::2], strict=True)
    ]
    continued = Continuation(source, "probe_points", "target", problems, rows, {}, {"seed": settings.seed})
    where = {**flags, "samples": settings.rollouts, "concurrency": settings.concurrency}
    return continuation.prepare(continued, where, _notices(source, points, population))


def rounds(
    launches: Sequence[PreparedLaunch], settings: ProbeSettings | None, console: Console
) -> Iterator[list[PreparedLaunch]]:
    """Yield the probes of a suite, if configured, in one round; another call resumes them.

    If runs are unfinished, print how to continue. Runs without a decision to probe are reported and skipped. Raises the
    errors of planning a probe.
    """
    if settings is None:
        return
    chosen = _probed(launches)
    if any(num_unfinished(prepared.run) for prepared in chosen):
        console.print("To probe the runs, run the same command again when they are finished.", soft_wrap=True)
        return
    planned = []
    for prepared in chosen:
        asked = prepared.launch
        flags = {**{name: getattr(asked, name) for name in _WHERE}, **asked.sbatch}
        try:
            planned.append(plan(prepared.run, flags, settings=settings))
        except NothingToProbe as reason:
            console.print(f"Not probed: {reason}", style="bold yellow", markup=False, soft_wrap=True)
    yield planned


def in_words(launches: Sequence[PreparedLaunch], settings: ProbeSettings) -> str:
    """Describe the probes of these launches."""
    runs, times = counted(len(_probed(launches)), "run is", "runs are"), counted(settings.rollouts, "time")
    return (
        f"Then {runs} probed: up to about {settings.points} decisions per run, each continued by the target alone "
        f"{times} with and {times} without the draft's proposal."
    )


def _probed(launches: Sequence[PreparedLaunch]) -> list[PreparedLaunch]:
    """Return the launches to probe, without duplicates: those whose method uses both models.

    If runs differ only in concurrency or in the number of problems and samples, e.g. those added by `[latency]`, only
    the first is probed.
    """
    size = ("concurrency", "limit", "problems", "samples", "latency_sample", "target_logprobs")
    found: dict[str, PreparedLaunch] = {}
    for prepared in launches:
        if {"draft", "target"} <= set(build(prepared.launch.method, dict(prepared.launch.parameters)).roles):
            setting = repr({name: value for name, value in vars(prepared.launch).items() if name not in size})
            found.setdefault(setting, prepared)
    return list(found.values())


def _notices(source: RunFolder, points: Sequence[Point], population: Population) -> list[str]:
    total, refused = sum(population.strata.values()), sum(not point.accepted for point in points)
    lines = [
        f"PROBE of {source.path.name}: {counted(len(points), 'point')} sampled from {counted(total, 'decision')}, "
        f"{len(points) - refused} with an accepted draft and {refused} with a rejected draft."
    ]
    if number := population.num_ending:
        lines.append(f"Excluded: {counted(number, 'decision')} on proposals that end the reply, so nothing can follow.")
    if unfinished := num_unfinished(source):
        lines.append(f"UNFINISHED: {counted(unfinished, 'sample')} of {source.path.name} cannot be probed yet.")
    return lines
