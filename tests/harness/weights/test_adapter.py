"""LoRA weights for verdicts: what is accepted, and that the reference engine uses them for verdicts alone."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.engine import Role, Sampling
from harness.engines.settings import EngineSettings, pair_settings
from harness.engines.transformers import TransformersEngine
from harness.weights import adapter
from tests.harness.conftest import save_tiny_adapter

PROMPT, OPTIONS = list(range(40, 80)), [20, 21, 22]
SETTINGS = EngineSettings(kind="transformers", dtype="float32", max_context=300)


def test_an_adapter_changes_verdicts_and_nothing_that_is_written(tiny_models: dict[Role, Path], tmp_path: Path) -> None:
    folder = save_tiny_adapter(tmp_path / "adapter", tiny_models["target"])

    async def answers(settings: EngineSettings) -> tuple[object, object, object]:
        engine = await TransformersEngine.start(str(tiny_models["target"]), "target", settings)
        sampling = Sampling(8, 1.0, seed=3)
        before = await engine.generate(PROMPT, sampling)
        choice = await engine.choose(PROMPT, OPTIONS)
        after = await engine.generate(PROMPT, sampling)
        return before.completions, choice.logprobs, after.completions

    plain = asyncio.run(answers(SETTINGS))
    adapted = asyncio.run(answers(replace(SETTINGS, adapter=adapter.read(str(folder)))))
    assert adapted[0] == plain[0] == adapted[2]
    assert adapted[1] != plain[1]


def test_only_the_target_gets_the_adapter(tiny_models: dict[Role, Path], tmp_path: Path) -> None:
    lora = adapter.read(str(save_tiny_adapter(tmp_path / "adapter", tiny_models["target"], rank=12)))
    settings = pair_settings("vllm", ("draft", "target"), device="cpu", adapter=lora)
    assert settings["draft"].adapter is None
    assert settings["target"].adapter == lora
    assert (lora.rank, adapter.served_rank(lora.rank)) == (12, 16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peft_type": "IA3"}, "type LORA, not IA3"),
        ({"use_dora": True}, "DoRA"),
        ({"r": 1024}, "valid: rank 1 to 512"),
        (None, "is not a valid configuration"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(
    changes: dict[str, object] | None, message: str, tiny_models: dict[Role, Path], tmp_path: Path
) -> None:
    folder = save_tiny_adapter(tmp_path / "adapter", tiny_models["target"])
    config = folder / adapter.CONFIG
    config.write_text("{" if changes is None else json.dumps(json.loads(config.read_text()) | changes))
    with pytest.raises(ValueError, match=message) as refusal:
        adapter.read(str(folder))
    assert str(refusal.value).startswith(f"--target.adapter {folder}: ")


def test_a_fingerprint_is_that_of_the_content_wherever_it_lies(tiny_models: dict[Role, Path], tmp_path: Path) -> None:
    first = save_tiny_adapter(tmp_path / "first", tiny_models["target"])
    original = adapter.fingerprint(first)
    config = json.loads((first / adapter.CONFIG).read_text())
    moved = {"base_model_name_or_path": "elsewhere", "target_modules": config["target_modules"][::-1]}
    (first / adapter.CONFIG).write_text(json.dumps(config | moved))
    assert adapter.fingerprint(first) == original
    assert adapter.fingerprint(save_tiny_adapter(tmp_path / "second", tiny_models["target"], seed=1)) != original
    (first / adapter.CONFIG).write_text(json.dumps(config | {"lora_alpha": 1}))
    assert adapter.fingerprint(first) != original
