"""Every condition of a run beside the one that a suite has, with the words that say where they differ.

The conditions have the names of `vocabulary.CONDITIONS`, so that a suite can say which of them its paper
leaves open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import prompt_file, published_prompts
from harness.engine import Role
from harness.engines import placement, speculation
from harness.engines.speculation import draft_sampling, proposer, proposing_roles, tokens_at_a_time
from harness.launch_options import Launch
from harness.methods import build, defaults, speed_only_parameters
from harness.problems import benchmarks
from harness.weights import adapter, models
from warehouse.papers.suite import Suite

_CHOICES = {
    "problems": "{} problems",
    "samples": "{} samples a problem",
    "concurrency": "{} in flight",
    "devices": "{}",
}
"""The words of a choice, where the name of the condition before its value would not be enough."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a run and of the suite's launch."""

    name: str
    ours: object
    theirs: object
    """What the suite's flags say: the paper's value, or the choice of ours where the paper states none."""
    difference: str | None
    """What is different, in words; None: nothing."""
    times_only: bool = False
    """Whether it changes only times and ratios of times, not accuracies and token counts."""

    @property
    def choice(self) -> str:
        """Our value in a few words."""
        return _CHOICES.get(self.name, f"{_in_words(self.name)} {{}}").format(self.ours)


def run_columns(launch: Launch) -> dict[str, Any]:
    """Return what a run of this launch has in the warehouse's table `run`, except for its size."""
    proposing = proposer(launch.method, launch.spec_decode)
    roles = {*build(launch.method, dict(launch.parameters)).roles, *proposing_roles(proposing, launch.spec_model)}
    names = {
        f"{role}_name": models.resolve(name).name if role in roles and name else None
        for role, name in (("draft", launch.draft), ("target", launch.target))
    }
    adapter_path = launch.selection_adapter and adapter.read(launch.selection_adapter).path
    return {
        "method": launch.method,
        "dataset": launch.dataset,
        "params": dict(launch.parameters),
        "temperature": launch.temperature,
        "top_p": launch.top_p,
        "token_budget": launch.token_budget,
        "concurrency": launch.concurrency,
        "seed": launch.seed,
        **names,
        "engine_spec_decode": proposing,
        "engine_spec_sampling": draft_sampling(proposing, launch.spec_sampling),
        "speculator_name": speculation.resolve(launch.spec_model).name if launch.spec_model else None,
        "engine_take_turns": launch.take_turns,
        "prompts": prompt_file.load(launch.prompts).stored if launch.prompts else None,
        "selection_fingerprint": adapter_path and adapter.fingerprint(Path(adapter_path)),
    }


def num_problems(launch: Launch) -> int:
    """Return how many problems the launch runs."""
    count = benchmarks.DATASETS[launch.dataset].count
    return min(count, launch.limit or count)


def conditions(suite: Suite, paper: Launch, run: Mapping[str, Any]) -> list[Condition]:
    """Return every condition of a run beside that of the suite's own launch `paper`.

    `run` is a row of the warehouse's table `run` with its `devices`, `num_finished` and `first_problems`.
    """
    return [
        *_models(paper, run),
        *_parameters(paper, run),
        *_sampling(paper, run),
        _prompts(suite, paper, run),
        *_speculation(paper, run),
        *_size(paper, run),
        *_machine(suite, paper, run),
    ]


def _models(paper: Launch, run: Mapping[str, Any]) -> Iterator[Condition]:
    columns = run_columns(paper)
    for role in ("draft", "target"):
        yield _compared(role, run[f"{role}_name"] or "none", columns[f"{role}_name"] or "none")


def _parameters(paper: Launch, run: Mapping[str, Any]) -> Iterator[Condition]:
    """A run of an older version lacks the parameters that were added since; its method did what their defaults do."""
    speed_only = speed_only_parameters(paper.method)
    ours = {**defaults(paper.method), **run["params"]}
    for name, theirs in paper.parameters.items():
        yield _compared(name.replace("_", "-"), ours[name], theirs, times_only=name in speed_only)


def _sampling(paper: Launch, run: Mapping[str, Any]) -> Iterator[Condition]:
    for name, theirs in (
        ("temperature", paper.temperature),
        ("top-p", paper.top_p),
        ("token-budget", paper.token_budget),
    ):
        yield _compared(name, run[name.replace("-", "_")], theirs)


def _prompts(suite: Suite, paper: Launch, run: Mapping[str, Any]) -> Condition:
    """The wording of a run of ours beside the published one; only the pieces that the method uses count."""
    wording = prompt_file.of_stored(run["prompts"])
    ours = "of a file" if wording.changes else "of this harness"
    published = published_prompts.published().get(suite.paper)
    if published is None:
        return Condition("prompts", ours, "unpublished", "own wording (the paper publishes none)")
    kind = benchmarks.DATASETS[paper.dataset].kind
    pieces = ", ".join(published_prompts.unlike(wording, suite.paper, paper.method, kind))
    difference = f"own wording ({pieces}; the paper's: {published.source})" if pieces else None
    return Condition("prompts", ours, published.source, difference)


