"""Decide whether a run is comparable with a published value, with the reasons where it is not.

The rule: what the paper leaves unstated is a choice of whoever repeats the measurement, and never a reason; what it
states (or its authors' program fixes and the suite holds for stated) and the run does otherwise always is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.problems import benchmarks
from harness.settings.launch_settings import Launch
from harness.training import manifest
from harness.weights import models
from warehouse.papers.differences import Condition, conditions, num_problems, run_columns
from warehouse.papers.suite import Planned, Suite, Unstated
from warehouse.papers.vocabulary import OF_REWARDS, TIMES

__all__ = ["TIMES_ONLY", "aligned_from_another", "choices", "num_problems", "run_columns", "why_not"]

Timed = tuple[int, int, int]
"""How many samples of a run were timed one at a time, were to be timed, and are there."""
_PROGRAM_DRAFT_TOKENS = 1000
"""Longest draft that SCoT's program learns its selection on."""
TIMES_ONLY = "for the times: "
"""Begins a reason that holds against times and ratios of times, not against accuracies and token counts."""


def why_not(
    suite: Suite, plan: Planned, paper: Launch, run: Mapping[str, Any], metric: str, timed: Timed | None = None
) -> list[str]:
    """Return the reasons against a comparison; empty: comparable as far as the paper states its conditions.

    `paper` is the launch of the suite's own flags for the row and column of `plan`, `run` a row of the warehouse's
    table `run` as `warehouse.measures.runs_like` returns it, `metric` a key of the suite's metrics. `timed`: the run's
    times are of samples that were timed one at a time.
    """
    is_time = suite.metrics[metric].measure in TIMES
    reasons = _untimed(timed) if is_time else []
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
    return [*reasons, *_unfinished(run), *_untrained(plan, run), *_other_rewards(suite, metric, run), *unlike]


def choices(
    suite: Suite, plan: Planned, paper: Launch, run: Mapping[str, Any], timed: Timed | None = None
) -> list[str]:
    """Return what was chosen for this run where the paper states nothing, e.g. `drafts 3`.

    What changes times alone is left out where the suite has none.
    """
    has_times = any(metric.measure in TIMES for metric in suite.metrics.values())
    return [
        f"{timed[0]:,} of {timed[2]:,} samples timed, 1 in flight"
        if timed is not None and condition.name == "concurrency"
        else condition.choice
        for condition in conditions(suite, paper, run)
        if _is_open(suite, plan, condition) and (has_times or not condition.times_only)
    ]


def _untimed(timed: Timed | None) -> list[str]:
    """Return the reason where some of the samples that were drawn to be timed are not, or failed."""
    if timed is None or timed[0] == timed[1]:
        return []
    return [f"{TIMES_ONLY}only {timed[0]} of {timed[1]} timing samples are finished"]


def aligned_from_another(folder: str, draft_name: str) -> list[str]:
    """Return the reason why the aligned draft in `folder` is not comparable: its base is not the paper's `draft_name`.

    The list is empty if the base is the paper's draft.
    """
    made = manifest.find(Path(folder))
    if made is None:
        return [f"draft {folder} does not say what it was aligned from"]
    base = str(made.base["path"])
    same = base == models.resolve(draft_name).path_or_hub_id
    return [] if same else [f"draft aligned from {base.rstrip('/').rpartition('/')[2]} instead of {draft_name}"]


def _difference(suite: Suite, plan: Planned, condition: Condition) -> str | None:
    """Return how the run differs in this condition from what the paper states; None: it does not."""
    if condition.name == "draft" and "draft" in _trained(plan):
        return None  # an aligned draft has a name of its own; _untrained judges it
    told = _unstated(suite, plan, condition)
    if told is None:
        return condition.difference
    if told.among and condition.ours not in told.among:
        return condition.difference or f"{condition.choice}, and the paper leaves open only {told.what}"
    return None


