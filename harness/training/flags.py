"""The flags that both trainings share, and the validated request that they come to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from harness.cli.command import FurtherOption
from harness.methods.method import flag
from harness.problems import benchmarks
from harness.settings.launch_settings import Launch
from harness.settings.layers import launch_from
from harness.settings.method_options import parsed_flags
from harness.settings.roles import flattened
from harness.training import hyperparameters
from harness.training.hyperparameters import Preset, Settings, Task

DATASET = "gsm8k-train"
_PROBLEMS: Mapping[Task, tuple[int, int]] = {"align": (1500, 0), "select": (500, 1500)}
"""Number of problems (sections 3.3 and 3.4), and how many before them are skipped: selection is learned on drafts of
questions that the draft was not aligned on. The paper does not say whether its 500 are among the 1,500; in its
authors' program they are."""
_OF_PROGRAM: Mapping[Task, tuple[int, int]] = {"align": (1500, 0), "select": (500, 0)}
"""The same of SCoT's program, whose 500 are the first of its 1,500."""
_Command = Callable[..., Any]


@dataclass(frozen=True)
class TrainingRequest:
    """What a training is asked to do: where its data comes from, its models, its settings and its output."""

    task: Task
    run: Path | None
    """Run folder with the data; None: it is made by a launch."""
    draft: str | None
    target: str | None
    output: Path
    """Folder to write."""
    settings: Settings
    dataset: str
    num_problems: int
    num_skipped: int
    """Problems before the first one that is used."""
    runs: Path
    """Folder for the run folder of the data."""
    data_dir: Path | None
    accepts_test_questions: bool
    """Whether the test questions that SCoT's program trains on may be trained on."""
    dry_run: bool
    data_flags: Mapping[str, Any]
    """Flags of the launch that makes the data, those of the preset and on top those typed behind `--`."""

    def data_launch(self) -> Launch:
        """Return the launch that makes the data. Raises BadLaunch."""
        last = self.num_skipped + self.num_problems - 1
        own_flags: dict[str, Any] = {
            "method": "vanilla" if self.task == "align" else "scot",
            "dataset": self.dataset,
            "samples": 1,
            "problems": f"{self.num_skipped}-{last}",
            "output": self.runs,
            **({"model": "target"} if self.task == "align" else {"drafts": 5}),
            "data_dir": self.data_dir,
            "target": self.target,
            "draft": self.draft if self.task == "select" else None,
        }
        return launch_from({**own_flags, **self.data_flags})


def training_request(task: Task, values: Mapping[str, Any]) -> TrainingRequest:
    """Build a request from the values of `training_options`: flags on top of the preset.

    Raises ValueError, also where the output folder holds something else, and click.UsageError where the words behind
    `--` are not flags of harness.launch.
    """
    preset = hyperparameters.preset(values["preset"], task)
    changes = {name: values[name] for name in hyperparameters.fields() if values[name] is not None}
    output: Path = values["output"]
    if output.exists() and not (output.is_dir() and ((output / "training").is_dir() or not any(output.iterdir()))):
        raise ValueError(f"--output {output} exists and has no training in it: give another folder")
    dataset = values["dataset"] or preset.dataset or DATASET
    num_problems, num_skipped = default_span(task, dataset)
    return TrainingRequest(
        task=task,
        run=values["run"],
        draft=values["draft"] or preset.draft,
        target=values["target"] or preset.target,
        output=output,
        settings=dataclasses.replace(preset.settings, **changes),
        dataset=dataset,
        num_problems=num_problems if values["problems"] is None else values["problems"],
        num_skipped=num_skipped if values["skip"] is None else values["skip"],
        runs=values["runs"],
        data_dir=values["data_dir"],
        accepts_test_questions=values["accept_test_questions"],
        dry_run=values["dry_run"],
        data_flags=_data_flags(preset, values["launch_flags"]),
    )


def default_span(task: Task, dataset: str) -> tuple[int, int]:
    """Return the number of problems and of those skipped before them; of a smaller dataset, the same share."""
    if dataset == benchmarks.SCOT_PROGRAM:
        return _OF_PROGRAM[task]
    number, skipped = _PROBLEMS[task]
    share = min(1.0, benchmarks.DATASETS[dataset].count / sum(_PROBLEMS["select"]))
    return round(share * number), round(share * skipped)


def _data_flags(preset: Preset, words: tuple[str, ...]) -> dict[str, Any]:
    return {**flattened(preset.data_flags), **parsed_flags(words)}


def training_options(task: Task) -> Callable[[_Command], _Command]:
    """Return a decorator that adds all flags of one training to a command."""
    number, skipped = _PROBLEMS[task]
    scaled = "; of a smaller dataset, the same share"
    decorators: tuple[Callable[[_Command], _Command], ...] = (
        click.option(
            "--run",
            type=click.Path(path_type=Path),
            help="Use the data of this run, a run folder or a run id, instead of new data.",
        ),
        click.option("--draft", help="Draft model: a known name, a Hugging Face id, or a folder."),
        click.option("--target", help="Target model: a known name, a Hugging Face id, or a folder."),
        click.option("--output", type=click.Path(path_type=Path), required=True, help="Folder to write."),
        click.option(
            "--preset", type=click.Choice(hyperparameters.preset_names()), help="Models and settings for a machine."
        ),
        click.option(
            "--dataset",
            type=click.Choice([benchmark.name for benchmark in benchmarks.DATASETS.values() if benchmark.training]),
            help=f"Training data.  [default: the preset's, else {DATASET}]",
        ),
        click.option(
            "--accept-test-questions",
            cls=FurtherOption,
            is_flag=True,
            help="Train on the GSM8K test questions 500 to 999 too, as SCoT's program does (gsm8k-scot); the manifest "
            "counts them.",
        ),
        click.option(
            "--problems", type=click.IntRange(1), help=f"Problems of the dataset.  [default: {number}{scaled}]"
        ),
        click.option(
            "--skip",
            cls=FurtherOption,
            type=click.IntRange(0),
            help=f"Problems to skip before them.  [default: {skipped}{scaled}]",
        ),
        click.option(
            "--runs", type=click.Path(path_type=Path), default="runs", show_default=True, help="Folder of run folders."
        ),
        click.option(
            "--data-dir",
            cls=FurtherOption,
            type=click.Path(exists=True, path_type=Path),
            help="Folder of <dataset>.jsonl files; also HARNESS_DATA_DIR.",
        ),
        click.option("--dry-run", is_flag=True, help="Print what would be done, and exit."),
        *(_setting_option(name, value_type, task) for name, value_type in hyperparameters.fields().items()),
        click.argument("launch_flags", nargs=-1, type=click.UNPROCESSED, metavar="[-- LAUNCH_FLAGS…]"),
    )

    def decorate(command: _Command) -> _Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def _setting_option(name: str, value_type: type, task: Task) -> Callable[[_Command], _Command]:
    default = getattr(hyperparameters.DEFAULTS[task], name)
    if value_type is bool:
        default = ("" if default else "no-") + name.replace("_", "-")
    text = f"{hyperparameters.meaning(name)}  [default: {default}]"
    if value_type is bool:
        return click.option(
            f"{flag(name)}/--no-{name.replace('_', '-')}", name, cls=FurtherOption, default=None, help=text
        )
    choices = hyperparameters.choices(name)
    kind: Any = click.Choice(choices) if choices else value_type
    return click.option(flag(name), name, cls=FurtherOption, type=kind, default=None, help=text)
