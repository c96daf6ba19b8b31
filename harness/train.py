"""`python -m harness.train align|select`: SCoT's two trainings, on data that the harness makes itself.

    python -m harness.train align  --draft SMALL --target LARGE --output aligned
    python -m harness.train select --draft aligned --target LARGE --output selector
    python -m harness.launch --method scot --draft aligned --target LARGE --selection-adapter selector --dataset gsm8k

Each launches the run that makes its data (whatever stands behind `--` goes to harness.launch), or takes one by `--run`,
then trains. The same command again goes on where it stopped. See harness/training/README.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness import benchmarks, environment, models, options
from harness.command import OneLineErrors, OneLineGroup
from harness.training import flags

if TYPE_CHECKING:
    from harness.training.questions import Checked
    from harness.training.settings import Preset, Settings, Task
    from harness.training.tuning import Base
    from jobs.run.folder import RunFolder
    from jobs.run.spec import RunSpec


@click.group(cls=OneLineGroup)
def main() -> None:
    """Train SCoT's draft (section 3.3) and its selection (section 3.4)."""


@main.command(cls=OneLineErrors)
@flags.of("align")
def align(**given: Any) -> None:
    """Write OUTPUT, the draft aligned with the target's way of thinking, merged: a model folder for --draft.

    What stands behind `--` goes to harness.launch, which makes the data.
    """
    _one_line(lambda: _align(given))


@main.command(cls=OneLineErrors)
@flags.of("select")
def select(**given: Any) -> None:
    """Write OUTPUT, LoRA weights of the target for choosing a draft: a folder for --selection-adapter.

    What stands behind `--` goes to harness.launch, which makes the data.
    """
    _one_line(lambda: _select(given))


def _one_line(work: Callable[[], None]) -> None:
    if find_spec("peft") is None:
        raise click.UsageError("training needs peft: pip install 'speculative-reasoning-harness[train]', or peft>=0.13")
    from jobs.command import launch_errors_in_one_line

    with launch_errors_in_one_line():
        work()


def _align(given: Mapping[str, Any]) -> None:
    chosen, settings = flags.chosen("align", given)
    draft = chosen.draft or models.default_pair("scot", environment.accelerator()).draft
    base = _base(models.resolve(draft))
    run = _data_run("align", given, chosen, settings, base)
    if run is None:
        return
    source, spec, checked = _checked("align", run, given["data_dir"])
    from harness.tokenizer import HFTokenizer
    from harness.training import align as method
    from harness.training.session import Session
    from jobs.after.training_data import target_chains

    assert spec.target is not None
    tokenizers = HFTokenizer(base.path, base.revision), HFTokenizer(spec.target.path, spec.target.revision)
    problems = {problem.id: problem for problem in run.problems()}
    examples = method.examples(target_chains(run), problems, *tokenizers, settings.max_tokens)
    _say_checked(checked)
    Session("align", given["output"], base, settings, method.chain_loss).run(examples, source, click.echo)
    click.echo(f"Aligned draft: {given['output']}. Next:")
    click.echo(
        f"  python -m harness.train select --draft {given['output']} --target {spec.target.path} "
        f"--dataset {spec.dataset} --output FOLDER"
    )


def _select(given: Mapping[str, Any]) -> None:
    chosen, settings = flags.chosen("select", given)
    run = _data_run("select", given, chosen, settings, None)
    if run is None:
        return
    source, spec, checked = _checked("select", run, given["data_dir"])
    assert spec.target is not None
    assert spec.draft is not None
    base = _base(models.resolve(spec.target.path, spec.target.revision))
    if base.fingerprint != spec.target.fingerprint:
        raise ValueError(f"{base.path} is no longer the target that {run.path.name} ran with")
    from grading import grader_version
    from harness.tokenizer import HFTokenizer
    from harness.training import select as method
    from harness.training.session import Session
    from jobs.after.training_data import graded_drafts
    from warehouse.candidates import grade_candidates

    grade_candidates(run)
    problems = {problem.id: problem for problem in run.problems()}
    tokenizer = HFTokenizer(base.path, base.revision)
    examples = method.examples(graded_drafts(run, grader_version()), problems, tokenizer, settings.max_tokens)
    _say_checked(checked)
    session = Session("select", given["output"], base, settings, method.LOSSES[settings.label_loss])
    session.run(examples, {**source, "grader_version": grader_version()}, click.echo)
    click.echo(f"Selection adapter: {given['output']}. Next:")
    click.echo(
        f"  python -m harness.launch --method scot --draft {spec.draft.path} --target {base.path} "
        f"--selection-adapter {given['output']} --dataset {spec.dataset.removesuffix('-train')}"
    )


