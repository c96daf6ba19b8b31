"""`python -m harness.train align|select`: SCoT's two trainings, on data that the harness makes itself.

    python -m harness.train align  --draft SMALL --target LARGE --output aligned
    python -m harness.train select --draft aligned --target LARGE --output selector
    python -m harness.launch --method scot --draft aligned --target LARGE --target.adapter selector --dataset gsm8k

Each launches the run that generates its data (everything after `--` is passed to harness.launch), or takes one by
`--run`, then trains. The same command again resumes. See harness/training/README.md.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from harness import environment
from harness.cli.command import OneLineErrors, OneLineGroup
from harness.problems import benchmarks
from harness.training import flags
from harness.training.flags import TrainingRequest
from harness.training.hyperparameters import Task
from harness.weights import models

if TYPE_CHECKING:
    from harness.training.tuning import Base
    from jobs.run.folder import RunFolder
    from jobs.run.spec import ModelSpec, RunSpec


@click.group(cls=OneLineGroup)
def main() -> None:
    """Train SCoT's draft (section 3.3) and its selection (section 3.4)."""


def _command(task: Task, text: str) -> OneLineErrors:
    def train(**values: Any) -> None:
        from jobs.outcome import launch_errors_in_one_line

        if find_spec("peft") is None:
            raise click.UsageError("training needs peft: pip install 'speculative-reasoning-harness[train]'")
        with launch_errors_in_one_line():
            request = flags.training_request(task, values)
            _align(request) if task == "align" else _select(request)

    text += "\n\nEverything after `--` is passed to harness.launch, which generates the data."
    command = OneLineErrors(task, params=flags.training_options(task), callback=train, help=text)
    main.add_command(command)
    return command


align = _command(
    "align", "Align the draft with the target's reasoning. OUTPUT becomes the merged model, for use as --draft."
)
select = _command(
    "select", "Train the target to select a draft. OUTPUT becomes LoRA weights, for use as --target.adapter."
)


def _align(request: TrainingRequest) -> None:
    draft = request.draft or models.default_pair("scot", environment.accelerator())["draft"]
    base = _base(models.resolve(draft))
    run = _data_run(request)
    if run is None:
        return
    spec, target, source = _checked_data(request, run)
    from harness.training.session import Session
    from harness.training.training_examples import alignment_examples, chain_loss
    from harness.weights.tokenizer import HFTokenizer
    from jobs.finished.training_data import target_chains

    settings = request.settings
    tokenizers = HFTokenizer(base.path, base.revision), HFTokenizer(target.path, target.revision)
    problems = {problem.id: problem for problem in run.problems()}
    examples = alignment_examples(target_chains(run), problems, *tokenizers, settings.max_tokens, spec.wording)
    Session("align", request.output, base, settings, chain_loss).run(examples, source, click.echo)
    click.echo(f"Aligned draft: {request.output}. Next:")
    click.echo(
        f"  python -m harness.train select --draft {request.output} --target {target.path} "
        f"--dataset {spec.dataset} --output FOLDER"
    )


def _select(request: TrainingRequest) -> None:
    run = _data_run(request)
    if run is None:
        return
    spec, target, source = _checked_data(request, run)
    assert spec.draft is not None
    base = _base(models.resolve(target.path, target.revision))
    if base.fingerprint != target.fingerprint:
        raise ValueError(f"{base.path} is no longer the target that {run.path.name} ran with")
    from grading import grader_version
    from harness.training.session import Session
    from harness.training.training_examples import LOSSES, selection_examples
    from harness.weights.tokenizer import HFTokenizer
    from jobs.finished.training_data import graded_drafts
    from warehouse.candidates import grade_candidates

    grade_candidates(run)
    settings = request.settings
    problems = {problem.id: problem for problem in run.problems()}
    tokenizer = HFTokenizer(base.path, base.revision)
    offers = graded_drafts(run, grader_version())
    examples = selection_examples(offers, problems, tokenizer, settings.max_tokens, spec.wording)
    session = Session("select", request.output, base, settings, LOSSES[settings.label_loss])
    session.run(examples, {**source, "grader_version": grader_version()}, click.echo)
    click.echo(f"Selection adapter: {request.output}. Next:")
    benchmark = spec.dataset.removesuffix("-train").removesuffix("-scot")
    click.echo(
        f"  python -m harness.launch --method scot --draft {spec.draft.path} --target {base.path} "
        f"--target.adapter {request.output} --dataset {benchmark}"
    )


