"""Latency as SpecReason's author computes it, against numbers worked out by hand from the same calls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.warehouse import runs
from tests.warehouse.conftest import LATENCIES, Ask, Loaded
from warehouse.database import reader
from warehouse.loading.runs import load_run

TARGET_TOKEN = (3 * 0.65 + 2.65 + 3 * 1.15) / (3 * 7 + 5 + 3 * 3)
"""Three timed samples: guidance of 8 tokens, one fallback of 6, answers of 4; first tokens come after 0.35 s."""
DRAFT_TOKEN = 3 * 1.65 / (3 * 5)
PREFILL = 0.1


def test_two_models_take_their_tokens_and_the_prefill_of_every_verdict(loaded: Loaded, ask: Ask) -> None:
    """Refused drafts are in the time of the draft model; resumed, failed and unfinished samples have no row."""
    rows = {row["sample_id"]: row for row in ask("modelled_latency", loaded.speculative)}
    accepted, refused, cut_off = (trace.sample_id for trace in loaded.traces[:3])
    assert set(rows) == {accepted, refused, cut_off}
    drafted = 6 * DRAFT_TOKEN + PREFILL
    assert rows[accepted]["modelled_seconds"] == pytest.approx(drafted + (8 + 4) * TARGET_TOKEN)
    assert rows[refused]["modelled_seconds"] == pytest.approx(drafted + (8 + 6 + 4) * TARGET_TOKEN)
    assert rows[refused]["verdict_seconds"] == pytest.approx(PREFILL)
    assert rows[refused]["measured_seconds"] == 12.0


def test_one_model_takes_its_first_token_and_its_tokens(loaded: Loaded, ask: Ask) -> None:
    token = sum(latency - 1 - 0.35 for latency in LATENCIES) / sum(39 + i for i in range(6))
    rows = {row["sample_id"]: row for row in ask("modelled_latency", loaded.vanilla)}
    for i, trace in enumerate(loaded.baseline):
        assert rows[trace.sample_id]["modelled_seconds"] == pytest.approx(PREFILL + (40 + i) * token)
        assert rows[trace.sample_id]["verdict_seconds"] == 0


def test_a_discarded_lookahead_takes_no_modelled_time(tmp_path: Path) -> None:
    folder = runs.create(tmp_path, replace(runs.SPEC, method="specreason", params={"lookahead": True}))
    [unit] = runs.planned(folder)[:1]
    runs.write_part(folder, [runs.lookahead(unit, refused=True)])
    load_run(folder, tmp_path / "w.duckdb")
    with reader(tmp_path / "w.duckdb") as connection:
        [row] = Ask(connection)("modelled_latency", folder)
    token = (1.65 + 1.15) / (5 + 3)  # drafts of 6 tokens in 2 s and of 4 tokens in 1.5 s
    assert row["draft_seconds"] == pytest.approx((6 + 4) * token)
    assert row["verdict_seconds"] == pytest.approx(2 * PREFILL)
    assert row["target_seconds"] == pytest.approx(6 * 1.65 / 5)
