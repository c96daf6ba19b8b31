"""The decided steps of a run that a probe looks at: a stratified random sample of them, with its weights.

A point is a step of a finished sample for which the draft proposed something that was accepted or refused. The target
continues it twice: behind the draft's proposal, and from where the proposal began, so that the step there is its own.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from harness.cli.program import typed
from harness.engine import normalized
from harness.plural import counted
from harness.problems.problem import Problem
from jobs.run.folder import RunFolder
from jobs.run.state import finished_records
from jobs.run.trace_files import SampleRow, StepRow

_COLUMNS = ("problem_id", "steps")
_THIRDS = 3
_ENDS_REPLY = "eos"
Stratum = tuple[bool, int]
"""Whether the draft was accepted, and which third of the chain the step lies in, from 0."""


class NothingToProbe(ValueError):
    """The run has no decision that a probe could look at; the message is one line."""


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
        if step["candidates"] and (step["verdict"] is not None or step.get("decision") is not None):
            yield step_index, step


def _decided_by(step: StepRow) -> tuple[str, float | None, bool]:
    """Return the kind of a decision, its number, and whether low numbers are accepted."""
    decision, verdict = step.get("decision"), step["verdict"]
    if decision is not None:
        return decision["kind"], decision["value"], bool(decision["accepts_below"])
    assert verdict is not None  # a step that was decided has one of the two
    if verdict["kind"] == "score":
        return "score", verdict["score"], False
    return "choice", 1.0 - normalized(verdict["logprobs"])[-1], False  # the last option refuses all candidates


def _is_accepted(step: StepRow) -> bool:
    decision = step.get("decision")
    made = step["verdict"] if decision is None else decision
    return made is not None and made["accepted"]


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
