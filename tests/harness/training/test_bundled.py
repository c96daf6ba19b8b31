"""The bundled weights do what their card says, asked through transformers."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import models
from harness.training import demo_set
from harness.training.mistakes import Mistakes

torch = pytest.importorskip("torch")

from transformers import LlamaForCausalLM  # noqa: E402

from harness.tokenizer import HFTokenizer  # noqa: E402
from harness.training import results  # noqa: E402


def loaded(name: str) -> tuple[LlamaForCausalLM, HFTokenizer]:
    folder = models.pair_folder(name)
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), HFTokenizer(str(folder))


def test_its_verdicts_tell_right_from_wrong() -> None:
    target, tokenizer = loaded("demo-target")
    said = results.verdicts(target, tokenizer, demo_set.demo()[:12], Mistakes(), seed=1)
    assert said.auroc >= 0.9
    assert said.chosen_right >= 0.7
    assert said.rejected >= 0.7


def test_draft_and_target_share_their_tokens_and_the_target_is_deep() -> None:
    (draft, words), (target, same) = loaded("demo-draft"), loaded("demo-target")
    assert words.fingerprint == same.fingerprint
    assert target.config.num_hidden_layers >= 6 * draft.config.num_hidden_layers


def test_the_card_is_there() -> None:
    card = (Path(models.pair_folder("demo-target")).parent / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "Toy models" in card
    assert "$" not in card, "every figure is filled in"
