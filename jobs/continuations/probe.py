"""Probes: what accepted and refused drafts of a run were worth, found by continuing its chains from decided steps.

A stratified random sample of the decided steps is drawn, with weights. A point is a step of a finished sample for which
the draft proposed something that was accepted or refused. The target continues it twice: behind the draft's proposal,
and from where the proposal began, so that the step there is its own.

A probe is a run of its own (see `continuation`): the target alone, on two problems for each point. The target is the
same in all probes of a suite, so that those with the same settings of it follow each other in one engine.
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
"""Flags of a run that its probe has, too."""
Stratum = tuple[bool, int]
"""Whether the draft was accepted, and which third of the chain the step lies in, from 0."""
_Count = Annotated[int, Field(ge=1, strict=True)]


class NothingToProbe(ValueError):
    """The run has no decision that a probe could look at; the message is one line."""


class ProbeSettings(BaseModel):
    """How runs are probed: the table `[probe]` of a suite's file, whose runs are probed once they are finished."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    points: Annotated[int, Field(ge=2, strict=True)] = 200
    """Decisions of each run to look at."""
    rollouts: _Count = 8
    """Continuations of each point, behind the draft's proposal and behind the target's own step."""
    seed: Annotated[int, Field(strict=True)] = 0
    """Seed from which the points are drawn and their continuations are sampled."""
    concurrency: _Count = 64
    """Continuations in flight per worker."""


@dataclass(frozen=True)
class Point:
    """One decision about a proposal of the draft."""

    sample_id: str
    problem_id: str
    step_index: int
    candidate_index: int
    """The accepted candidate, or one of the refused ones, each as likely as the others."""
    num_steps: int
    """Steps of the whole chain."""
    kind: str
    """What decided: `choice` and `score` are verdicts; any other word is the method's own (harness.trace.Decision)."""
    value: float | None
    """The number that was decided by; of a choice the probability that some candidate is accepted."""
    accepts_below: bool
    accepted: bool
    before: str
    """The chain before the step."""
    draft: str
    """The draft's proposal."""
    weight: float = 1.0
    """How many decisions of the run the point stands for: the inverse of its probability of being drawn."""

    @property
    def stratum(self) -> Stratum:
        """The stratum that it was drawn from."""
        return self.accepted, _third(self.step_index, self.num_steps)


@dataclass(frozen=True)
class Population:
    """How many decisions a run has, and how many of them cannot be probed."""

    strata: Mapping[Stratum, int]
    num_ending: int
    """Decisions about proposals that end the reply: nothing follows them that could be continued."""


def draw(run: RunFolder, num_points: int, seed: int, *, writes: bool = True) -> tuple[list[Point], Population]:
    """Return a random sample of the run's decisions, half of them refusals where there are as many.

    Within accepted and refused drafts, each third of the chain has its share of the points. The same run, number and
    seed give the same points. `writes` as in `finished_records`. Raises NothingToProbe.
    """
    places, num_ending = _places(run, writes=writes)
    strata = {stratum: len(keys) for stratum, keys in places.items()}
    if not strata:
        raise NothingToProbe(_reason(run, num_ending))
    sizes = _sizes(strata, num_points)
    drawn = {
        key
        for stratum, keys in places.items()
        for key in random.Random(f"{seed}/{stratum}").sample(sorted(keys), sizes[stratum])
    }
    points = [
        _point(sample, step_index, step, seed)
        for sample in finished_records(run, _COLUMNS, writes=False)
        for step_index, step in _decided(sample)
        if (sample["sample_id"], step_index) in drawn
    ]
    points = [replace(point, weight=strata[point.stratum] / sizes[point.stratum]) for point in points]
    return sorted(points, key=lambda point: (point.sample_id, point.step_index)), Population(strata, num_ending)


def problems_of(points: Iterable[Point], problems: Mapping[str, Problem], dataset: str) -> list[Problem]:
    """Return two problems for each point, in its order: behind the draft's proposal, and from where that began."""
    made = []
    for number, point in enumerate(points):
        problem = problems[point.problem_id]
        beginnings = {"draft": point.before + point.draft, "own": point.before}
        made += [
            replace(problem, id=f"{dataset}/{number}-{arm}", dataset=dataset, beginning=beginning)
            for arm, beginning in beginnings.items()
        ]
    return made


def _places(run: RunFolder, *, writes: bool) -> tuple[dict[Stratum, list[tuple[str, int]]], int]:
    """Return sample and step of each decision by stratum, and how many others end the reply."""
    places: dict[Stratum, list[tuple[str, int]]] = defaultdict(list)
    num_ending = 0
    for sample in finished_records(run, _COLUMNS, writes=writes):
        for step_index, step in _decided(sample):
            if _ends_reply(step):
                num_ending += 1
            else:
                stratum = _is_accepted(step), _third(step_index, len(sample["steps"]))
                places[stratum].append((sample["sample_id"], step_index))
    return places, num_ending


def _point(sample: SampleRow, step_index: int, step: StepRow, seed: int) -> Point:
    accepted, candidates = _is_accepted(step), step["candidates"]
    if accepted:
        candidate, text = _accepted_candidate(step), step["text"]
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
    )


