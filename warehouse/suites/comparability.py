"""Decide whether a run is comparable with a published value, with the reasons if it is not.

Each condition of a run is compared with the suite's, by its name in `published.CONDITIONS`. A difference from a
condition that the paper states is a reason. Conditions that the paper does not state may be chosen freely, among the
possible values if the suite lists them. Conditions fixed by the authors' code count as stated unless the suite lists
them as not stated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness import prompts
from harness.engine import Role
from harness.engines import placement
from harness.engines.speculation import draft_sampling, proposer, proposing_roles, tokens_at_a_time
from harness.methods import build, speed_only_parameters
from harness.problems import benchmarks
from harness.settings.launch_settings import Launch
from harness.training.tuning import find_manifest
from harness.weights import adapter, models
from warehouse.database import Record
from warehouse.sql.model_columns import column_of
from warehouse.suites.measured import SHARED_COLUMNS
from warehouse.suites.published import Planned, Suite, Unstated, num_problems

Timed = tuple[int, int, int]
"""Numbers of a run's samples: timed one at a time, planned for timing, and all."""
_PAIR: tuple[Role, ...] = ("draft", "target")
_NAMES = {role: column_of(role, "model") for role in _PAIR}
"""Columns with model names."""
_PROGRAM_DRAFT_TOKENS = 1000
"""Maximum draft length in the training of SCoT's selector, as in the authors' code."""
TIMES_ONLY = "for the times: "
"""Prefix of reasons that affect only times and ratios of times, not accuracies and token counts."""


def why_not(
    suite: Suite, plan: Planned, paper: Launch, run: Record, metric: str, timed: Timed | None = None
) -> list[str]:
    """Return the reasons against a comparison. Empty: comparable as far as the paper states its conditions.

    `paper`: launch with only the suite's flags for the row and column of `plan`. `run`: row of the table `run`, as
    returned by `measured.runs_like`. `metric`: key in the suite's metrics. `timed`: set if the run's times come from
    samples timed one at a time.
    """
    is_time = suite.metrics[metric].registered.is_of_times
    reasons = []
    if is_time and timed is not None and timed[0] < timed[1]:
        reasons.append(f"{TIMES_ONLY}only {timed[0]} of {timed[1]} timing samples are finished")
    for condition in conditions(suite, paper, run):
        if timed is not None and condition.name == "concurrency":
            continue
        difference = _difference(suite, plan, condition)
        if difference is not None and (is_time or not condition.times_only):
            reasons.append((TIMES_ONLY if condition.times_only else "") + difference)
    unlike = [
        told.why
        for told in suite.unlike
        if told.holds_for(plan.row.label, plan.column) and (not told.metrics or metric in told.metrics)
    ]
    total = run["num_problems"] * run["samples"]
    if run["num_finished"] < total:  # always a reason: the missing samples are the slow ones
        reasons.append(f"only {run['num_finished']} of {total} samples are finished")
    rewards = _other_rewards(run) if suite.metrics[metric].needs_rewards else []
    return [*reasons, *_untrained(plan, run), *rewards, *unlike]


def choices(suite: Suite, plan: Planned, paper: Launch, run: Record, timed: Timed | None = None) -> list[str]:
    """Return our choices for conditions that the paper does not state, e.g. `drafts 3`.

    Conditions that change only times are left out if the suite has no times.
    """
    return [
        f"{timed[0]:,} of {timed[2]:,} samples timed with 1 in flight"
        if timed is not None and condition.name == "concurrency"
        else condition.choice
        for condition in conditions(suite, paper, run)
        if _is_open(suite, plan, condition) and (suite.times or not condition.times_only)
    ]


def aligned_from_another(folder: str, draft_name: str) -> list[str]:
    """Return why the aligned draft in `folder` is not comparable; empty if its base is the paper's `draft_name`."""
    made = find_manifest(Path(folder))
    if made is None:
        return [f"draft {folder} does not state its base model"]
    base = str(made.base["path"])
    same = base == models.resolve(draft_name).path_or_hub_id
    return [] if same else [f"draft aligned from {base.rstrip('/').rpartition('/')[2]} instead of {draft_name}"]


def _difference(suite: Suite, plan: Planned, condition: Condition) -> str | None:
    """Return how the run differs in this condition from the paper's statement, or None."""
    if condition.name == "draft" and "draft" in _trained(plan):
        return None  # aligned drafts have other names; _untrained checks them
    if _is_open(suite, plan, condition):
        return None
    told = _unstated(suite, plan, condition)
    left_open = f"{condition.choice}, but the paper leaves only {told.what} unspecified" if told else None
    return condition.difference or left_open


def _unstated(suite: Suite, plan: Planned, condition: Condition) -> Unstated | None:
    """Return the suite's entry that marks this condition as not stated by the paper, if any."""
    told = (t for t in suite.unstated if condition.name in t.covers and t.holds_for(plan.row.label, plan.column))
    return next(told, None)


def _is_open(suite: Suite, plan: Planned, condition: Condition) -> bool:
    """Return whether the paper does not state this condition and our value is among the possible values."""
    told = _unstated(suite, plan, condition)
    return told is not None and (not told.among or condition.ours in told.among)


