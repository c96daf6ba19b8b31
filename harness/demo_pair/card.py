"""The pair's model card."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Any

from harness.demo_pair import results
from harness.demo_pair.config import Config

_TEMPLATE = Path(__file__).parent / "MODEL_CARD.template.md"


def write_card(folder: Path, config: Config, found: dict[str, Any]) -> None:
    """MODEL_CARD.md, of the configuration and the results."""
    rows = []
    for role in ("draft", "target"):
        told = found[role]
        for where, named in (("checked", f"{config.checked} held-out problems"), ("demo", "the demo's 40")):
            shares = results.as_percentages(results.Accuracy(**told[where]))
            rows.append(f"| {role} | {named} | {shares['greedy']} | {shares['sampled']} |")
    said = results.as_percentages(results.Verdicts(**found["verdicts"]))
    target = config.target
    text = Template(_TEMPLATE.read_text("utf-8")).substitute(
        accuracy="\n".join(rows),
        seed=config.seed,
        stories=config.stories,
        checked=config.checked,
        draft_parameters=f"{found['draft']['parameters'] / 1e6:.2f}",
        target_parameters=f"{found['target']['parameters'] / 1e6:.2f}",
        draft_layers=config.draft.layers,
        target_layers=target.layers,
        solver_layers=target.solver_layers,
        working_layers=target.solver_layers + target.judge_layers,
        draft_tokens=f"{target.solve.tokens / 1e6:g} + {config.draft.alone.tokens / 1e6:g}",
        target_tokens=" + ".join(f"{s.tokens / 1e6:g}" for s in (target.solve, target.judge, target.refine)),
        **said,
    )
    (folder / "MODEL_CARD.md").write_text(text, "utf-8")
