"""The training loop on tiny models: what is trained, and that an interruption leaves no trace."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.training import tuning
from harness.training.training_examples import Example, chain_loss
from harness.training.tuning import Settings
from harness.weights.models import ModelRef, folder_fingerprint, resolve

SETTINGS = Settings(learning_rate=1e-2, epochs=2, accumulation=2, save_every=1)


def _examples(number: int = 5) -> list[Example]:
    return [Example(f"s{i}", tuple(range(40, 60 + i)), tuple(range(61 - 4, 61 + i)), 4 + i) for i in range(number)]


def _base(folder: Path) -> ModelRef:
    return resolve(str(folder))


def _weights(adapter: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(adapter / "adapter_model.safetensors"))


def _tuned(base: Path, work: Path, settings: Settings = SETTINGS) -> dict[str, Any]:
    return _weights(tuning.tune(_base(base), _examples(), chain_loss, settings, work, "known", lambda line: None))


class _Killed(Exception):
    pass


def _killed_at(step: int) -> Any:
    calls = 0

    def loss(logits: Any, label_ids: Sequence[int]) -> Any:
        nonlocal calls
        calls += 1
        if calls > step:
            raise _Killed
        return chain_loss(logits, label_ids)

    return loss


def test_query_and_value_projections_of_every_layer_are_trained_and_nothing_else(
    tiny_models: dict[str, Path], tmp_path: Path
) -> None:
    before = folder_fingerprint(tiny_models["draft"])
    weights = _tuned(tiny_models["draft"], tmp_path)
    modules = {name.partition(".lora_")[0].removeprefix("base_model.model.model.") for name in weights}
    assert modules == {f"layers.{i}.self_attn.{name}" for i in (0, 1) for name in ("q_proj", "v_proj")}
    assert all(min(weight.shape) == 8 for weight in weights.values())
    assert any(weight.any() for name, weight in weights.items() if "lora_B" in name), "it learned something"
    assert folder_fingerprint(tiny_models["draft"]) == before


@pytest.mark.parametrize("killed_at", [1, 4, 7])
def test_an_interrupted_training_ends_with_the_very_same_weights(
    tiny_models: dict[str, Path], tmp_path: Path, killed_at: int
) -> None:
    import torch

    undisturbed = _tuned(tiny_models["draft"], tmp_path / "undisturbed")
    work, base = tmp_path / "killed", _base(tiny_models["draft"])
    with pytest.raises(_Killed):
        tuning.tune(base, _examples(), _killed_at(killed_at), SETTINGS, work, "known", lambda line: None)
    assert (work / "checkpoint.pt").exists() == (killed_at >= 2)
    resumed = _tuned(tiny_models["draft"], work)
    assert undisturbed.keys() == resumed.keys()
    assert all(torch.equal(undisturbed[name], resumed[name]) for name in undisturbed)
    assert not (work / "checkpoint.pt").exists()
    logs = [(folder / "log.jsonl").read_text().splitlines() for folder in (tmp_path / "undisturbed", work)]
    logged = [[(record["step"], record["loss"]) for record in map(json.loads, log)] for log in logs]
    assert logged[0] == logged[1]
    assert [step for step, _ in logged[1]] == [1, 2, 3, 4, 5, 6]


def test_every_epoch_has_every_example_once_in_an_order_of_its_own() -> None:
    planned = tuning.steps(7, Settings(1e-3, epochs=3, batch=2, accumulation=2))
    epochs = [[i for of, indexes in planned if of == epoch for i in indexes] for epoch in range(3)]
    assert [sorted(order) for order in epochs] == [list(range(7))] * 3
    assert len({tuple(order) for order in epochs}) == 3
    assert [len(indexes) for _, indexes in planned] == [4, 3] * 3
    assert planned == tuning.steps(7, Settings(1e-3, epochs=3, batch=4))


def test_examples_of_unlike_length_in_one_pass_have_the_losses_that_they_have_alone(
    tiny_models: dict[str, Path], tmp_path: Path
) -> None:
    losses = []
    for batch in (1, 5):
        settings = Settings(1e-3, epochs=1, batch=batch, accumulation=5 // batch, dropout=0.0)
        work = tmp_path / str(batch)
        tuning.tune(_base(tiny_models["draft"]), _examples(), chain_loss, settings, work, "known", lambda line: None)
        losses.append(json.loads((work / "log.jsonl").read_text())["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_gradient_checkpointing_changes_no_weight(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    import torch

    settings = [Settings(1e-2, epochs=1, gradient_checkpointing=chosen) for chosen in (False, True)]
    first, second = (_tuned(tiny_models["draft"], tmp_path / str(i), s) for i, s in enumerate(settings))
    assert all(torch.allclose(first[name], second[name], atol=1e-6) for name in first)


def test_the_folder_of_another_training_is_refused(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    _tuned(tiny_models["draft"], tmp_path)
    with pytest.raises(ValueError, match="choose another --output"):
        tuning.tune(_base(tiny_models["draft"]), _examples(), chain_loss, SETTINGS, tmp_path, "other", print)


def test_an_identity_depends_on_base_data_and_settings_but_not_on_checkpoints(tmp_path: Path) -> None:
    base = ModelRef("x", "x", None, "fingerprint")
    identity = tuning.identity(base, "data", SETTINGS)
    assert identity == tuning.identity(ModelRef("y", "elsewhere", None, "fingerprint"), "data", SETTINGS)
    assert identity == tuning.identity(base, "data", Settings(1e-2, epochs=2, accumulation=2, save_every=50))
    others = [
        tuning.identity(ModelRef("x", "x", None, "other"), "data", SETTINGS),
        tuning.identity(base, "other", SETTINGS),
        tuning.identity(base, "data", Settings(1e-3, epochs=2, accumulation=2)),
    ]
    assert len({identity, *others}) == 4


def test_a_merged_draft_has_the_logits_of_base_and_adapter(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base, output = _base(tiny_models["draft"]), tmp_path / "merged"
    output.mkdir()
    adapter = tuning.tune(base, _examples(), chain_loss, SETTINGS, tmp_path / "work", "known", lambda line: None)
    tuning.merge(base, adapter, output)
    ids = torch.tensor([list(range(40, 70))])
    plain: Any = AutoModelForCausalLM.from_pretrained(base.path_or_hub_id, dtype=torch.float32)
    merged: Any = AutoModelForCausalLM.from_pretrained(output)
    with torch.no_grad():
        before = plain(ids).logits
        together = PeftModel.from_pretrained(plain, str(adapter))(ids).logits
        merged_logits = merged(ids).logits
    assert torch.allclose(merged_logits, together, atol=1e-4)
    assert not torch.allclose(merged_logits, before, atol=1e-2)
    assert merged.dtype == plain.dtype
    assert (output / "tokenizer.json").read_bytes() == (tiny_models["draft"] / "tokenizer.json").read_bytes()
    assert (
        AutoTokenizer.from_pretrained(output).chat_template
        == AutoTokenizer.from_pretrained(base.path_or_hub_id).chat_template
    )
    assert folder_fingerprint(output) != base.fingerprint
    assert {path.name for path in output.iterdir()}.isdisjoint({"training", "adapter_config.json"})