def _trained(plan: Planned) -> tuple[str, ...]:
    return (*plan.row.trained, *(["draft"] if plan.row.model_of == "aligned" else []))


def _other_rewards(run: Record) -> list[str]:
    """Return how the step scores differ from those in the papers, which score every step with Math-Shepherd."""
    scorers = run.get("scorers") or []
    if not scorers:
        return ["no reward-model scores yet"]
    reasons = []
    if not any("shepherd" in name.lower() for name in scorers):
        reasons.append(f"reward model {scorers[0]} instead of Math-Shepherd")
    if unscored := run.get("num_unscored"):
        why = "".join(f" ({reason})" for reason in run["why_unscored"] or ())
        reasons.append(f"{unscored} of {run['num_candidates']} candidates have no reward-model score{why}")
    return reasons


def _untrained(plan: Planned, run: Record) -> list[str]:
    """Return how the run's models differ from those that the paper trained for this row."""
    reasons, trained = [], _trained(plan)
    if "draft" in trained:
        paper_draft = str(plan.flags["draft"])
        if run["draft_name"] == models.resolve(paper_draft).name:
            reasons.append("the draft is not aligned: pass SCoT's aligned draft with --draft")
        else:
            reasons += aligned_from_another(str(run["draft_path"]), paper_draft)
            reasons += _other_data("draft aligned", str(run["draft_path"]), 1500)
    if "selector" in trained and not run["selection_fingerprint"]:
        reasons.append("the selector is not fine-tuned: pass an adapter with --target.adapter")
    elif "selector" in trained:
        reasons += _other_data("selector tuned", str(run.get("selection_path")), 500)
    return reasons


def _other_data(trained: str, folder: str, num_problems: int) -> list[str]:
    """Return how a model's training data differ from those of SCoT's code, as far as its folder records them."""
    made = find_manifest(Path(folder))
    spec = {} if made is None else made.data.get("run_spec", {})
    if not spec:
        return []
    reasons = []
    if (spec["dataset"], spec["num_problems"]) != (benchmarks.SCOT_PROGRAM, num_problems):
        theirs = "test 500 to 999" + (" and train 0 to 999" if trained == "draft aligned" else "")
        reasons.append(
            f"{trained} on {spec['num_problems']} problems of {spec['dataset']} instead of GSM8K {theirs} (code)"
        )
    if trained == "selector tuned":
        tokens, offers_cut = spec["params"].get("draft_tokens"), spec["params"].get("offer_cut_drafts", False)
        if tokens != _PROGRAM_DRAFT_TOKENS or not offers_cut or spec["draft"]["training"]:
            how = (
                f"instead of drafts of up to {_PROGRAM_DRAFT_TOKENS:,} tokens by the unaligned draft, truncated or not "
                "(code)"
            )
            reasons.append(f"{trained} on other drafts {how}")
    return reasons


_Value = str | float | None
"""Type of a condition's value."""
_WORDS = {
    "problems": "{} problems",
    "samples": "{} samples per problem",
    "concurrency": "{} in flight",
    "devices": "{}",
    "top-p": "top-p {}",
}
"""Formats of values that are not printed after the condition's name."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A run's condition compared with the suite's."""

    name: str
    ours: _Value
    difference: str | None
    """Description of the difference. None: no difference."""
    times_only: bool = False
    """Whether it affects only times and ratios of times, not accuracies and token counts."""

    @property
    def choice(self) -> str:
        """Short description of our value."""
        return _told(self.name, self.ours)


def _told(name: str, value: _Value) -> str:
    return _WORDS.get(name, f"{name.replace('-', ' ')} {{}}").format(value)


def _compared(name: str, ours: _Value, theirs: _Value, *, times_only: bool = False) -> Condition:
    words = f"{_told(name, ours)} instead of {theirs}" if ours != theirs else None
    return Condition(name, ours, words, times_only)


def run_columns(launch: Launch) -> Record:
    """Return the main settings of a launch by column of the table `run`; without numbers of problems and samples."""
    proposing = proposer(launch.method, launch.spec_decode)
    roles = {*build(launch.method, dict(launch.parameters)).roles, *proposing_roles(proposing, launch.spec_model)}
    names = {
        column: models.resolve(name).name if role in roles and (name := launch.models[role]) else None
        for role, column in _NAMES.items()
    }
    adapter_path = launch.target.adapter and adapter.read(launch.target.adapter).path
    return {
        **{name: getattr(launch, name) for name in (*SHARED_COLUMNS, "seed")},
        "params": dict(launch.parameters),
        **names,
        "engine_spec_decode": proposing,
        "engine_spec_sampling": draft_sampling(proposing, launch.spec_sampling),
        "speculator_name": models.resolve(launch.spec_model).name if launch.spec_model else None,
        "engine_take_turns": launch.take_turns,
        "prompts": prompts.load(launch.prompts).stored if launch.prompts else None,
        "selection_fingerprint": adapter_path and adapter.fingerprint(Path(adapter_path)),
    }


