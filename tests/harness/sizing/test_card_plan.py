"""The choice of widths and shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from harness.engine import Role
from harness.sizing.card_plan import (
    BLOCK_TOKENS,
    Demand,
    DoesNotFit,
    ModelFiles,
    NotPlannable,
    Plan,
    RunSizing,
    choose,
    lacking,
    largest,
    small_models,
)
from harness.sizing.memory import GIB, Card, card, parse_cards
from harness.weights.models import pair_folder
from tests.harness.sizing.shapes import LLAMA_3_8B, QWEN3_1_7B, QWEN3_8B, QWQ_32B, R1_1_5B, R1_7B, demand

CONFIGS = (R1_1_5B, R1_7B, QWQ_32B, QWEN3_1_7B, QWEN3_8B, LLAMA_3_8B)
PAIR = (demand("draft", R1_1_5B, num_logits=320), demand("target", QWQ_32B))

SIZES = st.integers(min_value=16, max_value=192)
ENGINES = st.lists(st.sampled_from(CONFIGS), min_size=1, max_size=3)
TOKENS = st.integers(min_value=600, max_value=40_000)


def demands(configs: list[dict[str, Any]], tokens: int) -> list[Demand]:
    return [
        demand(f"engine{i}", config, context_tokens=tokens, sample_tokens=tokens + 100 * i, num_samples=10**9)
        for i, config in enumerate(configs)
    ]


def fits(cards: Sequence[Card], wanted: Sequence[Demand]) -> Plan | None:
    """Return the plan; None where the engines do not fit."""
    best = largest(cards, wanted)
    return None if best is None or lacking(wanted, best) else best


@given(gib=SIZES, count=st.integers(1, 8), used=st.integers(0, 8), configs=ENGINES, tokens=TOKENS)
def test_what_is_planned_never_exceeds_a_card(
    gib: int, count: int, used: int, configs: list[dict[str, Any]], tokens: int
) -> None:
    plan = fits([card("card", gib * GIB, used * GIB)] * count, demands(configs, tokens))
    assume(plan is not None)
    assert plan is not None
    for position, one in enumerate(plan.cards):
        engines = [engine for engine in plan.engines.values() if position in engine.cards]
        assert sum(e.share * one.total_bytes + e.memory.outside for e in engines) <= one.usable_bytes
        assert sum(e.share for e in engines) < 1


@given(gib=SIZES, count=st.integers(1, 9), configs=ENGINES, tokens=TOKENS)
def test_widths_divide_heads_and_caches_on_one_card_hold_equally_many_tokens(
    gib: int, count: int, configs: list[dict[str, Any]], tokens: int
) -> None:
    wanted = demands(configs, tokens)
    plan = fits([card("card", gib * GIB)] * count, wanted)
    assume(plan is not None)
    assert plan is not None
    for one in wanted:
        engine = plan.engines[one.name]
        assert one.shape.heads % engine.width == 0
        assert engine.width <= count
        assert engine.kv_tokens >= one.context_tokens
    full = [engine for engine in plan.engines.values() if 0 in engine.cards]
    held = [engine.kv_tokens for engine in full]
    # A share has six digits, and a cache is a whole number of blocks, one of which holds nothing.
    last_digit = max(plan.cards[0].total_bytes / 1e6 / engine.memory.kv_per_token for engine in full)
    assert max(held) - min(held) <= 3 * BLOCK_TOKENS + last_digit


def test_what_does_not_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(DoesNotFit, match=r"^[^\n]*61\.0 GiB[^\n]*39\.4 GiB[^\n]*$"):
        choose(parse_cards("1xA100-40"), PAIR)
    long = [replace(one, context_tokens=40_000, sample_tokens=40_000) for one in PAIR]
    with pytest.raises(DoesNotFit, match=r"holds only 2\d,\d\d\d tokens; a request may need 40,000"):
        choose(parse_cards("1xH100-80"), long)
    with pytest.raises(NotPlannable, match="KV cache size of target is unknown"):
        choose(parse_cards("8xH100-80"), [demand("target", {**QWQ_32B, "kv_lora_rank": 512})])


def test_a_width_that_was_asked_for_wins_and_is_checked() -> None:
    asked = [replace(PAIR[0], width=1), PAIR[1]]
    plan = choose(parse_cards("4xH100-80"), asked)
    assert [e.width for e in plan.engines.values()] == [1, 4]
    with pytest.raises(ValueError, match=r"--draft.tensor-parallel 8: .*12 attention heads .*valid: 1, 2, 4"):
        choose(parse_cards("8xH100-80"), [replace(PAIR[0], width=8), PAIR[1]])
    with pytest.raises(ValueError, match=r"--target.tensor-parallel 4: a worker has 2 GPUs; valid: 1, 2"):
        choose(parse_cards("2xH100-80"), [PAIR[0], replace(PAIR[1], width=4)])


def test_shares_above_the_whole_are_refused() -> None:
    asked = [replace(PAIR[0], share=0.5), replace(PAIR[1], share=0.6)]
    with pytest.raises(ValueError, match=r"--draft.memory 0\.5 and --target.memory 0\.6 add up to more than 1"):
        choose(parse_cards("4xH100-80"), asked)
    apart = [replace(asked[0], cards=(0,)), replace(asked[1], cards=(1, 2))]
    assert choose(parse_cards("3xH100-80"), apart).engines["target"].share == 0.6


def test_weights_and_caches_of_proposing_models_are_in_the_target() -> None:
    alone = demand("target", QWQ_32B, num_samples=1000)
    drafts = replace(alone, companions=(demand("draft", R1_1_5B).shape,))
    plain, with_draft = (choose(parse_cards("8xA100-80"), [one]).engines["target"] for one in (alone, drafts))
    assert plain.width == 8
    assert with_draft.width == 4  # the draft has 12 heads
    assert with_draft.memory.kv_per_token == (64 + 14) * 1024


@pytest.mark.parametrize(
    ("num_samples", "widths"),
    [(1, (1, 1)), (20, (1, 2)), (60, (1, 4)), (70, (2, 4)), (120, (2, 8)), (1000, (4, 8))],
)
def test_the_smallest_widths_that_hold_the_samples_in_flight_are_planned(
    num_samples: int, widths: tuple[int, int]
) -> None:
    plan = choose(parse_cards("8xH100-80"), [replace(one, num_samples=num_samples) for one in PAIR])
    assert tuple(engine.width for engine in plan.engines.values()) == widths
    assert plan.num_samples >= num_samples or num_samples == 1000


@pytest.mark.parametrize(
    ("target", "small"), [(pair_folder("demo-target"), {"draft", "target"}), ("nobody/has-it", {"draft"})]
)
def test_the_bundled_models_are_small_and_a_model_of_unknown_size_is_not(target: Path | str, small: set[str]) -> None:
    folders: dict[Role, Path | str] = {"draft": pair_folder("demo-draft"), "target": target}
    files = {role: ModelFiles(role, str(folder)) for role, folder in folders.items()}
    tokens = dict.fromkeys(files, 64)
    assert small_models(RunSizing(models=files, context_tokens=64, sample_tokens=tokens, concurrency=1)) == small
