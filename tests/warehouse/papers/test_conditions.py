"""Why a run of ours may not be read beside a published value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.hardware import Hardware, Speeds
from harness.training import manifest
from harness.weights import models
from warehouse.papers import suite
from warehouse.papers.conditions import TIMES_ONLY, aligned_from_another, num_problems, run_columns, why_not
from warehouse.papers.estimate import from_history, from_model

TABLE = suite.load("speccot-table2")
PLAN = next(p for p in suite.planned(TABLE) if p.row.label == "SpecCoT, QwQ-32B" and p.column == "gsm8k")
PAPER = suite.launch_of(PLAN.flags)


def run(**changes: Any) -> dict[str, Any]:
    """A run exactly as the paper's, but for the changes."""
    same = {
        **run_columns(PAPER),
        "num_problems": 1319,
        "samples": 5,
        "num_finished": 1319 * 5,
        "devices": "4 × NVIDIA A100-SXM4-80GB",
        "engine_kind": "vllm",
        "engine_draft_tensor_parallel": 4,
        "engine_target_tensor_parallel": 4,
    }
    return {**same, **changes}


def test_the_papers_own_run_is_comparable() -> None:
    assert why_not(TABLE, PAPER, run(), "latency_seconds") == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"target_name": "small"}, "target small instead of qwq-32b"),
        ({"draft_name": None}, "draft none instead of r1-distill-qwen-1.5b"),
        ({"params": {**PAPER.parameters, "drafts": 2}}, "other parameters: drafts 2"),
        ({"token_budget": 512}, "token budget 512 instead of 8192"),
        ({"num_problems": 30, "num_finished": 150}, "30 of 1319 problems"),
        ({"samples": 1, "num_finished": 1319}, "1 samples a problem instead of 5"),
        ({"num_finished": 7}, "only 7 of 6595 samples are finished"),
        ({"devices": "1 × cpu"}, TIMES_ONLY + "on 1 × cpu instead of 4 A100"),
        ({"concurrency": 30}, TIMES_ONLY + "30 samples in flight instead of 1"),
        ({"engine_kind": "transformers"}, TIMES_ONLY + "transformers instead of vLLM"),
        ({"engine_target_tensor_parallel": 2}, TIMES_ONLY + "target tensor parallel 2 instead of 4"),
    ],
)
def test_each_difference_is_a_reason(changes: dict[str, Any], reason: str) -> None:
    assert why_not(TABLE, PAPER, run(**changes), "latency_seconds") == [reason]


def test_the_machine_is_no_reason_against_an_accuracy() -> None:
    changed = run(devices="1 × cpu", concurrency=30, engine_kind="transformers")
    assert why_not(TABLE, PAPER, changed, "accuracy") == []


def test_what_the_paper_does_not_state_is_no_reason() -> None:
    assert "top-p" in TABLE.unstated
    assert why_not(TABLE, PAPER, run(top_p=1.0), "accuracy") == []


def test_what_holds_for_everybody_is_always_a_reason() -> None:
    table = suite.load("scot-table1")
    plan = next(suite.planned(table))
    assert set(table.unlike) <= set(why_not(table, suite.launch_of(plan.flags), run(), "accuracy"))


def test_history_is_scaled_to_the_planned_samples() -> None:
    recorded_run = {"run_id": "r", "devices": "d", "wall_seconds": 7200.0, "num_finished": 2, "num_gpus": 4}
    estimate = from_history(PAPER, recorded_run)
    assert estimate is not None
    assert estimate.worker_hours == pytest.approx(1.0 * num_problems(PAPER) * 5)
    assert estimate.gpu_hours == pytest.approx(4 * estimate.worker_hours)
    assert from_history(PAPER, {**recorded_run, "wall_seconds": None}) is None


def test_an_estimate_names_the_source_of_its_tokens() -> None:
    speeds = Speeds(output_tokens_per_second=100, prompt_tokens_per_second=1e9)
    machine = Hardware(name="m", source="s", gpus=2, draft=speeds, target=speeds)
    published = from_model(PAPER, {"tokens": 1000.0}, machine)
    assert published.source == "model: published tokens"
    assert "guess" in from_model(PAPER, {}, machine).source
    # 1,000 tokens at 100 a second are 10 s; refused steps are drafted in vain, verdicts add a token each.
    assert 10 < published.worker_hours * 3600 / (1319 * 5) < 15
    assert published.gpu_hours == pytest.approx(2 * published.worker_hours)


def test_an_aligned_draft_of_another_base_is_not_comparable(tmp_path: Path) -> None:
    draft_name = "r1-distill-qwen-1.5b"
    reason = f"draft {tmp_path} does not say what it was aligned from"
    assert aligned_from_another(str(tmp_path), draft_name) == [reason]
    for base, expected_reasons in (
        (models.resolve(draft_name).path_or_hub_id, []),
        ("/models/Qwen-0.5B/", ["draft aligned from Qwen-0.5B instead of r1-distill-qwen-1.5b"]),
    ):
        manifest.write(tmp_path, manifest.Manifest("align", "i", "w", {"path": base}, {}, {}))
        assert aligned_from_another(str(tmp_path), draft_name) == expected_reasons
