"""The flags that both trainings share, and the validated request that they come to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click

from harness.cli.command import FurtherOption
from harness.methods.method import flag
from harness.problems import benchmarks
from harness.settings.launch_settings import Launch
from harness.settings.layers import launch_from
from harness.settings.method_options import parsed_flags
from harness.settings.roles import flattened
from harness.training import hyperparameters
from harness.training.hyperparameters import Settings, Task

DATASET = "gsm8k-train"
_PROBLEMS: Mapping[Task, tuple[int, int]] = {"align": (1500, 0), "select": (500, 1500)}
"""Number of problems (sections 3.3 and 3.4), and how many before them are skipped: selection is learned on drafts of
questions that the draft was not aligned on. The paper does not say whether its 500 are among the 1,500; in its
authors' program they are."""
_OF_PROGRAM: Mapping[Task, tuple[int, int]] = {"align": (1500, 0), "select": (500, 0)}
"""The same of SCoT's program, whose 500 are the first of its 1,500."""


@dataclass(frozen=True)
class TrainingRequest:
    """What a training is asked to do: where its data comes from, its models, its settings and its output."""

    task: Task
    draft: str | None
    target: str | None
    output: Path
    """Folder to write."""
    settings: Settings
    dataset: str
    num_problems: int
    num_skipped: int
    """Problems before the first one that is used."""
    data_flags: Mapping[str, Any]
    """Flags of the launch that makes the data, those of the preset and on top those typed behind `--`."""
    run: Path | None
    """Run folder with the data; None: it is made by a launch."""
    runs: Path
    """Folder for the run folder of the data."""
    data_dir: Path | None
    accept_test_questions: bool
    """Whether the test questions that SCoT's program trains on may be trained on."""
    dry_run: bool

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
    preset = hyperparameters.presets()[values["preset"]] if values["preset"] else {}
    output: Path = values["output"]
    if output.exists() and not (output.is_dir() and ((output / "training").is_dir() or not any(output.iterdir()))):
        raise ValueError(f"--output {output} exists and has no training in it: give another folder")
    dataset = values["dataset"] or preset.get("dataset", DATASET)
    num_problems, num_skipped = default_span(task, dataset)
    data_flags = {**flattened(preset.get(task, {}).get("data", {})), **parsed_flags(values["launch_flags"])}
    changes = {f.name: values[f.name] for f in dataclasses.fields(Settings) if values[f.name] is not None}
    return TrainingRequest(
        task=task,
        draft=values["draft"] or preset.get("draft"),
        target=values["target"] or preset.get("target"),
        output=output,
        settings=hyperparameters.settings(task, preset, changes),
        dataset=dataset,
        num_problems=num_problems if values["problems"] is None else values["problems"],
        num_skipped=num_skipped if values["skip"] is None else values["skip"],
        data_flags=data_flags,
        **{name: values[name] for name in ("run", "runs", "data_dir", "accept_test_questions", "dry_run")},
    )


def default_span(task: Task, dataset: str) -> tuple[int, int]:
    """Return the number of problems and of those skipped before them; of a smaller dataset, the same share."""
    if dataset == benchmarks.SCOT_PROGRAM:
        return _OF_PROGRAM[task]
    number, skipped = _PROBLEMS[task]
    share = min(1.0, benchmarks.DATASETS[dataset].count / sum(_PROBLEMS["select"]))
    return round(share * number), round(share * skipped)


def training_options(task: Task) -> list[click.Parameter]:
    """Return the options and arguments of one training."""
    number, skipped = _PROBLEMS[task]
    datasets = [benchmark.name for benchmark in benchmarks.DATASETS.values() if benchmark.training]
    path, scaled = click.Path(path_type=Path), "; of a smaller dataset, the same share"
    model = "a known name, a Hugging Face id, or a folder."
    run = "Use the data of this run, a run folder or a run id, instead of new data."
    accepted = "Train on the GSM8K test questions 500 to 999 too, as SCoT's program does; the manifest counts them."
    data_dir = "Folder of <dataset>.jsonl files; also HARNESS_DATA_DIR."
    preset, dataset = "Models and settings for a machine.", f"Training data.  [default: the preset's, else {DATASET}]"
    before = f"Problems to skip before them.  [default: {skipped}{scaled}]"
    hints = get_type_hints(Settings)
    return [
        click.Option(["--run"], type=path, help=run),
        click.Option(["--draft"], help=f"Draft model: {model}"),
        click.Option(["--target"], help=f"Target model: {model}"),
        click.Option(["--output"], type=path, required=True, help="Folder to write."),
        click.Option(["--preset"], type=click.Choice(list(hyperparameters.presets())), help=preset),
        click.Option(["--dataset"], type=click.Choice(datasets), help=dataset),
        FurtherOption(["--accept-test-questions"], is_flag=True, help=accepted),
        click.Option(
            ["--problems"], type=click.IntRange(1), help=f"Problems of the dataset.  [default: {number}{scaled}]"
        ),
        FurtherOption(["--skip"], type=click.IntRange(0), help=before),
        click.Option(["--runs"], type=path, default="runs", show_default=True, help="Folder of run folders."),
        FurtherOption(["--data-dir"], type=click.Path(exists=True, path_type=Path), help=data_dir),
        click.Option(["--dry-run"], is_flag=True, help="Print what would be done, and exit."),
        *(_setting_option(setting, hints[setting.name], task) for setting in dataclasses.fields(Settings)),
        click.Argument(["launch_flags"], nargs=-1, type=click.UNPROCESSED, metavar="[-- LAUNCH_FLAGS…]"),
    ]


def _setting_option(setting: dataclasses.Field[Any], kind: Any, task: Task) -> click.Option:
    default, spelled = getattr(hyperparameters.DEFAULTS[task], setting.name), flag(setting.name)
    if kind is bool:
        off = f"--no-{spelled.removeprefix('--')}"
        default, spelled = (spelled if default else off).removeprefix("--"), f"{spelled}/{off}"
    return FurtherOption(
        [spelled, setting.name],
        type=click.Choice(get_args(kind)) if get_args(kind) else kind,
        default=None,
        help=f"{setting.metadata['help']}  [default: {default}]",
    )
