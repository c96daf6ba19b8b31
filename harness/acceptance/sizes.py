"""Widths and memory shares of the engines on this machine's cards, and a pair of real size with random weights.

To fill cards as real models do, without network, the check of real sizes opens models with
the figures of real ones, the bundled tokenizer and random weights.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.acceptance.plan import PlannedModel
from harness.engine import Role
from harness.sizing.cards import Card
from harness.sizing.plan import DoesNotFit, NotPlannable, Plan
from harness.sizing.run_sizing import ModelFiles, RunSizing, planned

_ENOUGH_SAMPLES = 64
"""Samples at the full budget for which a pair of real size has to leave room."""


@dataclass(frozen=True)
class Figures:
    """The sizes of a known model."""

    name: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    intermediate_size: int


_HALF, _SMALL = Figures("0.5B", 896, 24, 14, 2, 4864), Figures("1.5B", 1536, 28, 12, 2, 8960)
_MEDIUM, _LARGE = Figures("3B", 2048, 36, 16, 2, 11008), Figures("8B", 4096, 32, 32, 8, 14336)
REAL_PAIRS: Sequence[tuple[Figures, Figures]] = ((_SMALL, _LARGE), (_HALF, _MEDIUM), (_HALF, _SMALL))
"""Draft and target, the largest pair first: figures of Qwen2.5 (0.5B, 1.5B, 3B) and Llama 3.1 (8B)."""


def sizing(
    models: Mapping[Role, PlannedModel],
    context: int,
    concurrency: int,
    candidates: int,
    *,
    dtype: str = "auto",
    speculator: PlannedModel | None = None,
    speculative_tokens: int = 0,
) -> RunSizing:
    """Return what the engines of these models have to hold."""
    return RunSizing(
        models={role: _files(model) for role, model in models.items()},
        context_tokens=context,
        sample_tokens=dict.fromkeys(models, context),
        concurrency=concurrency,
        candidates=candidates,
        dtype=dtype,
        speculator=_files(speculator) if speculator else None,
        speculative_tokens=speculative_tokens,
    )


def plan_for(cards: Sequence[Card], wanted: RunSizing) -> Plan | None:
    """Return the plan for these cards; None where nothing is known of a model or of the cards. Raises DoesNotFit."""
    if not cards:
        return None
    try:
        return planned(wanted, cards)
    except NotPlannable:
        return None


def real_pair(
    folder: Path, tokenizer: Path, cards: Sequence[Card], context: int, concurrency: int, candidates: int
) -> dict[Role, PlannedModel]:
    """Write the configurations of the largest pair that leaves room for samples on these cards.

    `tokenizer` is a model folder whose tokenizer both get. Raises DoesNotFit.
    """
    for draft, target in REAL_PAIRS:
        pair: dict[Role, PlannedModel] = {
            "draft": write_model(folder / "draft", draft, tokenizer),
            "target": write_model(folder / "target", target, tokenizer),
        }
        try:
            plan = plan_for(cards, sizing(pair, context, concurrency, candidates))
        except DoesNotFit:
            continue
        if plan is None or plan.num_samples >= _ENOUGH_SAMPLES:
            return pair
    raise DoesNotFit("not even models of 0.5B and 1.5B parameters leave room on the visible cards")


def write_model(folder: Path, figures: Figures, tokenizer: Path) -> PlannedModel:
    """Write a model folder without weights: a tokenizer's files, and a configuration with these figures."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in tokenizer.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, folder / path.name)
    config = json.loads((tokenizer / "config.json").read_bytes())
    config |= {name: value for name, value in vars(figures).items() if name != "name"}
    config |= {"head_dim": figures.hidden_size // figures.num_attention_heads, "tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return PlannedModel(f"{figures.name} with random weights", str(folder), None)


def _files(model: PlannedModel) -> ModelFiles:
    return ModelFiles(model.name, model.path, model.revision)
