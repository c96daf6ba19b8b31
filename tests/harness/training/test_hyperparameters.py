"""Presets of trainings, and the problems that each training takes."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from harness import train
from harness.settings.layers import launch_from
from harness.training.tuning import Task, presets


@pytest.mark.parametrize("name", list(presets()))
@pytest.mark.parametrize("task", ["align", "select"])
def test_the_flags_of_a_preset_are_valid(task: Task, name: str, tmp_path: Path) -> None:
    request = requested(task, tmp_path, "--preset", name, "--skip", "3", "--problems", "7", "--", "--limit", "5")
    launch = launch_from(request.data_flags)
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
    spans = [f"{skipped}-{skipped + number - 1}" for number, skipped in (align, select)]
    assert [request.data_flags["problems"] for request in requests] == spans


def requested(task: Task, folder: Path, *words: str) -> train.TrainingRequest:
    command = {"align": train.align, "select": train.select}[task]
    return train.training_request(task, command.make_context(task, ["--output", str(folder), *words]).params)
