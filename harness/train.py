"""`python -m harness.train align|select`: SCoT's two trainings, on data that the harness makes itself.

    python -m harness.train align  --draft SMALL --target LARGE --output aligned
    python -m harness.train select --draft aligned --target LARGE --output selector
    python -m harness.launch --method scot --draft aligned --target LARGE --target.adapter selector --dataset gsm8k

Each launches the run that generates its data (everything after `--` is passed to harness.launch), or takes one by
`--run`, then trains. The same command again resumes. See docs/methods.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from harness import environment
from harness.cli.command import FurtherOption, OneLineErrors, OneLineGroup
from harness.problems import benchmarks
from harness.settings.declaration import in_one_line, settings_of, validated
from harness.settings.launch_command import parsed_flags, setting_option
from harness.settings.roles import flattened
from harness.training.tuning import DEFAULTS, Settings, Task, presets
from harness.weights import models

DATASET = "gsm8k-train"
_PROBLEMS: Mapping[Task, tuple[int, int]] = {"align": (1500, 0), "select": (500, 1500)}
"""Number of problems (sections 3.3 and 3.4), and how many before them are skipped: selection is learned on drafts of
questions that the draft was not aligned on. The paper does not say whether its 500 are among the 1,500; in its
authors' program they are."""


@dataclass(frozen=True)
class TrainingRequest:
    """What a training is asked to do: where its data comes from, its models, its settings and its output."""

    task: Task
    draft: str | None
    settings: Settings
    data_flags: Mapping[str, Any]
    """Flags of the launch that makes the data."""
    output: Path
    """Folder to write."""
    run: Path | None
    """Run folder with the data; None: it is made by a launch."""
    data_dir: Path | None
    accept_test_questions: bool
    """Whether the test questions that SCoT's program trains on may be trained on."""
    dry_run: bool


def training_request(task: Task, values: Mapping[str, Any]) -> TrainingRequest:
    """Build a request from the values of the options: flags on top of the preset.

    Raises ValueError, also where the output folder holds something else, and click.UsageError where the words behind
    `--` are not flags of harness.launch.
    """
    preset = presets()[values["preset"]] if values["preset"] else {}
    output: Path = values["output"]
    if output.exists() and not (output.is_dir() and ((output / "training").is_dir() or not any(output.iterdir()))):
        raise ValueError(f"--output {output} exists and has no training in it: give another folder")
    dataset = values["dataset"] or preset.get("dataset", DATASET)
    number, skipped = default_span(task, dataset)
    number = number if values["problems"] is None else values["problems"]
    skipped = skipped if values["skip"] is None else values["skip"]
    models_of_task = {role: values[role] or preset.get(role) for role in ("draft", "target")}
    by_task = (
        {"method": "vanilla", "model": "target", "draft": None} if task == "align" else {"method": "scot", "drafts": 5}
    )
    settings = {name.replace("-", "_"): value for name, value in preset.get(task, {}).items()}
    data = settings.pop("data", {})
    settings |= {name: values[name] for name in settings_of(Settings) if values[name] is not None}
    launch_flags = {
        "dataset": dataset,
        "samples": 1,
        "problems": f"{skipped}-{skipped + number - 1}",
        "output": values["runs"],
        "data_dir": values["data_dir"],
        **models_of_task,
        **by_task,
        **flattened(data),
        **parsed_flags(values["launch_flags"]),
    }
    try:
        checked = validated(Settings, {**dataclasses.asdict(DEFAULTS[task]), **settings})
    except ValidationError as error:
        raise ValueError(in_one_line(error)) from error
    names = ("output", "run", "data_dir", "accept_test_questions", "dry_run")
    return TrainingRequest(
        task, models_of_task["draft"], checked, launch_flags, **{name: values[name] for name in names}
    )


def default_span(task: Task, dataset: str) -> tuple[int, int]:
    """Return the number of problems and of those skipped before them; of a smaller dataset, the same share."""
    number, skipped = _PROBLEMS[task]
    if dataset == benchmarks.SCOT_PROGRAM:
        return number, 0  # of that program, whose 500 are the first of its 1,500
    share = min(1.0, benchmarks.DATASETS[dataset].count / sum(_PROBLEMS["select"]))
    return round(share * number), round(share * skipped)