def _base(reference: models.ModelRef) -> Base:
    from harness.training.tuning import Base

    fingerprint = reference.fingerprint or f"{reference.path_or_hub_id}@{reference.revision or 'unpinned'}"
    return Base(reference.path_or_hub_id, reference.revision, fingerprint)


def _data_run(
    task: Task, given: Mapping[str, Any], chosen: Preset, settings: Settings, base: Base | None
) -> RunFolder | None:
    """The run that holds the data; None where it is at work elsewhere, or was not to be made.

    Raises ValueError, before any model loads, where it would not be training data.
    """
    from rich.console import Console

    from harness.training import questions
    from jobs import launching
    from jobs.run.endings import by_shard, read_endings
    from jobs.run.folder import RunFolder

    dry = bool(given["dry_run"])
    if given["run"] is not None:
        _say_plan(task, settings, base, f"the data of {given['run']}", dry=dry)
        return None if dry else RunFolder(given["run"])
    launch = options.launch_from(flags.launch_flags(task, given, chosen))
    questions.training_data(launch.dataset)
    dataset = benchmarks.load(launch.dataset, launch.data_dir, launch.seed)
    questions.check(benchmarks.select(dataset, launch.limit, launch.problems), launch.data_dir)
    number, skipped = flags.span(task, given)
    _say_plan(task, settings, base, f"{number} problems behind the first {skipped}", dry=dry)
    console = Console(highlight=False)
    prepared = launching.planned(launch)
    if dry:
        launching.preview(prepared, console)
        return None
    run = launching.start(prepared, console)
    if left := by_shard(run, read_endings(run)).num_unfinished:
        click.echo(
            f"{left} samples of the data are not finished yet. Once they are, run the same command again to train."
        )
        return None
    return run


def _checked(task: Task, run: RunFolder, data_dir: Path | None) -> tuple[dict[str, Any], RunSpec, Checked]:
    """What is said of a run as the source of data, and its specification. Raises ValueError where it is none."""
    from harness.training import questions
    from jobs.after.training_data import check
    from jobs.run.state import compact

    check(run, task)
    spec = run.spec()
    questions.training_data(spec.dataset)
    checked = questions.check(run.problems(), data_dir)
    compact(run)
    source = {
        "run_id": run.path.name,
        "run_spec": json.loads(spec.to_json()),
        "compared_with": checked.compared,
        "not_compared_with": checked.not_found,
    }
    return source, spec, checked


def _say_checked(checked: Checked) -> None:
    click.echo(f"No problem is a question of {', '.join(checked.compared)}.")
    if checked.not_found:
        click.echo(f"WARNING: not compared with {', '.join(checked.not_found)}, which are not to be found here.")


def _say_plan(task: Task, settings: Settings, base: Base | None, data: str, *, dry: bool) -> None:
    from dataclasses import asdict

    click.echo(f"{task}: {data}")
    click.echo("  " + ", ".join(f"{name} {value}" for name, value in asdict(settings).items()))
    config = Path(base.path) / "config.json" if base is not None else None
    if dry and config is not None and config.is_file():
        from harness.training import memory

        shape = memory.Shape.read(json.loads(config.read_text(encoding="utf-8")))
        needed = memory.estimate(shape, settings, settings.max_tokens if task == "align" else 1)
        click.echo(f"  at most about {needed.total / 2**30:.1f} GiB in bfloat16, with examples of the longest kind")


if __name__ == "__main__":
    main(prog_name="python -m harness.train")