def _speculation(paper: Launch, run: Mapping[str, Any]) -> Iterator[Condition]:
    """Token-level speculation leaves the distribution of the texts as it is (Leviathan et al. 2023), so only times."""
    ours, theirs = run["engine_spec_decode"], proposer(paper.method, paper.spec_decode)
    yield _compared("spec-decode", ours or "none", theirs or "none", times_only=True)
    if ours and theirs:
        tokens = tokens_at_a_time(proposer(paper.method, paper.spec_decode), paper.spec_tokens)
        yield _compared("spec-tokens", run["engine_spec_tokens"], tokens, times_only=True)
    columns = {"spec-sampling": "engine_spec_sampling", "spec-model": "speculator_name"}
    of_paper = run_columns(paper)
    for name, column in columns.items():
        if ours and theirs and run[column] != of_paper[column]:
            yield _compared(name, run[column] or "none", of_paper[column] or "none", times_only=True)


def _size(paper: Launch, run: Mapping[str, Any]) -> Iterator[Condition]:
    ours, theirs = run["num_problems"], num_problems(paper)
    difference = f"{ours} of {theirs} problems" if ours != theirs else None
    if ours == theirs and paper.limit is not None and run["first_problems"] is False:
        difference = f"{ours} problems that are not the first {theirs}"
    whole = run["dataset_size"]
    yield Condition("problems", f"limited to {ours} of {whole}" if ours < whole else f"all {whole}", theirs, difference)
    yield Condition(
        "samples",
        run["samples"],
        paper.samples,
        f"{run['samples']} samples a problem instead of {paper.samples}" if run["samples"] != paper.samples else None,
    )


def _machine(suite: Suite, paper: Launch, run: Mapping[str, Any]) -> Iterator[Condition]:
    devices = run["devices"] or "an unknown device"
    alike = _same_devices(suite, paper, run)
    yield Condition(
        "devices",
        devices,
        suite.devices,
        None if alike else f"on {devices} instead of {suite.devices}",
        times_only=True,
    )
    yield Condition(
        "engine",
        run["engine_kind"],
        suite.engine,
        None if run["engine_kind"] in suite.engine.lower() else f"{run['engine_kind']} instead of {suite.engine}",
        times_only=True,
    )
    in_flight = f"{run['concurrency']} samples in flight instead of {paper.concurrency}"
    yield Condition(
        "concurrency",
        run["concurrency"],
        paper.concurrency,
        in_flight if run["concurrency"] != paper.concurrency else None,
        times_only=True,
    )
    for role, theirs in (("draft", paper.draft_tensor_parallel), ("target", paper.target_tensor_parallel)):
        if run[f"{role}_name"] and theirs is not None:
            yield _compared(f"{role}-tensor-parallel", run[f"engine_{role}_tensor_parallel"], theirs, times_only=True)
    if len(_roles(run)) > 1:
        named = {"engine_draft_gpus": paper.draft_gpus, "engine_target_gpus": paper.target_gpus}
        yield _compared("placement", _placed({**run}), _placed({**run, **named}), times_only=True)


def _roles(run: Mapping[str, Any]) -> list[Role]:
    roles: tuple[Role, ...] = ("draft", "target")
    return [role for role in roles if run[f"{role}_name"]]


def _cards(run: Mapping[str, Any]) -> dict[Role, tuple[int, ...] | None]:
    texts = {role: run[f"engine_{role}_gpus"] for role in _roles(run)}
    return {role: placement.parse(text) if text else None for role, text in texts.items()}


def _placed(run: Mapping[str, Any]) -> str:
    """Return in words whether the engines of a run share GPUs."""
    cards = _cards(run)
    return "on the same GPUs" if placement.shares_a_card("draft", cards) else "each on its own GPUs"


def _same_devices(suite: Suite, paper: Launch, run: Mapping[str, Any]) -> bool:
    """Return whether every worker had the paper's kind of GPU, at least as many of them, and used no more."""
    words = re.findall(r"[AH]\d{2,4}[\w-]*", suite.devices)[0].lower().split("-")
    count = int(paper.sbatch.get("gpus-per-node", 1))
    widths = {role: int(run[f"engine_{role}_tensor_parallel"]) for role in _roles(run)}
    used = placement.num_cards(_cards(run), widths)
    workers = [worker.partition(" × ") for worker in str(run["devices"] or "").split(", ")]
    return used <= count and all(
        number.isdigit() and int(number) >= count and all(word in device.lower() for word in words)
        for number, _, device in workers
    )


def _compared(name: str, ours: object, theirs: object, *, times_only: bool = False) -> Condition:
    words = f"{_in_words(name)} {ours} instead of {theirs}" if ours != theirs else None
    return Condition(name, ours, theirs, words, times_only)


def _in_words(name: str) -> str:
    return name if name == "top-p" else name.replace("-", " ")
