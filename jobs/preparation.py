"""Prepare a launch without writing anything: validate, plan and size the run, check the budget, print the plan.

Estimates come from the warehouse (warehouse.suites.run_cost). This is library code: it raises; only commands exit.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from harness.cli.messages import counted
from harness.cli.program import typed as command
from harness.cli.screen import printable
from harness.engines import calls, placement
from harness.methods.plugins import OwnCode
from harness.problems.problem import Problem
from harness.settings.launch_settings import SBATCH, Cluster, Launch, PartialLaunch
from harness.sizing.memory import Option, cards_of_worker
from jobs import after, graders
from jobs.finished.grading import gold_of
from jobs.forecast import Forecast, check_forecasts, in_words, so_far, total_of
from jobs.run import codes, files, sizing
from jobs.run import timing as timings
from jobs.run.endings import num_unfinished
from jobs.run.folder import RunFolder, run_folder
from jobs.run.plan import RunPlan, check_new, plan
from jobs.run.sizing import lines_for_launch, no_gpus
from jobs.run.spec import ModelSpec, RunSpec
from jobs.slurm.client import resolve
from jobs.submission.here import num_cards

if TYPE_CHECKING:
    from grading.check import Finding
    from grading.records import Gold

_PLACES = {"slurm": "on Slurm", "local": "on this machine", "debug": "in this process"}
UNKNOWN = (
    "GPU-hours: unknown (no finished run with these settings in the database); run a few problems first (--limit 5)"
)
MOST_GRADED = 2_000
"""Maximum number of reference answers that a launch grades, spread over the dataset; this takes a second or two."""
_NAMED = 3
_MOST_CHARACTERS = 60
_ALONE = r"give only the answer; put words that the model must repeat in \text{…}"


@dataclass(frozen=True)
class PreparedLaunch:
    """A valid launch: its plan, where it runs, and the options of sbatch."""

    launch: Launch
    cluster: Cluster
    plan: RunPlan
    run: RunFolder
    """The run folder, which may not exist yet."""
    sbatch: Mapping[str, Any]
    sizes: Sequence[str] = ()
    """Tensor-parallel size, memory share and cache of each engine, one line each, as far as known here."""
    code_notice: str | None = None
    """Notice that only other code has worked on the run, also listed in the plan; otherwise None."""
    grader: OwnCode | None = None
    """The custom grader; None: the built-in grader."""
    write_derived: Callable[[RunFolder], None] | None = None
    """Writes the file with the positions in another run at which problems start; None: not a continuation."""
    keeps_order: bool = False
    """Whether shards keep the order of the plan."""

    @property
    def num_shards(self) -> int:
        """The number of shards, at most the number of samples."""
        return min(self.launch.shards, self.plan.spec.num_samples)

    @cached_property
    def num_left(self) -> int:
        """The number of unfinished samples; read once."""
        return num_unfinished(self.run, whole=False) if self.run.exists() else self.plan.spec.num_samples

    @cached_property
    def num_to_time(self) -> int:
        """The number of samples not timed yet; read once."""
        return timings.num_left(self.launch.latency_sample, self.run)

    @property
    def is_work_left(self) -> bool:
        """Whether a worker has anything to do."""
        return bool(self.num_left or self.num_to_time)

    @cached_property
    def forecast(self) -> Forecast | None:
        """Estimated remaining cost; None if there are no data to estimate it from."""
        num_finished = self.plan.spec.num_samples - self.num_left
        own = so_far(self.run, num_finished, self.num_left) if num_finished and self.num_left else None
        return after.forecast(self.run, self.launch, self.plan.spec, self.num_left, own, self.num_to_time)


def distinct(launches: Iterable[PreparedLaunch]) -> list[PreparedLaunch]:
    """Return launches without duplicates: equal flags mean the same run."""
    return list({prepared.run.path: prepared for prepared in launches}.values())


def prepare(launch: Launch, typed: Collection[str] = ()) -> PreparedLaunch:
    """Resolve a launch without writing anything. `typed`: the names of the flags on the command line.

    Raises ValueError (including CodeChanged), ModelUnavailable, DatasetNotFound, BadDataset and WarehouseError, each
    with a one-line message.
    """
    _check_output(launch.output)
    calls.limit_seconds()  # validated now because the engines start much later
    sbatch = sbatch_options(launch)
    grader = graders.resolve(launch.grader)
    cluster = resolve(launch.cluster)
    planned = plan(launch, cluster, is_own_python=bool(sbatch.get("python")))
    if cluster == "slurm":
        check_cards(launch, planned.spec, sbatch)
        planned.notices.extend(no_gpus(planned.spec, sbatch))
    run = run_folder(launch.output, planned.spec)
    if not run.exists():
        is_here = cluster != "slurm" or not _prepares_python(sbatch)
        planned.notices.extend(check_new(launch, planned, typed, is_here=is_here))
        if planned.spec.dataset_origin is not None and grader is None:
            planned.notices.extend(check_golds(launch, planned.problems))
    sizes = lines_for_launch(launch, planned.spec, planned.problems, cluster, sbatch)
    if launch.target_logprobs and planned.spec.target is None:
        planned.notices.append(
            "--target-logprobs: this run has no target; when it has finished, run: python -m jobs target-logprobs RUN "
            "--target-of OTHER-RUN"
        )
    timings.check_request(launch.latency_sample, planned.spec, run)
    is_to_time = run.exists() and (launch.latency_sample or 0) != timings.progress(run).done
    notice = codes.check(run, accept=launch.accept_code_change, goes_on=bool(launch.latency_sample and is_to_time))
    planned.notices.extend([notice] if notice else [])
    if (database := after.database_of(run)).exists():  # checked now: the results of hours of work go there
        after.check(database)
    return PreparedLaunch(launch, cluster, planned, run, sbatch, sizes, notice, grader)


def check_engines(launches: Sequence[PreparedLaunch]) -> None:
    """Before anything is written or submitted, raise ValueError if the workers of a launch would lack the engine.

    Finished runs need no engine. If a profile sets `python` or `setup`, only the worker can check the engine, on its
    node.
    """
    for launch in launches:
        on_slurm = launch.cluster == "slurm"
        if not (on_slurm and _prepares_python(launch.sbatch)) and launch.num_left:
            profile = "set another python in the profile, " if on_slurm else ""
            kind = launch.plan.spec.engine.kind
            remedy = (
                "install vLLM there (python -m harness.installation, or pip install "
                f"'speculative-reasoning-harness[engine]'), {profile}or use --engine scripted, which runs no model"
            )
            sizing.check_engine(kind, f"--engine {kind}:", remedy)


def _prepares_python(sbatch: Mapping[str, Option]) -> bool:
    """Return whether the jobs may have another Python, other packages or variables than this process."""
    return bool(sbatch.get("python") or sbatch.get("setup"))


def check_cards(launch: Launch, spec: RunSpec, sbatch: Mapping[str, Option]) -> None:
    """Raise ValueError if sbatch's options give a worker fewer GPUs than its engines need."""
    of_worker, needed = cards_of_worker(sbatch, launch.workers_per_task), num_cards(spec)
    if of_worker is None:
        return
    placement.check({role: own.gpus for role, own in spec.settings.items()}, of_worker.count, "a worker has")
    if launch.workers_per_task > 1 and of_worker.count < needed:
        raise ValueError(
            f"--workers-per-task {launch.workers_per_task}: each worker gets {counted(of_worker.count, 'GPU')}, but "
            f"its engines need {needed}; use fewer workers or request more GPUs"
        )


