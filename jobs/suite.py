"""A suite: launches that belong together, as a file.

# slurm/suites/nightly.toml
output = "runs/nightly"           # flags of harness.launch without their dashes, for every run …
profile = "mycluster"
dataset = "amc23"
max-gpu-hours = 200               # nothing begins where all runs together need more
target-logprobs = true            # the target reads the chains of all runs: nats per token in the report

[[run]]                           # … and for one
method = "vanilla"
latency-sample = 100              # its latency with one sample in flight, from 100 samples timed again

[[run]]
method = "speccot"
drafts = [3, 5]                   # a list: one run for each value; of several lists, for every combination
row = "SpecCoT"                   # its name in the suite's table (python -m harness.reproduce FILE)

[latency]                         # every run once more, with one sample in flight and these flags
limit = 12

[probe]                           # what accepted and refused drafts were worth, once the runs are finished
points = 100                      # see jobs.probe.ProbeSettings

[nightly]                         # only `jobs nightly` reads this: see NightSettings
recoveries = 5
since = 2026-05-07                # nights before it are no baseline: a change after them was intended

[nightly.slurm]                   # options of sbatch for the verdict job alone, whose exit code is the verdict
mail-type = "FAIL"
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from rich.console import Console

from harness.cli.messages import counted
from harness.cli.program import typed
from harness.cli.screen import terminal
from harness.cli.toml_file import read_toml
from harness.methods import defaults, parameter_names
from harness.methods.references import resolve
from harness.settings import layers
from harness.settings.declaration import ROLES, settings_of
from harness.settings.launch_settings import Launch
from harness.settings.roles import ROLE_SETTINGS, flattened
from harness.sizing.memory import without_replaced
from jobs import after, preparation, probe
from jobs.drive import Schedule, drive
from jobs.outcome import SuiteOutcome
from jobs.preparation import NO_TARGET, PreparedLaunch, distinct, print_plan
from jobs.probe import ProbeSettings
from jobs.run import submissions

DEFAULT_OUTPUT, NIGHTLY_OUTPUT = "runs", "runs/nightly"
"""Where the runs of a suite without `output` go. Until nights had a folder of their own, all went to the second."""
_NOT_IN_A_SUITE = {"tag", "dry-run", "config", "accept-code-change"}
_REPEATED = {name for name, one in {**settings_of(Launch), **ROLE_SETTINGS}.items() if one.is_repeated}
"""Flags that take several values at once, so that a list of them is one setting."""
_Table = TypeVar("_Table", bound=BaseModel)


class BadSuite(ValueError):
    """A suite that cannot be launched; the message is one line."""


class NightSettings(BaseModel):
    """The table `[nightly]`: how a night recovers, and what its verdict job is given."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recoveries: Annotated[int, Field(ge=0, le=100)] = 5
    """Most times that the night itself submits what is unfinished of a run again."""
    since: date | None = None
    """Nights before this date are ignored, because a change after them was intended."""
    slurm: Mapping[str, str | int | bool] = {}
    """Options of sbatch for the verdict job alone."""


@dataclass(frozen=True)
class Suite:
    """Launches that belong together."""

    name: str
    output: Path
    """Folder of their run folders and their warehouse."""
    launches: tuple[Launch, ...]
    nightly: NightSettings = field(default_factory=NightSettings)
    rows: tuple[str | None, ...] = ()
    """For each launch the name that the file gives its row of a table; None: none."""
    probe: ProbeSettings | None = None
    """How the runs that judge drafts are probed at the end; None: they are not."""