def _unstated(suite: Suite, plan: Planned, condition: Condition) -> Unstated | None:
    """Return the statement that the paper leaves this condition open, if it does."""
    told = (t for t in suite.unstated if condition.name in t.covers and t.holds_for(plan.row.label, plan.column))
    return next(told, None)


def _is_open(suite: Suite, plan: Planned, condition: Condition) -> bool:
    """Return whether the paper leaves this condition open and our value is one of those that it leaves."""
    told = _unstated(suite, plan, condition)
    return told is not None and (not told.among or condition.ours in told.among)


def _trained(plan: Planned) -> tuple[str, ...]:
    return (*plan.row.trained, *(["draft"] if plan.row.model_of == "aligned" else []))


def _other_rewards(suite: Suite, metric: str, run: Mapping[str, Any]) -> list[str]:
    """Both papers judge steps with Math-Shepherd (Wang et al. 2023), and every one of them."""
    scorers = run.get("scorers") or []
    if suite.metrics[metric].measure not in OF_REWARDS:
        return []
    if not scorers:
        return ["not scored by a reward model yet"]
    reasons = []
    if not any("shepherd" in name.lower() for name in scorers):
        reasons.append(f"reward model {scorers[0]} instead of Math-Shepherd")
    if unscored := run.get("num_unscored"):
        why = "".join(f" ({reason})" for reason in run["why_unscored"] or ())
        reasons.append(f"{unscored} of {run['num_candidates']} candidates have no score by the reward model{why}")
    return reasons


def _unfinished(run: Mapping[str, Any]) -> list[str]:
    """An unfinished run is no choice: the samples that are missing are the slow ones."""
    total = run["num_problems"] * run["samples"]
    if run.get("decision") is not None and run["num_finished"] < total:
        return [f"stopped by decision after {run['num_finished']} of {total} samples"]
    return [f"only {run['num_finished']} of {total} samples are finished"] if run["num_finished"] < total else []


def _untrained(plan: Planned, run: Mapping[str, Any]) -> list[str]:
    """Return which of the models that the paper had trained this run had not."""
    reasons, trained = [], _trained(plan)
    if "draft" in trained:
        paper_draft = str(plan.flags["draft"])
        if run["draft_name"] == models.resolve(paper_draft).name:
            reasons.append("the draft is not aligned: give SCoT's aligned draft by --draft")
        else:
            reasons += aligned_from_another(str(run["draft_path"]), paper_draft)
            reasons += _other_data("draft aligned", str(run["draft_path"]), 1500)
    if "selector" in trained and not run["selection_fingerprint"]:
        reasons.append("the selector is not tuned: give it by --target.adapter")
    elif "selector" in trained:
        reasons += _other_data("selector tuned", str(run.get("selection_path")), 500)
    return reasons


def _other_data(trained: str, folder: str, num_problems: int) -> list[str]:
    """Return how the data of a training differ from those of SCoT's program, as far as the folder tells."""
    made = manifest.find(Path(folder))
    spec = {} if made is None else made.data.get("run_spec", {})
    if not spec:
        return []
    reasons = []
    if (spec["dataset"], spec["num_problems"]) != (benchmarks.SCOT_PROGRAM, num_problems):
        theirs = "test 500 to 999" + (" and train 0 to 999" if trained == "draft aligned" else "")
        reasons.append(
            f"{trained} on {spec['num_problems']} problems of {spec['dataset']}, not on GSM8K's {theirs} (code)"
        )
    if trained == "selector tuned":
        tokens, offers_cut = spec["params"].get("draft_tokens"), spec["params"].get("offer_cut_drafts", False)
        if tokens != _PROGRAM_DRAFT_TOKENS or not offers_cut or spec["draft"]["training"]:
            how = f"not by the unaligned draft with at most {_PROGRAM_DRAFT_TOKENS:,} tokens, cut ones included (code)"
            reasons.append(f"{trained} on other drafts, {how}")
    return reasons