def _check_output(folder: Path) -> None:
    """Raise ValueError if run folders cannot be written, before hours of work are spent."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    if not existing.is_dir():
        raise ValueError(f"--output {folder}: {existing} is not a folder")
    try:
        files.check_locks(existing)
    except files.LocksRefused as error:
        raise ValueError(f"--output {folder}: {error}") from error
    except OSError as error:  # permission bits are not conclusive, and root ignores them
        reason = error.strerror or str(error)
        raise ValueError(f"--output {folder}: cannot write in {existing}: {reason}; choose another folder") from error


def sbatch_options(launch: PartialLaunch) -> dict[str, Any]:
    """Return sbatch's options by their names, from the profile, `--slurm` and the flags. Raises ValueError."""
    flags = {word: value for word in SBATCH if (value := launch.sbatch.get(word)) is not None}
    if not (launch.profile or launch.slurm or flags):
        return {}
    from jobs.slurm import profiles

    return profiles.sbatch_options(launch.profile, launch.slurm, flags)


def print_plan(prepared: PreparedLaunch, console: Console, *, is_preview: bool = False) -> None:
    """Print the plan of a launch; a preview also reports an unknown cost."""
    spec = prepared.plan.spec
    say = partial(console.print, markup=False, soft_wrap=not console.is_terminal)
    for notice in prepared.plan.notices:
        say(notice, style="bold yellow")
    parameters = escape(", ".join(f"{name} {value}" for name, value in spec.params.items()))
    names_of_both = f"[bold]{escape(spec.method)}[/bold] on [bold]{escape(spec.dataset)}[/bold]"
    console.print(f"{names_of_both}: {parameters}", markup=True)
    for line in _settings(prepared):
        say(f"  {line}")
    if prepared.grader is not None:
        say(f"  graded by {graders.record_of(prepared.grader).version}")
    if spec.limited:
        of_all = f"{spec.num_problems} of {spec.dataset_size} problems"
        say(f"PARTIAL RUN: {of_all}; not comparable with published results.", style="bold yellow")
    if is_preview or is_cost_said(prepared):
        say(f"  {_cost_line(prepared)}")
    console.print(f"  run folder {prepared.run.path}", soft_wrap=True)


