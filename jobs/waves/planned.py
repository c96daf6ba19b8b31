"""What is compared in waves, before anything is written: the runs of a suite, or one launch and its baseline."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import isclose
from pathlib import Path

from harness.cli.program import typed as command
from harness.launch_options import Launch
from harness.plural import counted
from jobs import costs, launching, suite
from jobs.nights.record import NightRecord
from jobs.preparation import PreparedLaunch
from jobs.run import codes, waves
from jobs.run.endings import num_unfinished
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from jobs.run.wording import current_prompt_hash
from jobs.suite import Suite
from jobs.target_alone import target_alone
from jobs.waves import look_job


class NotInWaves(ValueError):
    """What was asked for is no comparison in waves; the message is one line."""


@dataclass(frozen=True)
class Planned:
    """A comparison in waves that was planned."""

    name: str
    output: Path
    """Folder of the run folders, the warehouse, the report and the record of the looks."""
    launches: Sequence[PreparedLaunch]
    """The runs that are drawn in waves, or go on so; each is there once."""
    baseline: RunFolder | None = None
    """The run that all others are compared with, which need not be launched here; None: each dataset's target alone."""

    @property
    def runs(self) -> list[RunFolder]:
        """The run folders of the launches."""
        return [launch.run for launch in self.launches]

    @property
    def all_alike(self) -> list[str]:
        """Names of the runs in which every sample of a problem is the same, because no model in them is sampled."""
        return [launch.run.path.name for launch in self.launches if launch.plan.spec.is_greedy]

    @property
    def page(self) -> Path:
        """Path of the report."""
        return self.output / f"{self.name}.html"

    @property
    def record(self) -> NightRecord:
        """The record of the looks on Slurm."""
        return look_job.record_of(self.output.resolve() / look_job.FOLDER, self.name)


def of_suite(chosen: Suite, tag: str | None, *, accept_code_change: bool = False) -> Planned:
    """Plan the runs of a suite in waves, without writing anything; a run that was begun with all samples keeps them.

    Raises NotInWaves, and what planning a launch raises.
    """
    prepared = _in_waves(suite.prepare(chosen, tag, accept_code_change=accept_code_change))
    for dataset in dict.fromkeys(launch.plan.spec.dataset for launch in prepared):
        if sum(launch.plan.spec.dataset == dataset for launch in prepared) < 2:
            raise NotInWaves(
                f"--until-decided: {dataset} has one run, and a comparison needs two: add the target alone"
            )
    name = f"{chosen.name}.{tag}" if tag else chosen.name
    return Planned(name, chosen.output, prepared)


def of_launch(launch: Launch, typed: Collection[str], baseline: Path | None = None) -> Planned:
    """Plan one launch in waves against its baseline, without writing anything.

    typed: the names of the flags that stood on the command line. baseline: the folder of a run with all its samples;
    None: the target alone under the same flags, which is drawn in waves too. Raises NotInWaves, and what planning a
    launch raises.
    """
    own = launching.prepare(launch, typed)
    if baseline is not None:
        _check_baseline(own, given := RunFolder(baseline))
        return Planned(own.run.path.name, launch.output, _in_waves([own]), given)
    alone = launching.prepare(target_alone(own))
    if alone.run.path == own.run.path:
        raise NotInWaves(
            "--until-decided: this run is the target alone, with which other runs are compared; valid: another method, "
            "or --baseline RUN"
        )
    shared = costs.under([alone, own], launch.max_gpu_hours)
    return Planned(own.run.path.name, launch.output, _in_waves(shared), alone.run)


def check_decisions(planned: Planned, margin: float) -> None:
    """Raise NotInWaves where what earlier looks decided is not what is asked now, or has stopped a needed baseline.

    margin: as a fraction. A decision stands, so that the error rate of its looks does.
    """
    states = {launch.run.path.name: waves.read(launch.run) for launch in planned.launches if launch.run.exists()}
    decided = {name: state for name, state in states.items() if state is not None and state.margin is not None}
    rest = "; without --until-decided all of its samples are drawn"
    for name, state in decided.items():
        if state.margin is not None and not isclose(state.margin, margin):
            raise NotInWaves(
                f"--margin {100 * margin:g}: {name} was decided with a margin of {100 * state.margin:g} points; "
                f"valid: that one{rest}"
            )
        asked = planned.baseline.path.name if planned.baseline else state.baseline
        if state.baseline is not None and state.baseline != asked:
            raise NotInWaves(
                f"--until-decided: {name} was decided against {state.baseline}; valid: that baseline{rest}"
            )
    stopped = [name for name, state in decided.items() if state.baseline is None and state.is_stopped]
    is_open = [name not in decided and states.get(name, True) is not None for name in map(_name, planned.launches)]
    if stopped and any(is_open):
        raise NotInWaves(
            f"--until-decided: {stopped[0]} was stopped when its earlier comparisons were decided, so that a further "
            f"run has nothing to be compared with{rest}; --baseline names it then"
        )


