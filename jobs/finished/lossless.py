"""Check that token-level speculation, or a server, is lossless: compare the emitted tokens of two greedy runs.

In exact arithmetic, the tokens are equal (Leviathan et al., arXiv 2211.17192, section 2). In bfloat16, and if batch
shapes change the order of summation, two nearly equal logits may swap ranks, and the texts diverge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.cli.permissions import is_forbidden
from jobs.run.endings import finished_records
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from jobs.run.trace_files import SampleRow

_COLUMNS = ["problem_id", "sample_index", "target_prompt", "steps.list.element.token_ids"]
Key = tuple[str, int]


@dataclass(frozen=True)
class Pair:
    """One sample in both runs."""

    problem_id: str
    sample_index: int
    lengths: tuple[int, int]
    """Number of emitted tokens in each run."""
    first_divergence: int | None
    """Index of the first differing token, or of the first token that only one run has; None if all are equal."""


_DECISIVE: Mapping[str, Callable[[RunSpec], object]] = {
    "dataset_hash": lambda spec: spec.dataset_hash,
    "prompt_hash": lambda spec: spec.prompt_hash,
    "token_budget": lambda spec: spec.token_budget,
    "target_sampling": lambda spec: spec.sampling["target"],
    "target_template": lambda spec: spec.settings["target"].template,
    "target_thinking_tags": lambda spec: spec.settings["target"].thinking_tags,
}
"""Fields that determine the target's greedy tokens, besides the target itself."""


def compare(run: RunFolder, baseline: RunFolder) -> list[Pair]:
    """Compare every sample that both runs finished. Raises ValueError if equal tokens cannot be expected."""
    specs, both = (run.spec(), baseline.spec()), f"{run.path.name} and {baseline.path.name}"
    for folder, spec in zip((run, baseline), specs, strict=True):
        temperature = spec.sampling["target"].get("temperature", spec.temperature)
        if temperature > 0:
            raise ValueError(
                f"{folder.path.name} was sampled at temperature {temperature}, so its outputs vary in any case: "
                "launch both runs with --temperature 0"
            )
    differing = ["target"] if _target(specs[0], specs) != _target(specs[1], specs) else []
    differing += [name for name, of in _DECISIVE.items() if of(specs[0]) != of(specs[1])]
    if differing:
        raise ValueError(f"{both} are not comparable: different {', '.join(differing)}")
    (tokens, prompts), (baseline_tokens, baseline_prompts) = map(_emitted_tokens, (run, baseline))
    other = next((key for key, text in prompts.items() if baseline_prompts.get(key, text) != text), None)
    if other is not None:
        first, second = (spec.prompt_date for spec in specs)
        dates = f"; the chat template inserted the dates {first} and {second}" if first != second else ""
        raise ValueError(f"{both} sent different prompts to the target, e.g. for {other[0]}{dates}")
    return [
        Pair(*key, (len(ids), len(baseline_tokens[key])), first_divergence(ids, baseline_tokens[key]))
        for key, ids in sorted(tokens.items())
        if key in baseline_tokens
    ]


def _target(spec: RunSpec, specs: Sequence[RunSpec]) -> object:
    """Return the identity of a target's weights; if a server runs the target of either run, only the name is known."""
    if spec.target is not None and any(map(has_served_target, specs)):
        return spec.target.name
    target = spec.target
    return target and (target.name, target.path, target.revision, target.fingerprint)


def has_served_target(spec: RunSpec) -> bool:
    """Return whether a server runs the target, so its weights are unknown here."""
    return spec.target is not None and spec.target.server is not None


def first_divergence(first: Sequence[int], second: Sequence[int]) -> int | None:
    """Return the index of the first difference; None if both are equal.

    If one is a prefix of the other, the index is the length of the prefix.
    """
    differing = (index for index, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1])
    return next(differing, None if len(first) == len(second) else min(len(first), len(second)))


def _emitted_tokens(run: RunFolder) -> tuple[dict[Key, list[int]], dict[Key, str]]:
    """Return tokens and target prompts of all finished samples."""
    tokens, prompts = {}, {}
    for row in _finished(run):
        key = row["problem_id"], row["sample_index"]
        tokens[key] = [token for step in row["steps"] for token in step["token_ids"]]
        prompts[key] = row["target_prompt"]
    return tokens, prompts


def _finished(run: RunFolder) -> Iterator[SampleRow]:
    """Return a run's finished samples; for a read-only run, only those in trace files."""
    try:
        return finished_records(run, _COLUMNS)
    except OSError as error:
        if not is_forbidden(error):
            raise
        return finished_records(run, _COLUMNS, writes=False)