def _settings(prepared: PreparedLaunch) -> Iterator[str]:
    """Yield lines describing what a launch runs and where; default settings are omitted."""
    spec, engine = prepared.plan.spec, prepared.plan.spec.engine
    if own := spec.dataset_origin:
        yield f"problems: {f'{own.title}, ' if own.title else ''}{own.source}, hash {own.content}"
    names: dict[str, str] = {role: _named(model) for role, model in spec.models.items() if model}
    names |= {"selection adapter": spec.selection.name} if spec.selection else {}
    yield ", ".join(f"{role} {name}" for role, name in names.items())
    size = f"{counted(spec.num_problems, 'problem')} × {counted(spec.samples, 'sample')} = {spec.num_samples}"
    size += " (custom problems: --samples 1 by default)" if own and spec.samples == 1 else ""
    drawing = f"temperature {spec.temperature}, top-p {spec.top_p}"
    yield f"{size}, {drawing}, token budget {spec.token_budget}, seed {spec.seed}"
    for role, sampling in spec.sampling.items():
        if sampling:
            yield f"{role} " + ", ".join(f"{name.replace('_', '-')} {value}" for name, value in sampling.items())
    in_flight, shards = counted(spec.concurrency, "sample"), counted(prepared.num_shards, "shard")
    yield f"{engine.kind} engines, {in_flight} in flight per worker, {shards}, {_PLACES[prepared.cluster]}"
    if changed := list(spec.wording.changes):
        yield f"custom prompts: {', '.join(changed)}; hash {spec.prompt_hash}"
    for role, one in spec.settings.items():
        for what, table in (("template", one.template), ("engine", one.engine)):
            if table:
                yield f"{what} of the {role}: {', '.join(f'{name} {value}' for name, value in table.items())}"
        if one.thinking_tags:
            yield f"thinking tags of the {role}: {one.thinking_tags}"
    if engine.spec_decode is not None:
        model = f" ({spec.speculator.name})" if spec.speculator else ""
        drafts = f", {engine.spec_sampling} drafts" if engine.spec_sampling else ""
        yield f"token-level speculation: {engine.spec_decode}{model}, up to {engine.spec_tokens} at a time{drafts}"
    cards = {role: one.gpus for role, one in spec.settings.items() if one.gpus is not None}
    places = [f"{role} on {counted(len(n), 'GPU')} ({placement.written(n)})" for role, n in cards.items()]
    if places:
        yield f"{', '.join(places)} (indices among each worker's GPUs)"
    if asked := prepared.launch.latency_sample:
        yield f"latency: {counted(asked, 'sample')} will be rerun one at a time"
    yield from prepared.sizes


def _named(model: ModelSpec) -> str:
    kind = "" if model.server == sizing.UNKNOWN else f" of {model.server}"
    return model.name if model.server is None else f"{model.name} on a server{kind}"


def is_cost_said(prepared: PreparedLaunch) -> bool:
    """Return whether a launch prints its cost even without a preview: if a limit is set or the cost is known."""
    return prepared.launch.max_gpu_hours is not None or (prepared.is_work_left and prepared.forecast is not None)