def conditions(suite: Suite, paper: Launch, run: Record) -> list[Condition]:
    """Return every condition of a run, compared with `paper`, the launch with only the suite's flags.

    `run`: row of the table `run`, as returned by `measured.runs_like`.
    """
    of_paper, speed_only = run_columns(paper), speed_only_parameters(paper.method)
    return [
        *(_compared(role, run[name] or "none", of_paper[name] or "none") for role, name in _NAMES.items()),
        *(
            _compared(name.replace("_", "-"), run["params"][name], theirs, times_only=name in speed_only)
            for name, theirs in paper.parameters.items()
        ),
        *(
            _compared(name.replace("_", "-"), run[name], of_paper[name])
            for name in ("temperature", "top_p", "token_budget")
        ),
        _prompts(suite, paper, run),
        *_speculation(paper, run),
        *_size(paper, run),
        *_machine(suite, paper, run),
    ]


def _prompts(suite: Suite, paper: Launch, run: Record) -> Condition:
    """Compare a run's prompts with the published wording, for the parts that the method uses."""
    wording = prompts.of_stored(run["prompts"])
    ours = "from a file" if wording.changes else "built in"
    published = prompts.published().get(suite.paper)
    if published is None:
        return Condition("prompts", ours, "wording not published by the paper")
    kind = benchmarks.DATASETS[paper.dataset].kind or "math"
    pieces = ", ".join(prompts.unlike(wording, suite.paper, paper.method, kind))
    difference = f"different wording ({pieces}; the paper's: {published.source})" if pieces else None
    return Condition("prompts", ours, difference)


def _speculation(paper: Launch, run: Record) -> Iterator[Condition]:
    """Compare token-level speculation, which does not change the output's distribution (Leviathan et al. 2023)."""
    ours, theirs = run["engine_spec_decode"], proposer(paper.method, paper.spec_decode)
    yield _compared("spec-decode", ours or "none", theirs or "none", times_only=True)
    if ours and theirs:
        tokens = tokens_at_a_time(theirs, paper.spec_tokens)
        yield _compared("spec-tokens", run["engine_spec_tokens"], tokens, times_only=True)
        of_paper = run_columns(paper)
        for name, column in (("spec-sampling", "engine_spec_sampling"), ("spec-model", "speculator_name")):
            if run[column] != of_paper[column]:
                yield _compared(name, run[column] or "none", of_paper[column] or "none", times_only=True)


def _size(paper: Launch, run: Record) -> Iterator[Condition]:
    ours, theirs, whole = run["num_problems"], num_problems(paper), run["dataset_size"]
    difference = f"{ours} of {theirs} problems" if ours != theirs else None
    if ours == theirs and paper.limit is not None and run["first_problems"] is False:
        difference = f"{ours} problems other than the first {theirs}"
    yield Condition("problems", f"limited to {ours} of {whole}" if ours < whole else f"all {whole}", difference)
    yield _compared("samples", run["samples"], paper.samples)


def _machine(suite: Suite, paper: Launch, run: Record) -> Iterator[Condition]:
    devices, engine = run["devices"] or "an unknown device", run["engine_kind"]
    other = None if _same_devices(suite, paper, run) else f"on {devices} instead of {suite.devices}"
    yield Condition("devices", devices, other, times_only=True)
    other = None if engine in suite.engine.lower() else f"{engine} instead of {suite.engine}"
    yield Condition("engine", engine, other, times_only=True)
    yield _compared("concurrency", run["concurrency"], paper.concurrency, times_only=True)
    for role in _roles(run):
        if (theirs := paper.roles[role].tensor_parallel) is not None:
            ours = run[column_of(role, "tensor_parallel")]
            yield _compared(f"{role}-tensor-parallel", ours, theirs, times_only=True)
    if len(_roles(run)) > 1:
        cards = {role: paper.roles[role].gpus for role in _roles(run)}
        yield _compared("placement", _placed(_cards(run)), _placed(cards), times_only=True)


def _roles(run: Record) -> list[Role]:
    return [role for role in _PAIR if run[_NAMES[role]]]


def _cards(run: Record) -> dict[Role, tuple[int, ...] | None]:
    texts = {role: run[column_of(role, "gpus")] for role in _roles(run)}
    return {role: placement.parse(text) if text else None for role, text in texts.items()}


def _placed(cards: placement.Placement) -> str:
    return "on the same GPUs" if placement.shares_a_card("draft", cards) else "each on its own GPUs"


def _same_devices(suite: Suite, paper: Launch, run: Record) -> bool:
    """Return whether every worker had at least the paper's GPUs (number and type) and used no more than that number."""
    words = re.findall(r"[AH]\d{2,4}[\w-]*", suite.devices)[0].lower().split("-")
    count = int(paper.sbatch.get("gpus-per-node", 1))
    widths = {role: int(run[f"engine_{role}_tensor_parallel"]) for role in _roles(run)}
    used = placement.num_cards(_cards(run), widths)
    workers = [worker.partition(" × ") for worker in str(run["devices"] or "").split(", ")]
    return used <= count and all(
        number.isdigit() and int(number) >= count and all(word in device.lower() for word in words)
        for number, _, device in workers
    )
