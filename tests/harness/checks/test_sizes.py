"""Doctor's plan of the engines' memory, on a login node and on a node with cards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.checks.finding import Check, Question
from harness.checks.models import check_sizes
from tests.harness.cards import card, put_nvidia_smi
from tests.harness.checks.question import asked, problem_texts, worst_status

PAIR: dict[str, Any] = {
    "models": {"draft": "r1-distill-qwen-1.5b", "target": "qwq-32b"}, "method": "speccot", "dataset": "demo"
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def on_slurm(sbatch: dict[str, Any], **changes: Any) -> list[Check]:
    return list(check_sizes(asked(**{**PAIR, "cluster": "slurm", "sbatch": sbatch, **changes}), {}))


def test_the_plan_of_a_node_has_a_line_for_every_engine_and_the_samples_that_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_nvidia_smi(tmp_path / "bin", monkeypatch, [card(i) for i in range(4)])
    checks = list(check_sizes(asked(**PAIR), {}))
    assert [check.subject for check in checks] == [
        "memory of the draft", "memory of the target", "samples that fit", "memory plan"
    ]  # fmt: skip
    assert worst_status(checks) == "ok"
    text = " ".join(check.text for check in checks)
    assert "qwq-32b: tensor parallel 4, 15.3 GiB of weights a GPU, memory share 0.7" in text
    assert "assumed: the sizes of r1-distill-qwen-1.5b, qwq-32b" in text


def test_few_samples_are_a_warning_with_the_next_larger_choice() -> None:
    checks = on_slurm({"gpus-per-node": "h100:1"})
    assert worst_status(checks) == "warning"
    assert "2 samples at the full token budget at once, 64 in flight" in problem_texts(checks)
    assert "2 × H100 would hold 2" in problem_texts(checks)


def test_models_that_do_not_fit_are_a_failure_with_the_next_larger_choice() -> None:
    checks = on_slurm({"gpus-per-node": "l40s:1"})
    assert worst_status(checks) == "failure"
    assert "61.0 GiB" in problem_texts(checks)
    assert "2 × L40S would hold 1 sample" in problem_texts(checks)


def test_what_only_an_assumed_card_cannot_hold_is_a_warning() -> None:
    checks = on_slurm({"gres": "gpu:a100:1"})
    assert worst_status(checks) == "warning"
    assert "A100-40 is assumed" in problem_texts(checks)


@pytest.mark.parametrize(
    ("sbatch", "status", "message"),
    [
        ({}, "warning", "no GPU is asked for"),
        ({"gpus-per-node": "4"}, "ok", "the node decides on 4 GPUs"),
    ],
)
def test_where_the_cards_are_not_known_the_node_decides(sbatch: dict[str, Any], status: str, message: str) -> None:
    [check] = on_slurm(sbatch)
    assert check.status == status
    assert message in check.text


def test_cards_whose_memory_is_unknown_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvidia_smi(tmp_path / "bin", monkeypatch, [card() | {"memory.total": "[Unknown Error]"}])
    assert "does not say how much memory the GPUs have; give --draft.memory" in problem_texts(
        list(check_sizes(asked(**PAIR), {}))
    )


def test_a_question_to_a_node_keeps_the_cards_of_the_engines(tmp_path: Path) -> None:
    question = asked(**PAIR, draft_gpus="0", target_template={"enable_thinking": False})
    (tmp_path / "question.json").write_text(question.to_json())
    assert Question.read(tmp_path / "question.json") == question


@pytest.mark.parametrize("changes", [{"engine": "transformers"}, {"method": None}, {"models": {}}])
def test_nothing_is_planned_for_other_engines_or_without_a_run(changes: dict[str, Any]) -> None:
    assert on_slurm({"gpus-per-node": "h100:4"}, **changes) == []