def _options(task: Task) -> list[click.Parameter]:
    number, skipped = _PROBLEMS[task]
    datasets = [benchmark.name for benchmark in benchmarks.DATASETS.values() if benchmark.training]
    path, share = click.Path(path_type=Path), "; of a smaller dataset, the same share"
    model = "a known name, a Hugging Face id, or a folder."
    accepted = "Train on the GSM8K test questions 500 to 999 too, as SCoT's program does; the manifest counts them."
    before = f"Problems to skip before them.  [default: {skipped}{share}]"
    data_dir = "Folder of <dataset>.jsonl files; also HARNESS_DATA_DIR."
    option, further = click.Option, FurtherOption
    return [
        option(["--run"], type=path, help="Use the data of this run, a run folder or a run id, instead of new data."),
        option(["--draft"], help=f"Draft model: {model}"),
        option(["--target"], help=f"Target model: {model}"),
        option(["--output"], type=path, required=True, help="Folder to write."),
        option(["--preset"], type=click.Choice(list(presets())), help="Models and settings for a machine."),
        option(
            ["--dataset"], type=click.Choice(datasets), help=f"Training data.  [default: the preset's, else {DATASET}]"
        ),
        further(["--accept-test-questions"], is_flag=True, help=accepted),
        option(["--problems"], type=click.IntRange(1), help=f"Problems of the dataset.  [default: {number}{share}]"),
        further(["--skip"], type=click.IntRange(0), help=before),
        option(["--runs"], type=path, default="runs", show_default=True, help="Folder of run folders."),
        further(["--data-dir"], type=click.Path(exists=True, path_type=Path), help=data_dir),
        option(["--dry-run"], is_flag=True, help="Print what would be done, and exit."),
        *map(setting_option, settings_of(Settings).values()),
        click.Argument(["launch_flags"], nargs=-1, type=click.UNPROCESSED, metavar="[-- LAUNCH_FLAGS…]"),
    ]


@click.group(cls=OneLineGroup)
def main() -> None:
    """Train SCoT's draft (section 3.3) and its selection (section 3.4)."""


def _command(task: Task, text: str) -> OneLineErrors:
    def train(**values: Any) -> None:
        from jobs.outcome import launch_errors_in_one_line

        if find_spec("peft") is None:
            raise click.UsageError("training needs peft: pip install 'speculative-reasoning-harness[train]'")
        with launch_errors_in_one_line():
            _train(training_request(task, values))

    text += "\n\nEverything after `--` is passed to harness.launch, which generates the data."
    command = OneLineErrors(task, params=_options(task), callback=train, help=text)
    main.add_command(command)
    return command


align = _command(
    "align", "Align the draft with the target's reasoning. OUTPUT becomes the merged model, for use as --draft."
)
select = _command(
    "select", "Train the target to select a draft. OUTPUT becomes LoRA weights, for use as --target.adapter."
)


def _train(request: TrainingRequest) -> None:
    from harness.training import training_examples, tuning
    from harness.weights.tokenizer import HFTokenizer
    from jobs.finished import training_data

    is_select, draft = request.task == "select", None
    if not is_select:
        draft = models.resolve(request.draft or models.default_pair("scot", environment.accelerator())["draft"])
    run = training_data.run_of(request)
    if run is None:
        return
    spec, target, source = training_data.checked(request, run)
    reference = draft or models.resolve(target.path, target.revision)
    if is_select and reference.identity != target.fingerprint:
        raise ValueError(f"{target.path} is no longer the target that {run.path.name} ran with")
    settings, problems = request.settings, {problem.id: problem for problem in run.problems()}
    path, rest = reference.path_or_hub_id, (settings.max_tokens, spec.wording)
    tokenizer = HFTokenizer(path, reference.revision)
    if is_select:
        offers = training_data.graded_drafts(run)
        examples = training_examples.selection_examples(offers, problems, tokenizer, *rest)
        loss = training_examples.best_label_loss
    else:
        of_target = HFTokenizer(target.path, target.revision)
        examples = training_examples.alignment_examples(
            training_data.target_chains(run), problems, tokenizer, of_target, *rest
        )
        loss = training_examples.chain_loss
    tuning.train(request.task, request.output, reference, settings, loss, examples, source, click.echo)
    if is_select:
        assert spec.draft is not None
        benchmark = spec.dataset.removesuffix("-train").removesuffix("-scot")
        following = f"launch --method scot --draft {spec.draft.path} --target {path} --target.adapter {request.output}"
        click.echo(f"Selection adapter: {request.output}. Next:\n  python -m harness.{following} --dataset {benchmark}")
    else:
        following = f"train select --draft {request.output} --target {target.path} --dataset {spec.dataset}"
        click.echo(f"Aligned draft: {request.output}. Next:\n  python -m harness.{following} --output FOLDER")


if __name__ == "__main__":
    main(prog_name="python -m harness.train")
