"""A probe as a run of its own: the target alone on problems that begin inside the probed run's chains.

So it is sharded, resumed, graded and loaded like any other run. The same command draws the same points and so resumes
it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console

from harness.cli.program import typed
from harness.engine import Role
from harness.methods.parameters import method_parameters
from harness.methods.references import resolve
from harness.plural import counted
from harness.problems.problem import DatasetOrigin, Problem, dataset_hash
from harness.settings.launch_settings import Launch
from jobs import launching
from jobs.preparation import PreparedLaunch, sbatch_options
from jobs.probing.points import Point, Population, draw, problems_of
from jobs.run import codes, endings, served, trace_files
from jobs.run.folder import RunFolder
from jobs.run.folder_name import run_folder
from jobs.run.plan import RunPlan
from jobs.run.sizing import lines_for_launch
from jobs.run.spec import RunSpec, check_model, current_prompt_hash
from jobs.submission.submit import resolve as resolve_cluster

_METHOD = "vanilla"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_OF_THE_PAIR = (
    "draft", "reward", "speculator", "method_source", "preset", "tag",
)  # fmt: skip
"""Fields of a specification that a run of the target alone does not have."""
_OF_THE_PAIRS_ENGINES = ("spec_decode", "spec_tokens", "spec_sampling", "logprobs")


class CannotProbe(ValueError):
    """The run cannot be probed; the message is one line."""


@dataclass(frozen=True)
class Probe:
    """A probe that was planned: the launch of its run, and the points behind its problems."""

    source: RunFolder
    prepared: PreparedLaunch
    points: Sequence[Point]
    population: Population


def plan(
    source: RunFolder,
    num_points: int,
    rollouts: int,
    seed: int,
    flags: Mapping[str, object],
    *,
    is_preview: bool = False,
) -> Probe:
    """Draw the points and prepare the run that continues the chains, which is not written.

    Journals of the probed run are compacted, unless `is_preview`: then nothing is written at all.

    `flags`: where it runs, as flags of a launch, and `concurrency`. Raises ValueError, one line each: CannotProbe,
    NothingToProbe and what a launch raises.
    """
    spec = source.spec()
    if spec.target is None:
        raise CannotProbe(f"{source.path.name} has no target, which a probe continues its chains with")
    check_model(source.path.name, spec.target)
    points, population = draw(source, num_points, seed, writes=not is_preview)
    name = f"probe-{source.path.name if _NAME.fullmatch(source.path.name) else spec.run_id}"
    problems = problems_of(points, {problem.id: problem for problem in source.problems()}, name)
    where = {"output": str(source.path.parent), **flags, "samples": rollouts}
    launch = Launch.from_flags({**where, "method": _METHOD, "dataset": str(source.spec_path)})
    own = _spec(spec, launch, name, problems, seed)
    servers: dict[Role, str] = {role: address for role, address in served.recorded(source).items() if role == "target"}
    planned = RunPlan(own, problems, [*_notices(source, points, population, num_points)], servers)
    sbatch, cluster = sbatch_options(launch), resolve_cluster(launch.cluster)
    sizes = lines_for_launch(own, problems, cluster, sbatch, launch.workers_per_task)
    run = run_folder(launch.output, own)
    notice = codes.check(run, accept=launch.accept_code_change)
    prepared = PreparedLaunch(launch, cluster, planned, run, sbatch, sizes, notice)
    return Probe(source, prepared, points, population)


def start(probe: Probe, console: Console) -> RunFolder:
    """Create the probe's run with its points, and start or resume it. Raises what `launching.start` does."""
    run = probe.prepared.run
    launching.check([probe.prepared])
    create(probe)
    launching.carry_out(probe.prepared, console)
    if endings.num_unfinished(run):
        console.print(f"Its result, once it has ended:  {typed('warehouse.probed')} {run.path.name}", soft_wrap=True)
    return run


def create(probe: Probe) -> None:
    """Create the probe's run with its points, unless it is there."""
    launching.create(probe.prepared)
    _write_points(probe.prepared.run, probe)


def _write_points(run: RunFolder, probe: Probe) -> None:
    path = run.probe_dir / "points.parquet"
    if path.exists():
        return
    run.probe_dir.mkdir(exist_ok=True)
    planned = probe.prepared.plan
    kept = set(trace_files.PROBE_POINTS.names)
    rows = [
        {
            **{name: value for name, value in vars(point).items() if name in kept},
            "draft_problem_id": planned.problems[2 * number].id,
            "own_problem_id": planned.problems[2 * number + 1].id,
            "source_run_id": probe.source.path.name,
            "num_ending": probe.population.num_ending,
        }
        for number, point in enumerate(probe.points)
    ]
    trace_files.write_table(path, trace_files.PROBE_POINTS, rows, {trace_files.RUN_KEY: planned.spec.run_id})


def _spec(spec: RunSpec, launch: Launch, name: str, problems: list[Problem], seed: int) -> RunSpec:
    """Return the specification of the target alone with everything else as the probed run has it."""
    params = method_parameters(resolve(_METHOD), {"model": "target"}, frozenset())
    content = dataset_hash(problems)
    none: dict[str, Any] = dict.fromkeys(_OF_THE_PAIRS_ENGINES)
    without_pair: dict[str, Any] = dict.fromkeys(_OF_THE_PAIR)
    engine = replace(spec.engine, take_turns=False, **none)
    assert spec.target is not None  # looked at by `plan`
    target = replace(spec.target, memory=None, adapter=None)
    return replace(
        spec,
        **without_pair,
        target=target,
        method=_METHOD,
        params=params,
        dataset=name,
        dataset_hash=content,
        dataset_size=len(problems),
        num_problems=len(problems),
        samples=launch.samples,
        seed=seed,
        engine=engine,
        concurrency=launch.concurrency,
        prompt_hash=current_prompt_hash(_METHOD, params, spec.wording),
        dataset_origin=DatasetOrigin(f"probe of {name.removeprefix('probe-')}", content),
    )


def _notices(source: RunFolder, points: Sequence[Point], population: Population, num_points: int) -> list[str]:
    total, refused = sum(population.strata.values()), sum(not point.accepted for point in points)
    lines = [
        f"PROBE of {source.path.name}: {counted(len(points), 'point')} drawn from {counted(total, 'decision')}, "
        f"{len(points) - refused} where the draft was accepted and {refused} where it was refused."
    ]
    if number := population.num_ending:
        lines.append(f"{counted(number, 'decision')} about the end of the reply cannot be continued and are left out.")
    if unfinished := endings.num_unfinished(source):
        lines.append(f"UNFINISHED: {counted(unfinished, 'sample')} of {source.path.name} cannot be drawn from.")
    return lines