def _base(reference: models.ModelRef) -> Base:
    from harness.training.tuning import Base

    return Base(reference.path_or_hub_id, reference.revision, reference.identity)


def _data_run(request: TrainingRequest) -> RunFolder | None:
    """Return the run that holds the data; None where it is not finished yet, or in a dry run.

    Raises ValueError, before any model loads, where it would not be training data.
    """
    from rich.console import Console

    from harness.training import contamination
    from jobs.drive import drive, preview
    from jobs.preparation import prepare
    from jobs.run import endings
    from jobs.run.folder import RunFolder
    from jobs.run.folder_name import run_path

    if request.run is not None:
        run = RunFolder(run_path(str(request.run)))
        if not run.exists():
            raise ValueError(f"--run {request.run} is not a run folder: it has no events.jsonl")
        _print_plan(request, f"the data of {request.run}")
        return None if request.dry_run else run
    launch = request.data_launch()
    accepts = request.accept_test_questions
    contamination.training_data(launch.dataset, accepts_test_questions=accepts)
    dataset = benchmarks.load(launch.dataset, launch.data_dir, launch.seed)
    chosen = benchmarks.select(dataset, launch.limit, launch.problems)
    contamination.check(chosen, launch.data_dir, accepts_test_questions=accepts)
    _print_plan(request, f"{request.num_problems} problems after skipping {request.num_skipped}")
    console = Console(highlight=False)
    prepared = prepare(launch)
    if request.dry_run:
        preview(prepared, console)
        return None
    [run] = drive([[prepared]], console)
    if unfinished := endings.num_unfinished(run):
        click.echo(f"{unfinished} samples are not finished yet. When they are, run the same command again to train.")
        return None
    return run


def _checked_data(request: TrainingRequest, run: RunFolder) -> tuple[RunSpec, ModelSpec, dict[str, Any]]:
    """Return the run's specification, its target, and what the manifest of the training says of it.

    Raises ValueError where it is no training data.
    """
    from harness.training import contamination
    from jobs.finished.training_data import check
    from jobs.run.state import compact

    check(run, request.task)
    spec = run.spec()
    accepts = request.accept_test_questions
    contamination.training_data(spec.dataset, accepts_test_questions=accepts)
    comparison = contamination.check(run.problems(), request.data_dir, accepts_test_questions=accepts)
    compact(run)
    assert spec.target is not None
    source = {
        "run_id": run.path.name,
        "run_spec": json.loads(spec.to_json()),
        "compared_with": comparison.compared,
        "not_compared_with": comparison.missing_benchmarks,
        "test_questions": dict(comparison.accepted),
    }
    for name, number in comparison.accepted.items():
        click.echo(f"WARNING: {number} training problems are test questions of {name}; no result on these is one.")
    others = [name for name in comparison.compared if name not in comparison.accepted]
    click.echo(f"No training problem occurs in: {', '.join(others)}.")
    if comparison.missing_benchmarks:
        click.echo(f"WARNING: not compared with {', '.join(comparison.missing_benchmarks)}, which were not found here.")
    return spec, spec.target, source


def _print_plan(request: TrainingRequest, data: str) -> None:
    settings = request.settings
    click.echo(f"{request.task}: {data}")
    click.echo("  " + ", ".join(f"{name} {value}" for name, value in asdict(settings).items()))


if __name__ == "__main__":
    main(prog_name="python -m harness.train")
