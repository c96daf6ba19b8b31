"""The flags that both trainings share: where the data comes from, and one flag per setting."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from harness import benchmarks, options
from harness.launch_options import flag
from harness.training import settings as known
from harness.training.settings import Preset, Settings, Task

DATASET = "gsm8k-train"
_PROBLEMS: Mapping[Task, tuple[int, int]] = {"align": (1500, 0), "select": (500, 1500)}
"""How many (sections 3.3 and 3.4), and how many before them are skipped: selection is learned on drafts of questions
that the draft was not aligned on. The paper does not say whether its 500 are among the 1,500."""
_Command = Callable[..., Any]


def of(task: Task) -> Callable[[_Command], _Command]:
    """All flags of one training, as a decorator."""
    number, skipped = _PROBLEMS[task]
    scaled = "; of a smaller dataset, the same share of what it has"
    own: tuple[Callable[[_Command], _Command], ...] = (
        click.option("--run", type=click.Path(path_type=Path), help="Use the data of this run; launch none."),
        click.option("--draft", help="Draft model: a known name, a hub id, or a folder."),
        click.option("--target", help="Target model, in the same forms."),
        click.option("--output", type=click.Path(path_type=Path), required=True, help="Folder of the result."),
        click.option("--preset", type=click.Choice(known.preset_names()), help="Models and settings for a machine."),
        click.option(
            "--dataset",
            type=click.Choice([one.name for one in benchmarks.DATASETS.values() if one.training]),
            default=DATASET,
            show_default=True,
            help="Training data.",
        ),
        click.option(
            "--problems", type=click.IntRange(1), help=f"Problems of the dataset.  [default: {number}{scaled}]"
        ),
        click.option(
            "--skip", type=click.IntRange(0), help=f"Problems before the first.  [default: {skipped}{scaled}]"
        ),
        click.option(
            "--runs", type=click.Path(path_type=Path), default="runs", show_default=True, help="Folder of run folders."
        ),
        click.option(
            "--data-dir", type=click.Path(exists=True, path_type=Path), help="Folder of <dataset>.jsonl files."
        ),
        click.option("--dry-run", is_flag=True, help="Print the plan and exit."),
        *(_setting(name, kind, task) for name, kind in known.fields().items()),
        click.argument("launch_flags", nargs=-1, type=click.UNPROCESSED),
    )

    def add(command: _Command) -> _Command:
        for one in reversed(own):
            command = one(command)
        return command

    return add


def chosen(task: Task, given: Mapping[str, Any]) -> tuple[Preset, Settings]:
    """Models and settings, flags on top of the preset. Raises ValueError, also where the output is something else."""
    preset = known.preset(given["preset"], task)
    changes = {name: given[name] for name in known.fields() if given[name] is not None}
    output = given["output"]
    if output.exists() and not (output.is_dir() and ((output / "training").is_dir() or not any(output.iterdir()))):
        raise ValueError(f"--output {output} exists and has no training in it: give another folder")
    models = {role: given[role] or getattr(preset, role) for role in ("draft", "target")}
    return dataclasses.replace(preset, **models), dataclasses.replace(preset.settings, **changes)


def span(task: Task, given: Mapping[str, Any]) -> tuple[int, int]:
    """How many problems, and how many before them are skipped."""
    number, skipped = _PROBLEMS[task]
    share = min(1.0, benchmarks.DATASETS[given["dataset"]].count / sum(_PROBLEMS["select"]))
    return (
        round(share * number) if given["problems"] is None else given["problems"],
        round(share * skipped) if given["skip"] is None else given["skip"],
    )


def launch_flags(task: Task, values: Mapping[str, Any], models: Preset) -> dict[str, Any]:
    """Return the flags of the launch that makes the data, by name; those typed behind `--` come last and win.

    Raises click.UsageError where they are not flags of harness.launch.
    """
    number, first = span(task, values)
    flags: dict[str, Any] = {
        "method": "vanilla" if task == "align" else "scot",
        "dataset": values["dataset"],
        "samples": 1,
        "problems": f"{first}-{first + number - 1}",
        "output": values["runs"],
        **({"model": "target"} if task == "align" else {"drafts": 5}),
        "data_dir": values["data_dir"],
        "target": models.target,
        "draft": models.draft if task == "select" else None,
        **{name.replace("-", "_"): value for name, value in models.data_flags.items()},
    }
    return {**flags, **options.parsed_flags(values["launch_flags"])}


def _setting(name: str, kind: type, task: Task) -> Callable[[_Command], _Command]:
    text = f"Setting.  [default: {getattr(known.DEFAULTS[task], name)}]"
    if kind is bool:
        return click.option(f"{flag(name)}/--no-{name.replace('_', '-')}", name, default=None, help=text)
    values = known.choices(name)
    return click.option(flag(name), name, type=click.Choice(values) if values else kind, default=None, help=text)