def _cost_line(prepared: PreparedLaunch) -> str:
    if not prepared.is_work_left:
        return "GPU-hours: none; all samples are finished"
    if prepared.forecast is None and not prepared.plan.spec.engine.can.runs_models:
        return f"GPU-hours: no estimate; {prepared.plan.spec.engine.kind} engines run no model"
    return UNKNOWN if prepared.forecast is None else f"estimate: {in_words(prepared.forecast)}"


def total(launches: Sequence[PreparedLaunch]) -> str:
    """Return one line about the total remaining cost of several runs."""
    left = [prepared for prepared in distinct(launches) if prepared.is_work_left]
    if not left:
        return "Total: no samples left to run."
    return total_of([prepared.forecast for prepared in left])


def check_budget(launches: Sequence[PreparedLaunch]) -> None:
    """Raise ValueError if a limit is set, and the launches exceed it in total or the cost of one is unknown."""
    left = [prepared for prepared in distinct(launches) if prepared.is_work_left]
    limit = left[0].launch.max_gpu_hours if left else None
    if limit is not None:
        check_forecasts({prepared.run.path.name: prepared.forecast for prepared in left}, limit)


def check_golds(launch: PartialLaunch, problems: Sequence[Problem]) -> Iterator[str]:
    """Yield warnings about reference answers of a custom dataset that are prose or match no answer.

    Reference answers are graded as if they were answers, before a model runs. Raises ValueError if results would be
    silently wrong, because some reference answers are solutions from which a rule can extract the answer, or because no
    reference answer can be matched.
    """
    from grading.check import to_grade

    golds = tuple(gold_of(problem) for problem in problems)
    doubtful = to_grade(golds)
    chosen = tuple(doubtful[:: -(-len(doubtful) // MOST_GRADED) or 1])
    found = _findings(golds, chosen)
    given = {"--dataset": launch.dataset, "--columns": ",".join(launch.columns), "--split": launch.split}
    flags = [word for name, value in given.items() if value for word in (name, value)]
    more = f"to list all: {command('grading.check')} {join(flags)}"

    def told(indexes: Sequence[int]) -> str:
        problem, finding = problems[indexes[0]], found[indexes[0]]
        first = f'{problem.id} "{textwrap.shorten(problem.answer, _MOST_CHARACTERS)}" ({_graded(finding)})'
        names = ", ".join([printable(first), *(problems[index].id for index in indexes[1:_NAMED])])
        some = "at least " if len(chosen) < len(doubtful) else ""
        names += ", …" if len(indexes) > _NAMED else ""
        return f"{some}{len(indexes):,} of {len(golds):,} reference answers: {names}"

    unmet = [index for index, finding in found.items() if not finding.is_met]
    solutions = [index for index in unmet if (end := found[index].conclusion) is not None and end.rule]
    if solutions and (end := found[solutions[0]].conclusion):
        raise ValueError(
            f"--dataset {launch.dataset}: correct answers would be graded wrong, because they would be compared with "
            f'whole solutions: {told(solutions)}; if all rows have this form, set answer_rule = "{end.rule}" in a TOML '
            "file for the dataset to extract the answer"
        )
    if unmet and len(unmet) == len(chosen) and len(doubtful) == len(problems):
        raise ValueError(f"--dataset {launch.dataset}: no answer would be graded correct: {told(unmet)}; {_ALONE}")
    rejected = [index for index in unmet if found[index].rejected]
    prose = sorted((index for index in found if not found[index].rejected), key=lambda index: found[index].is_met)
    if rejected:
        yield f"UNMATCHABLE REFERENCE ANSWERS: {told(rejected)}; {more}"
    if prose:
        yield f"PROSE AS REFERENCE ANSWERS (sentences or several lines): {told(prose)}; {_ALONE}; {more}"


@lru_cache(maxsize=4)  # the runs of a suite share problems
def _findings(golds: tuple[Gold, ...], chosen: tuple[int, ...]) -> dict[int, Finding]:
    from grading.check import findings as graded

    return graded(golds, chosen)


def _graded(finding: Finding) -> str:
    end = finding.conclusion
    verdict = "correct" if finding.is_met else "wrong"
    return finding.rejected if end is None else f"{end.answer[:_MOST_CHARACTERS]} is graded {verdict}"