def _decided(sample: SampleRow) -> Iterator[tuple[int, StepRow]]:
    for step_index, step in enumerate(sample["steps"]):
        if step["candidates"] and (step["verdicts"] or step.get("decision") is not None):
            yield step_index, step


def _decided_by(step: StepRow) -> tuple[str, float | None, bool]:
    """Return the kind of a decision, its number, and whether low numbers are accepted."""
    decision = step.get("decision")
    if decision is not None:
        return decision["kind"], decision["value"], bool(decision["accepts_below"])
    verdict = step["verdicts"][-1]  # a step that was decided has one of the two
    if verdict["kind"] != "choice":
        return verdict["kind"], verdict["score"], False
    return "choice", 1.0 - normalized(verdict["logprobs"])[-1], False  # the last option refuses all candidates


def _is_accepted(step: StepRow) -> bool:
    made = step.get("decision") or step["verdicts"][-1]
    return bool(made["accepted"])


def _accepted_candidate(step: StepRow) -> int:
    return next((number for number, one in enumerate(step["candidates"]) if one["accepted"]), 0)


def _ends_reply(step: StepRow) -> bool:
    if _is_accepted(step):
        return bool(step["finish"] == _ENDS_REPLY)
    return all(candidate["finish"] == _ENDS_REPLY for candidate in step["candidates"])


def _third(step_index: int, num_steps: int) -> int:
    return _THIRDS * step_index // max(num_steps, 1)


def _sizes(strata: Mapping[Stratum, int], num_points: int) -> dict[Stratum, int]:
    """Return how many points each stratum has; one at least, and no more than it has decisions."""
    totals = {accepted: sum(n for stratum, n in strata.items() if stratum[0] is accepted) for accepted in (True, False)}
    refused = min(totals[False], max(num_points // 2, num_points - totals[True]))
    wanted = {False: refused, True: min(totals[True], num_points - refused)}
    return {
        stratum: min(count, max(1, round(wanted[stratum[0]] * count / totals[stratum[0]])))
        for stratum, count in strata.items()
    }


def _reason(run: RunFolder, num_ending: int) -> str:
    if num_ending:
        return f"{run.path.name} decided only about proposals that end the reply ({counted(num_ending, 'decision')})"
    if run.journals():
        return f"{run.path.name} has no finished sample in its trace files yet: {typed('jobs finalize')} writes them"
    return (
        f"{run.path.name} has no decision about a proposal of the draft in its finished samples; valid: runs of "
        "methods that accept and refuse drafts, such as speccot and specreason"
    )


def plan(source: RunFolder, flags: Flags, *, settings: ProbeSettings, is_preview: bool = False) -> PreparedLaunch:
    """Draw the points and prepare the run that continues the chains, which is not written.

    Journals of the probed run are compacted, unless `is_preview`: then nothing is written at all.

    `flags`: where it runs, as flags of a launch. Raises ValueError (NothingToProbe is one) and what a launch raises.
    """
    points, population = draw(source, settings.points, settings.seed, writes=not is_preview)
    problems = problems_of(points, {p.id: p for p in source.problems()}, continuation.dataset_of(source, "probe"))
    kept = {*trace_files.PROBE_POINTS.names}
    rows = [
        {
            **{name: value for name, value in vars(point).items() if name in kept},
            "draft_problem_id": problems[2 * number].id,
            "own_problem_id": problems[2 * number + 1].id,
            "source_run_id": source.path.name,
            "num_ending": population.num_ending,
        }
        for number, point in enumerate(points)
    ]
    continued = Continuation(source, "probe_points", "target", problems, rows, {}, {"seed": settings.seed})
    where = {**flags, "samples": settings.rollouts, "concurrency": settings.concurrency}
    return continuation.prepare(continued, where, _notices(source, points, population))


def rounds(
    launches: Sequence[PreparedLaunch], settings: ProbeSettings | None, console: Console
) -> Iterator[list[PreparedLaunch]]:
    """Yield the probes of a suite that asks for them, in one round; started again, they go on.

    Where its runs are not finished yet, it says how to go on. A run without a decision to look at is named and left
    out. Raises what planning a probe raises.
    """
    if settings is None:
        return
    chosen = _probed(launches)
    if any(num_unfinished(prepared.run) for prepared in chosen):
        console.print("Its runs are probed once they are finished: run the same command again then.", soft_wrap=True)
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
    """Say what the probes of these launches look at."""
    looks = f"{settings.points} decisions, continued {settings.rollouts} times each way by the target alone"
    return f"Then a probe of {counted(len(_probed(launches)), 'run')}: {looks}."


def _probed(launches: Sequence[PreparedLaunch]) -> list[PreparedLaunch]:
    """Return the launches whose runs are probed: of methods with both models, each once.

    Of runs that differ in their number of samples in flight, and in how many problems and samples they have, that is
    the first: a table `[latency]` adds the others.
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
        f"PROBE of {source.path.name}: {counted(len(points), 'point')} drawn from {counted(total, 'decision')}, "
        f"{len(points) - refused} where the draft was accepted and {refused} where it was refused."
    ]
    if number := population.num_ending:
        lines.append(f"{counted(number, 'decision')} about the end of the reply cannot be continued and are left out.")
    if unfinished := num_unfinished(source):
        lines.append(f"UNFINISHED: {counted(unfinished, 'sample')} of {source.path.name} cannot be drawn from.")
    return lines
