"""The pair's model card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from tools.demo_pair import evaluation, reward_evaluation
from tools.demo_pair.config import Config
from tools.demo_pair.stories import LEVELS

_TEMPLATE = Path(__file__).parent / "MODEL_CARD.template.md"


def write_card(folder: Path, config: Config, results: dict[str, Any]) -> None:
    """Write MODEL_CARD.md from the configuration and the content of results.json."""
    verdicts = results["verdicts"]
    texts = _training(config) | _reward(config, results)
    texts |= evaluation.as_percentages(evaluation.VerdictQuality(**verdicts))
    texts |= {
        "accuracy": _accuracy(config, results),
        "methods": _methods(results),
        "by_count": _by_count(results),
        "counted": str(results["counted"]),
        "judged": str(results["judged"]),
        "right_digits": " | ".join(map(_percent, verdicts["right_digits"].values())),
        "own_digits": " | ".join(map(_percent, verdicts["own_digits"].values())),
        "draft_parameters": f"{results['draft']['parameters'] / 1e6:.2f}",
        "target_parameters": f"{results['target']['parameters'] / 1e6:.2f}",
    }
    (folder / "MODEL_CARD.md").write_text(Template(_TEMPLATE.read_text("utf-8")).substitute(texts), "utf-8")


def _training(config: Config) -> dict[str, str]:
    target, former, alone = config.target, config.former, config.draft.alone
    stages = [stage for stage in (target.solve, target.judge, target.refine) if stage]
    solved = f"{target.solve.tokens / 1e6:g} + " if former is None and target.solve else ""
    origin = "random weights"
    if former is not None:
        origin = (
            f"the weights of commit `{former.commit[:12]}`\n(`harness/data/models`; SHA-256 of the draft's "
            f"`{former.draft[:12]}…`, of the target's `{former.target[:12]}…`)"
        )
    return {
        "seed": str(config.seed),
        "origin": origin,
        "in_addition": "" if former is None else ", in addition to the former weights'",
        "stories": str(config.stories),
        "checked": str(config.checked),
        "temperatures": ", ".join(f"{temperature:g}" for temperature in config.mistakes.temperatures),
        "valued_mistakes": str(config.rollouts.mistakes),
        "rollouts": str(config.rollouts.samples),
        "rollout_temperature": f"{config.rollouts.temperature:g}",
        "draft_layers": str(config.draft.layers),
        "target_layers": str(target.layers),
        "solver_layers": str(target.solver_layers),
        "working_layers": str(target.solver_layers + target.judge_layers),
        "draft_tokens": f"{solved}{alone.tokens / 1e6:g} million" if alone else "none",
        "target_tokens": " + ".join(f"{s.tokens / 1e6:g}" for s in stages),
    }


def _reward(config: Config, results: dict[str, Any]) -> dict[str, str]:
    judged = dict(results["reward"])
    parameters, layers = judged.pop("parameters"), judged.pop("layers")
    figures = reward_evaluation.as_texts(reward_evaluation.RewardQuality(**judged))
    return {
        "reward_parameters": f"{parameters / 1e6:.2f}",
        "reward_layers": str(layers),
        "reward_problems": str(min(reward_evaluation.PROBLEMS, config.checked)),
        "reward_solver_layers": ", ".join(map(str, config.reward.solver)),
        "reward_judge_layers": ", ".join(map(str, config.reward.judges)),
        "reward_tokens": f"{config.reward.judge.tokens / 1e6:g}",
        **{f"reward_{name}": text for name, text in figures.items()},
    }


def _accuracy(config: Config, results: dict[str, Any]) -> str:
    rows = []
    for role in ("draft", "target"):
        for split, title in (("checked", f"{config.checked} held-out problems"), ("demo", "the demo's 40")):
            figures = results[role][split]
            greedy, sampled = (
                f"{_percent(figures[name])} | {_levels(figures[f'{name}_by_level'])}" for name in ("greedy", "sampled")
            )
            rows.append(f"| {role} | {title} | {greedy} | {sampled} |")
    return "\n".join(rows)


def _methods(results: dict[str, Any]) -> str:
    return "\n".join(
        f"| {one['method']} | {_percent(one['solved'])} "
        f"| {100 * one['difference']:+.1f} ± {100 * one['margin']:.1f} points "
        f"| {_percent(one['draft_share'])} | {_percent(one['fallback'])} | {_levels(one['fallback_by_level'])} |"
        for one in results["methods"]
    )


def _by_count(results: dict[str, Any]) -> str:
    names = ("chosen", "rejected", "separately_chosen", "separately_rejected")
    return "\n".join(
        f"| {one['count']}{', behind guidance' * one['is_guided']} | "
        + " | ".join(_percent(one[name]) for name in names)
        + " |"
        for one in results["verdicts_by_count"]
    )


def _levels(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{100 * shares[level]:.0f}" for level in LEVELS if level in shares) + " %"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
