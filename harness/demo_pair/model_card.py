"""The pair's model card."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Any

from harness.demo_pair import evaluation, reward_evaluation
from harness.demo_pair.config import Config

_TEMPLATE = Path(__file__).parent / "MODEL_CARD.template.md"


def write_card(folder: Path, config: Config, results: dict[str, Any]) -> None:
    """Write MODEL_CARD.md from the configuration and the content of results.json."""
    rows = []
    for role in ("draft", "target"):
        for split, title in (("checked", f"{config.checked} held-out problems"), ("demo", "the demo's 40")):
            shares = evaluation.as_percentages(evaluation.Accuracy(**results[role][split]))
            rows.append(f"| {role} | {title} | {shares['greedy']} | {shares['sampled']} |")
    verdicts = evaluation.as_percentages(evaluation.VerdictQuality(**results["verdicts"]))
    judged = dict(results["reward"])
    reward_parameters, reward_layers = judged.pop("parameters"), judged.pop("layers")
    rewards = reward_evaluation.as_texts(reward_evaluation.RewardQuality(**judged))
    target, reward = config.target, config.reward
    text = Template(_TEMPLATE.read_text("utf-8")).substitute(
        accuracy="\n".join(rows),
        seed=config.seed,
        stories=config.stories,
        checked=config.checked,
        draft_parameters=f"{results['draft']['parameters'] / 1e6:.2f}",
        target_parameters=f"{results['target']['parameters'] / 1e6:.2f}",
        draft_layers=config.draft.layers,
        target_layers=target.layers,
        solver_layers=target.solver_layers,
        working_layers=target.solver_layers + target.judge_layers,
        draft_tokens=f"{target.solve.tokens / 1e6:g} + {config.draft.alone.tokens / 1e6:g}",
        target_tokens=" + ".join(f"{s.tokens / 1e6:g}" for s in (target.solve, target.judge, target.refine)),
        reward_parameters=f"{reward_parameters / 1e6:.2f}",
        reward_layers=reward_layers,
        reward_problems=min(reward_evaluation.PROBLEMS, config.checked),
        reward_solver_layers=", ".join(map(str, reward.solver)),
        reward_judge_layers=", ".join(map(str, reward.judges)),
        reward_tokens=f"{reward.judge.tokens / 1e6:g}",
        **verdicts,
        **{f"reward_{name}": text for name, text in rewards.items()},
    )
    (folder / "MODEL_CARD.md").write_text(text, "utf-8")
