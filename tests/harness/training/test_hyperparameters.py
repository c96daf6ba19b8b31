"""The sizes that the memory of a training is worked out from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from harness import train
from harness.training import flags
from harness.training.hyperparameters import Shape, Task, estimate, preset, preset_names

R1_32B = Shape(64, 5120, 27648, 5120, 1024, 152064, tied=False, biased=True)
GIB = 1 << 30


def test_weights_are_counted_as_they_are(tiny_models: dict[str, Path]) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    shape = Shape.read(json.loads((tiny_models["draft"] / "config.json").read_text()))
    model: Any = AutoModelForCausalLM.from_pretrained(tiny_models["draft"])
    assert sum(weight.numel() for weight in model.parameters()) == shape.parameters
    tuned: Any = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
    assert sum(w.numel() for w in tuned.parameters() if w.requires_grad) == shape.lora_parameters(8)


def test_a_tied_head_is_counted_once() -> None:
    assert R1_32B.parameters - replace(R1_32B, tied=True).parameters == 5120 * 152064


def test_the_papers_target_fits_one_gpu_of_80_gb_only_with_checkpointing() -> None:
    settings = preset("r1-32b", "select").settings
    assert R1_32B.parameters == 32_763_876_352
    assert estimate(R1_32B, settings, 1).total < 75 * GIB
    assert estimate(R1_32B, replace(settings, gradient_checkpointing=False), 1).total > 80 * GIB


@pytest.mark.parametrize("name", preset_names())
@pytest.mark.parametrize("task", ["align", "select"])
def test_the_flags_of_a_preset_are_valid(task: Task, name: str, tmp_path: Path) -> None:
    request = requested(task, tmp_path, "--preset", name, "--skip", "3", "--problems", "7", "--", "--limit", "5")
    launch = request.data_launch()
    dataset = "gsm8k-scot" if name == "scot-program" else "gsm8k-train"
    assert (launch.dataset, launch.samples, launch.problems) == (dataset, 1, "3-9")
    assert launch.limit == 5


@pytest.mark.parametrize(
    ("words", "align", "select"),
    [
        (("--dataset", "gsm8k-train"), (1500, 0), (500, 1500)),
        (("--dataset", "demo-train"), (750, 0), (250, 750)),
        (("--dataset", "demo-train", "--problems", "5", "--skip", "0"), (5, 0), (5, 0)),
    ],
)
def test_a_smaller_dataset_is_divided_as_the_papers(
    words: tuple[str, ...], align: tuple[int, int], select: tuple[int, int], tmp_path: Path
) -> None:
    requests = [requested(task, tmp_path, *words) for task in get_args(Task)]
    assert [(request.num_problems, request.num_skipped) for request in requests] == [align, select]


def requested(task: Task, folder: Path, *words: str) -> flags.TrainingRequest:
    """Return the request of a command line."""
    command = {"align": train.align, "select": train.select}[task]
    return flags.training_request(task, command.make_context(task, ["--output", str(folder), *words]).params)


def test_a_preset_that_there_is_not_is_named() -> None:
    with pytest.raises(ValueError, match=r"--preset none: unknown; valid: r1-32b, cpu"):
        preset("none", "align")