def _name(launch: PreparedLaunch) -> str:
    return launch.run.path.name


def _in_waves(prepared: Sequence[PreparedLaunch]) -> list[PreparedLaunch]:
    distinct = list({launch.run.path: launch for launch in prepared}.values())
    specs = [launch.plan.spec for launch in distinct]
    if len(numbers := sorted({spec.samples for spec in specs})) > 1 or numbers[0] < waves.LEAST_SAMPLES:
        shown = ", ".join(map(str, numbers))
        raise NotInWaves(
            f"--until-decided: samples {shown}; valid: one number for all runs, at least {waves.LEAST_SAMPLES}"
        )
    if all(spec.is_greedy for spec in specs):
        raise NotInWaves(
            "--until-decided: at temperature 0 every sample of a problem is the same, so that further waves show "
            "nothing; valid: a temperature above 0, or --samples 1 without --until-decided"
        )
    if any(launch.launch.latency_sample for launch in distinct):
        raise NotInWaves("--until-decided: latency-sample is for runs with all their samples; leave it out")
    if len({launch.cluster for launch in distinct}) > 1:
        raise NotInWaves("--until-decided: the runs are on several clusters; valid: one cluster for all runs")
    return [replace(launch, in_waves=True) for launch in distinct]


def _check_baseline(own: PreparedLaunch, baseline: RunFolder) -> None:
    """Raise NotInWaves where a run cannot be the baseline of a launch in waves."""
    name, spec, base = baseline.path.name, own.plan.spec, baseline.spec()
    if baseline.path.resolve() == own.run.path.resolve():
        reason = "it is this run itself; valid: another run"
    elif baseline.path.resolve().parent != own.run.path.resolve().parent:
        reason = f"it is not in {own.run.path.parent}, whose database has the comparison; valid: a run there (--output)"
    elif (base.dataset, base.dataset_hash) != (spec.dataset, spec.dataset_hash):
        reason = f"its problems are not those of this run; valid: a run on the same problems of {spec.dataset}"
    elif differs := _first_difference(spec, base):
        reason = f"{differs}; valid: a run that differs in its method alone"
    elif _prompts_of_today(baseline, base) != base.prompt_hash:
        reason = (
            f"it was begun with other built-in prompts ({base.prompt_hash}) than this code sends; valid: a run with "
            "the same prompts, which its launch begins anew"
        )
    elif base.samples < spec.samples:
        reason = f"it has {counted(base.samples, 'sample')} per problem; valid: {spec.samples} or more, as this run"
    elif (begun := waves.read(baseline)) is not None and not begun.is_whole:
        reason = "not all of its samples are drawn; valid: a run with all of them, which its launch without waves adds"
    elif missing := num_unfinished(baseline):
        resume = f"{command('jobs resume')} {baseline.path}"
        reason = f"{counted(missing, 'sample is', 'samples are')} not finished; to finish it: {resume}"
    else:
        return
    raise NotInWaves(f"--baseline {name}: {reason}")


def _prompts_of_today(run: RunFolder, spec: RunSpec) -> str:
    """Return the hash of the prompts that this code sends for the method of a run."""
    codes.method_of(run)
    return current_prompt_hash(spec.method, spec.params, spec.wording)


def _first_difference(spec: RunSpec, base: RunSpec) -> str | None:
    """Return in words how a baseline's conditions differ from those of a run; None where they do not."""
    for name, own, other in (
        ("temperature", spec.temperature, base.temperature),
        ("top-p", spec.top_p, base.top_p),
        ("token budget", spec.token_budget, base.token_budget),
    ):
        if own != other:
            return f"its {name} is {other:g}, and this run's {own:g}"
    if spec.target and base.target and spec.target.fingerprint != base.target.fingerprint:
        return f"its target is {base.target.name}, and this run's {spec.target.name}, or has other weights"
    return "its prompts have another wording" if spec.wording != base.wording else None