def read(path: Path, default_output: str = DEFAULT_OUTPUT, overrides: Mapping[str, Any] | None = None) -> Suite:
    """Read a suite's file and validate each of its launches.

    overrides: flags on top of those of every run, by name with underscores; a hyper-parameter applies to the runs whose
    method has it. Raises BadSuite.
    """
    try:
        content = read_toml(path)
    except ValueError as error:
        raise BadSuite(str(error)) from error
    runs, latency = content.pop("run", []), content.pop("latency", None)
    try:
        nightly = _from_table(NightSettings, "nightly", content.pop("nightly", {}))
        probed = _from_table(ProbeSettings, "probe", content.pop("probe")) if "probe" in content else None
    except ValueError as error:
        raise BadSuite(f"{path}: {error}") from error
    if not (isinstance(runs, list) and runs and all(isinstance(run, dict) for run in runs)):
        raise BadSuite(f"{path}: no runs; add at least one [[run]] table of launch flags")
    _check_latency(path, latency)
    try:
        content, runs = flattened(content), [flattened(run) for run in runs]
        latency = None if latency is None else flattened(latency)
    except ValueError as error:
        raise BadSuite(f"{path}: {error}") from error
    own_flags = [*runs, *([latency] if latency else [])]
    for flags in (content, *own_flags):
        if misplaced := _NOT_IN_A_SUITE & {key.replace("_", "-") for key in flags}:
            raise BadSuite(f"{path}: not allowed in a suite: {', '.join(sorted(misplaced))}")
    if any("output" in flags for flags in own_flags):
        raise BadSuite(f"{path}: set output once at the top: all runs share a warehouse")
    if any("max_gpu_hours" in flags for flags in own_flags):
        raise BadSuite(f"{path}: set max-gpu-hours once at the top: it is the limit of all runs together")
    overrides = overrides or {}
    try:
        profile = overrides.get("profile") or content.get("profile")
        of_profile = layers.flags_of_profile(None if profile is None else str(profile))
    except ValueError as error:
        raise BadSuite(f"{path}: {error}") from error
    output = {"output": default_output, **of_profile, **content, **overrides}["output"]
    content["output"] = str(output)
    launches = list(_launches(path, content, runs, latency, overrides))
    rows, requests = tuple(row for row, _ in launches), tuple(request for _, request in launches)
    return Suite(path.stem, Path(str(output)), requests, nightly, rows, probed)


def _from_table(model: type[_Table], name: str, table: object) -> _Table:
    """Validate a table of a suite's file. Raises ValueError with one line."""
    try:
        return model.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        known = f"; the keys are {', '.join(model.model_fields)}" if first["type"] == "extra_forbidden" else ""
        raise ValueError(f"[{name}]: {place} {first['input']}: {first['msg']}{known}") from error


def _check_latency(path: Path, latency: object) -> None:
    """Raise BadSuite where what the file says of runs with one sample in flight is not a table of flags for them."""
    if latency is None:
        return
    if not isinstance(latency, dict):
        raise BadSuite(f"{path}: latency: expected a table [latency] of launch flags")
    if latency.get("concurrency", 1) != 1:
        raise BadSuite(
            f"{path}: [latency]: concurrency {latency['concurrency']}: these runs have one sample in flight; "
            "for another number, add a [[run]]"
        )


def _launches(
    path: Path,
    common: dict[str, Any],
    runs: Sequence[dict[str, Any]],
    latency: dict[str, Any] | None,
    overrides: Mapping[str, Any],
) -> Iterator[tuple[str | None, Launch]]:
    """Yield the name of its row and the launch of every run: all of the tables `[[run]]`, then those of `[latency]`.

    A table that has a run with one sample in flight already has no other one, and a run that the file has already is
    not repeated. Raises BadSuite.
    """
    again, own = [], list[Launch]()
    for number, run in enumerate(runs, 1):
        launches = list(_of_table(f"{path}: run {number}", common, run, path.parent, overrides))
        yield from launches
        own += [request for _, request in launches]
        if latency is not None and all(request.concurrency > 1 for _, request in launches):
            again.append((f"{path}: [latency], run {number}", _flags(run, latency) | {"concurrency": 1}))
    applicable = {name: value for name, value in overrides.items() if name != "concurrency"}
    for where, run in again:
        repeated = _of_table(where, common, run, path.parent, applicable)
        yield from ((row, request) for row, request in repeated if request not in own)


