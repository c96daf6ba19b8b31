"""Engines of the acceptance on given cards: what a GPU is loaded with, and what fits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.acceptance import session as sessions
from harness.acceptance import sizes
from harness.acceptance.outcome import CheckFailed, NotApplicable
from harness.acceptance.plan import Plan, PlannedModel, Sizes
from harness.acceptance.session import PAIR, PLAIN, REAL, Session
from harness.sizing.cards import Card, known_card
from harness.sizing.model_files import shape_of
from harness.weights import models

TOKENIZER = models.pair_folder("demo-target")
DEMO = {name: PlannedModel(name, str(models.pair_folder(name)), None) for name in models.PAIR}


def session_on(work: Path, monkeypatch: pytest.MonkeyPatch, cards: list[Card]) -> Session:
    monkeypatch.setattr(sessions, "cards_here", lambda: cards)
    plan = Plan("vllm", "gpu", DEMO["demo-draft"], DEMO["demo-target"], True, Sizes(), str(work))
    return Session(plan, lambda: None, lambda text: None)


def cards_of(type_name: str) -> list[Card]:
    card = known_card(type_name)
    assert card is not None
    return [card]


@pytest.mark.parametrize(
    ("card", "expected"), [("H100", "1.5B 8B"), ("A100-40", "1.5B 8B"), ("L4", "0.5B 3B"), ("T4", "0.5B 3B")]
)
def test_a_pair_of_real_size_leaves_room_for_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card: str, expected: str
) -> None:
    opened = session_on(tmp_path, monkeypatch, cards_of(card)).prepared(REAL)
    assert " ".join(opened.models[role].name.split()[0] for role in ("draft", "target")) == expected
    assert opened.plan is not None
    assert opened.plan.num_samples >= 64
    assert sum(own.memory_fraction for own in opened.settings.values()) <= 1
    assert {own.load_format for own in opened.settings.values()} == {"dummy"}


@pytest.mark.parametrize(
    ("figures", "parameters"), [(sizes.REAL_PAIRS[0][1], 6.98e9), (sizes.REAL_PAIRS[0][0], 1.31e9)]
)
def test_random_weights_have_the_sizes_of_real_ones(tmp_path: Path, figures: sizes.Figures, parameters: float) -> None:
    """Without the embeddings, which are small with the bundled vocabulary."""
    model = sizes.write_model(tmp_path / "model", figures, TOKENIZER)
    known = shape_of(model.name, model.path, None)
    assert known is not None
    assert known.shape.weights_unknown is None
    names = {path.name for path in Path(model.path).iterdir()}
    assert {"config.json", "tokenizer.json"} <= names
    assert not [name for name in names if name.endswith(".safetensors")]
    config = json.loads((Path(model.path) / "config.json").read_bytes())
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    assert config["hidden_size"] == config["head_dim"] * heads
    per_layer = config["hidden_size"] * config["head_dim"] * 2 * (heads + groups)
    per_layer += 3 * config["hidden_size"] * config["intermediate_size"]
    assert per_layer * config["num_hidden_layers"] == pytest.approx(parameters, rel=0.01)


def test_the_bundled_pair_is_started_with_the_calculated_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = session_on(tmp_path, monkeypatch, cards_of("H100")).prepared(PAIR)
    assert opened.plan is not None
    assert {role: own.memory_fraction for role, own in opened.settings.items()} == {
        role: engine.share for role, engine in opened.plan.engines.items()
    }


def test_engines_whose_log_probabilities_are_compared_are_asked_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_on(tmp_path, monkeypatch, cards_of("H100"))
    for name in (PLAIN, "ngram", "draft"):
        assert session.prepared(name).settings["target"].mean_logprobs


def test_engines_that_cannot_fit_are_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_on(tmp_path, monkeypatch, [Card("small", 1 << 30)])
    with pytest.raises(CheckFailed):
        session.prepared(PAIR)
    for name in (REAL, PLAIN, "ngram", "draft"):
        with pytest.raises(NotApplicable):
            session.prepared(name)
