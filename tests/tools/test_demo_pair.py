"""The whole training of a tiny pair: models, results and card, and that it goes on where it was interrupted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import LlamaForCausalLM

from tools.demo_pair import inference, method_evaluation
from tools.demo_pair.config import Config
from tools.demo_pair.pipeline import Training

_SOLVE = {"tokens": 1200, "rate": 1e-3, "warmup_tokens": 100, "batch_tokens": 576, "shares": {"solve": 1.0}}
_JUDGE = {**_SOLVE, "shares": {"solve": 0.5, "score": 0.5}}
TINY = Config.model_validate(
    {
        "seed": 3,
        "stories": 40,
        "checked": 2,
        "shape": {"width": 16, "inner": 16, "heads": 1},
        "draft": {"layers": 1, "exit": 1, "alone": _SOLVE},
        "mistakes": {"stories": 3, "temperatures": [1.0]},
        "rollouts": {"stories": 3, "mistakes": 2, "samples": 1},
        "target": {
            "solver_layers": 2,
            "judge_layers": 6,
            "layers": 9,
            "solve": _SOLVE,
            "judge": _JUDGE,
            "refine": _JUDGE,
        },
        "reward": {
            "stories": 3,
            "solver": [1, 2],
            "judges": [3, 4, 6, 7],
            "judge": {**_SOLVE, "shares": {"reward": 1.0}},
        },
    }
)


def test_a_tiny_pair_is_trained_evaluated_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Long replies of untrained models take longer than these trainings.
    monkeypatch.setattr(inference, "MAX_TOKENS", 8)
    monkeypatch.setattr(method_evaluation, "_TOKEN_BUDGET", 8)
    lines: list[str] = []
    Training(TINY, tmp_path, "cpu", lines.append).run()
    for role, layers in (("draft", 1), ("target", 9)):
        assert LlamaForCausalLM.from_pretrained(tmp_path / role).config.num_hidden_layers == layers
    results = json.loads((tmp_path / "results.json").read_bytes())
    parts = "draft target verdicts verdicts_by_count counted judged methods reward"
    assert results.keys() == {*parts.split()}
    assert results["target"]["layers"] == 9
    assert results["reward"]["layers"] == 6
    assert "$" not in (tmp_path / "MODEL_CARD.md").read_text("utf-8")
    stages = {path.stem for path in (tmp_path / "state").glob("*.pt")}
    assert stages == {"solve", "draft", "judge", "refine", "reward"}
    again: list[str] = []
    Training(TINY, tmp_path, "cpu", again.append).run()
    assert json.loads((tmp_path / "results.json").read_bytes()) == results
    assert not any("min left" in line for line in again), "finished stages are skipped"