def _of_table(
    where: str, common: dict[str, Any], run: dict[str, Any], folder: Path, overrides: Mapping[str, Any]
) -> Iterator[tuple[str | None, Launch]]:
    try:
        for row, flags in _runs(common, run, folder):
            yield row, layers.launch_from(_overridden(flags, overrides))
    except ValueError as error:
        raise BadSuite(f"{where}: {error}") from error


def _runs(common: dict[str, Any], run: dict[str, Any], folder: Path) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """Yield the row's name and the flags of every run that a table `[[run]]` stands for. Raises ValueError."""
    row = run.get("row")
    if not (row is None or (isinstance(row, str) and row.strip())):
        raise ValueError("row: expected the name of a row of the suite's table")
    own = {name: value for name, value in run.items() if name != "row"}
    for flags in _expanded(_flags(common, own)):
        yield row, layers.with_files_beside(flags, folder)


def _expanded(flags: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the flags of every run that a table stands for: one for every combination of the values of its lists.

    The first list's values change slowest, and lists in the table `parameters` count too. Raises ValueError for an
    empty list.
    """
    swept, inner = _swept(flags), _parameters(flags)
    for (name, _), values in swept.items():
        if not values:
            raise ValueError(f"{name}: an empty list; valid: a value, or a list of the values to run")
    for values in itertools.product(*swept.values()):
        run, own = dict(flags), dict(inner)
        for (name, is_parameter), value in zip(swept, values, strict=True):
            (own if is_parameter else run)[name] = value
        models = {str(role): run.pop(role) for role in ROLES if isinstance(run.get(role), Mapping)}
        run |= flattened(models)
        yield {**run, "parameters": own} if any(is_parameter for _, is_parameter in swept) else run


def _swept(flags: Mapping[str, Any]) -> dict[tuple[str, bool], Sequence[Any]]:
    """Return the lists of values by flag, and whether it is one of the table `parameters`."""
    own = {(name, False): value for name, value in flags.items() if _is_swept(name, value)}
    return own | {(name, True): value for name, value in _parameters(flags).items() if isinstance(value, list)}


def _parameters(flags: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = flags.get("parameters")
    return parameters if isinstance(parameters, Mapping) else {}


def _is_swept(name: str, value: object) -> bool:
    return isinstance(value, list) and name.replace("-", "_") not in _REPEATED


def _overridden(flags: Mapping[str, Any], overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the flags with others on top, without hyper-parameters of other methods. Raises ValueError."""
    if not overrides:
        return flags
    method = layers.merged_flags(flags).get("method")
    own = set(defaults(resolve(str(method)))) if method else set()
    foreign = set(parameter_names()) - own
    applicable = {name: value for name, value in overrides.items() if name not in foreign}
    left = without_replaced(flags, applicable)
    return {**left, **applicable}


def _flags(common: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """Return the flags of a table on top of those that apply to it, such as of a `[[run]]` on the common ones."""
    flags = {**without_replaced(common, run), **run}
    tables = [table for table in (common.get("parameters"), run.get("parameters")) if isinstance(table, dict)]
    if len(tables) > 1:
        flags["parameters"] = tables[0] | tables[1]
    return flags


def prepare(
    suite: Suite, tag: str | None, only: Sequence[int] | None = None, *, accept_code_change: bool = False
) -> list[PreparedLaunch]:
    """Plan every run of a suite, or some by number, under a tag, without writing anything.

    `accept_code_change`: whether to go on with runs that other code began. Raises what planning a launch raises.
    """
    launches = suite.launches if only is None else [suite.launches[number] for number in only]
    changes = {**({"tag": tag} if tag else {}), **({"accept_code_change": True} if accept_code_change else {})}
    return _with_assigned_targets([preparation.prepare(request.changed(**changes)) for request in launches])


def _with_assigned_targets(launches: Sequence[PreparedLaunch]) -> list[PreparedLaunch]:
    """Let the target of the other launches read the chains of those that ask for it and have none.

    Nothing changes on Slurm, where this process has no GPU, and where the others have several targets or none: their
    notice says what to do.
    """
    targets = {other.plan.spec.target.fingerprint: other.run for other in launches if other.plan.spec.target}
    if len(targets) != 1:
        return list(launches)
    [target_of] = targets.values()
    return [
        replace(
            prepared,
            launch=prepared.launch.changed(target_logprobs=False),  # its workers have no target
            plan=replace(prepared.plan, notices=[line for line in prepared.plan.notices if line != NO_TARGET]),
            target_of=target_of,
        )
        if prepared.launch.target_logprobs and prepared.plan.spec.target is None and prepared.cluster != "slurm"
        else prepared
        for prepared in launches
    ]


def preview(launches: Sequence[PreparedLaunch], console: Console) -> None:
    """Print what each run of a suite would do, how many samples are left, and what they are likely to take.

    Writes nothing. Raises OverBudget.
    """
    launches = distinct(launches)
    for prepared in launches:
        print_plan(prepared, console, is_preview=True)
        planned = counted(prepared.plan.spec.num_samples, "sample")
        console.print(f"  {prepared.num_left} of {planned} left{_to_time(prepared.num_to_time)}", highlight=False)
    num_left = sum(prepared.num_left for prepared in launches)
    num_samples = counted(sum(prepared.plan.spec.num_samples for prepared in launches), "sample")
    to_time = _to_time(sum(prepared.num_to_time for prepared in launches))
    console.print(preparation.total(launches), soft_wrap=True)
    console.print(f"{counted(len(launches), 'run')}: {num_left} of {num_samples} left{to_time}")
    preparation.check_budget(launches)


def _to_time(number: int) -> str:
    return f", {counted(number, 'sample')} to be timed alone" if number else ""


def rounds(launches: Sequence[PreparedLaunch], settings: ProbeSettings | None, console: Console) -> Schedule:
    """Return the rounds of a suite: its runs, which are all planned before the first is started, then their probes."""
    return itertools.chain([launches], probe.rounds(launches, settings, console))


def carry_out(
    known: SuiteOutcome,
    suite: Suite,
    tag: str | None,
    *,
    is_dry: bool = False,
    waits: bool = False,
    accept_code_change: bool = False,
) -> None:
    """Launch the runs of a suite, probe them where it asks for it, and compare them, also where a probe fails.

    On Slurm, unless it `waits`, it says how to compare them. `known` is filled as it goes. Raises what planning and
    driving launches raises (see `jobs.drive`).
    """
    console = terminal()
    launches = distinct(prepare(suite, tag, accept_code_change=accept_code_change))
    known.runs = [prepared.run for prepared in launches]
    if is_dry:
        preview(launches, console)
        if suite.probe is not None:
            console.print(probe.in_words(launches, suite.probe), soft_wrap=True)
        return
    drive([launches], console, waits=waits)
    page = suite.output / f"{suite.name}.html"
    is_ended = waits or not any(submissions.read(run) for run in known.runs)
    try:
        drive(probe.rounds(launches, suite.probe, console), console, waits=waits)
    except Exception:
        if is_ended:
            _compare(known, page)
        raise
    if is_ended:
        _compare(known, page)
        return
    folders = " ".join(quote(str(run.path)) for run in known.runs)
    print(f"Once their jobs have ended:\n  {typed('warehouse.compare')} {folders}")
    print(f"  {typed('warehouse.report')} {folders} -o {quote(str(page))}")


def _compare(known: SuiteOutcome, page: Path) -> None:
    after.compare_and_report(known.runs, page)
    known.report = page
