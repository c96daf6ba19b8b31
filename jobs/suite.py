"""A suite: a file that defines a group of launches.

# slurm/suites/nightly.toml
output = "runs/nightly"           # launch flags without the leading --, for every run …
profile = "mycluster"
dataset = "amc23"
max-gpu-hours = 200               # rejects the suite if all runs together need more
target-logprobs = true            # score all chains with the target: nats per token in the report

[[run]]                           # … and for one run
method = "vanilla"

[[run]]
method = "speccot"
drafts = [3, 5]                   # a list: one run per value, or per combination of several lists
row = "SpecCoT"                   # name of its row in the suite's table (python -m harness.reproduce FILE)

[latency]                         # repeat every run with one sample in flight and these flags
limit = 12

[probe]                           # after the runs, measure the value of accepted and rejected drafts
points = 100                      # see jobs.continuations.probe.ProbeSettings

[nightly]                         # only used by `jobs nightly`: see NightSettings
recoveries = 5
since = 2026-05-07                # earlier nights are not a baseline, because a change was intended

[nightly.slurm]                   # sbatch options of the verdict job, whose exit code is the verdict
mail-type = "FAIL"
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from rich.console import Console

from harness.cli.messages import counted, first_error
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
from jobs import after, preparation
from jobs.continuations import probe
from jobs.continuations.probe import ProbeSettings
from jobs.drive import Schedule, drive
from jobs.outcome import Outcome
from jobs.preparation import PreparedLaunch, distinct, print_plan
from jobs.run import submissions

DEFAULT_OUTPUT, NIGHTLY_OUTPUT = "runs", "runs/nightly"
"""Default output folders of suites and of nights."""
_NOT_IN_A_SUITE = {"tag", "dry-run", "config", "accept-code-change"}
_ONCE = {"output": "all runs share a database", "max_gpu_hours": "it limits the whole suite, not one run"}
_PARAMETERS = "parameters."
_REPEATED = {name for name, one in {**settings_of(Launch), **ROLE_SETTINGS}.items() if one.is_repeated}
"""Flags that take several values: a list for such a flag is a single setting instead of one run per value."""
_Table = TypeVar("_Table", bound=BaseModel)


class BadSuite(ValueError):
    """A suite that cannot be launched; the message is one line."""


class NightSettings(BaseModel):
    """The table `[nightly]`: recovery limits and settings of the verdict job."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recoveries: Annotated[int, Field(ge=0, le=100)] = 5
    """Maximum number of times per night that a run's unfinished samples are submitted or started again."""
    since: date | None = None
    """Nights before this date are ignored, because results have changed intentionally since."""
    slurm: Mapping[str, str | int | bool] = {}
    """sbatch options of the verdict job."""


@dataclass(frozen=True)
class Suite:
    """A group of launches from one file."""

    name: str
    output: Path
    """Folder for run folders and their database."""
    launches: tuple[Launch, ...]
    nightly: NightSettings = field(default_factory=NightSettings)
    rows: tuple[str | None, ...] = ()
    """Row name in the suite's table for each launch; None: no name given."""
    probe: ProbeSettings | None = None
    """Probe settings for runs that judge drafts; None: no probe."""


def read(path: Path, default_output: str = DEFAULT_OUTPUT, overrides: Mapping[str, Any] | None = None) -> Suite:
    """Read a suite file and validate each launch.

    `overrides`: flags that override those of every run, by name with underscores; a hyper-parameter applies only to
    runs whose method has it. Raises BadSuite.
    """
    try:
        content = read_toml(path)
    except ValueError as error:
        raise BadSuite(str(error)) from error
    try:
        return _suite(path, content, default_output, overrides or {})
    except ValueError as error:
        raise BadSuite(f"{path}: {error}") from error


def _suite(path: Path, content: dict[str, Any], default_output: str, overrides: Mapping[str, Any]) -> Suite:
    """Validate the content of a suite file. Raises a one-line ValueError."""
    runs, latency = content.pop("run", []), content.pop("latency", None)
    nightly = _from_table(NightSettings, "nightly", content.pop("nightly", {}))
    probed = _from_table(ProbeSettings, "probe", content.pop("probe")) if "probe" in content else None
    if not (isinstance(runs, list) and runs and all(isinstance(run, dict) for run in runs)):
        raise ValueError("no runs; add at least one [[run]] table of launch flags")
    if not (latency is None or (isinstance(latency, dict) and latency.get("concurrency", 1) == 1)):
        raise ValueError("[latency]: expected a table of launch flags; concurrency, if set, must be 1")
    content, runs = _flat(content), [_flat(run) for run in runs]
    again = [] if latency is None else [_flat(latency)]
    for flags in (content, *runs, *again):
        if misplaced := _NOT_IN_A_SUITE & {key.replace("_", "-") for key in flags}:
            raise ValueError(f"not allowed in a suite: {', '.join(sorted(misplaced))}")
    for name, why in _ONCE.items():
        if any(name in flags for flags in (*runs, *again)):
            raise ValueError(f"set {name.replace('_', '-')} once at the top: {why}")
    profile = overrides.get("profile") or content.get("profile")
    of_profile = layers.flags_of_profile(None if profile is None else str(profile))
    output = str({"output": default_output, **of_profile, **content, **overrides}["output"])
    content["output"] = output
    launches: list[tuple[str | None, Launch]] = []
    alone: list[tuple[str | None, Launch]] = []
    for number, run in enumerate(runs, 1):
        own = _launches(f"run {number}", content, run, path.parent, overrides)
        launches += own
        # Skip runs that already have one sample in flight.
        for flags in again if all(request.concurrency > 1 for _, request in own) else ():
            run_alone = {**_flags(run, flags), "concurrency": 1}
            with_one = {name: value for name, value in overrides.items() if name != "concurrency"}
            alone += _launches(f"[latency], run {number}", content, run_alone, path.parent, with_one)
    known = [request for _, request in launches]
    launches += [(row, request) for row, request in alone if request not in known]
    rows, requests = tuple(row for row, _ in launches), tuple(request for _, request in launches)
    return Suite(path.stem, Path(output), requests, nightly, rows, probed)


def _from_table(model: type[_Table], name: str, table: object) -> _Table:
    """Validate a table of a suite's file. Raises a one-line ValueError."""
    try:
        return model.model_validate(table)
    except ValidationError as error:
        raise ValueError(f"[{name}]: {first_error(error, model)}") from error


def _launches(
    where: str, common: dict[str, Any], run: dict[str, Any], folder: Path, overrides: Mapping[str, Any]
) -> list[tuple[str | None, Launch]]:
    """Return row name and launch for every run of a table. Raises ValueError."""
    try:
        expanded = _runs(common, run, folder)
        return [(row, layers.launch_from(_overridden(flags, overrides))) for row, flags in expanded]
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _runs(common: dict[str, Any], run: dict[str, Any], folder: Path) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """Yield row name and flags for every run of a `[[run]]` table. Raises ValueError.

    There is one run per combination of list values; values of the first list change slowest.
    """
    row = run.get("row")
    if not (row is None or (isinstance(row, str) and row.strip())):
        raise ValueError("row: expected text, the name of the row in the suite's table")
    flags = _flags(common, {name: value for name, value in run.items() if name != "row"})
    lists = {name: value for name, value in flags.items() if isinstance(value, list)}
    swept = {name: values for name, values in lists.items() if name.replace("-", "_") not in _REPEATED}
    if empty := [name for name, values in swept.items() if not values]:
        raise ValueError(f"{empty[0]}: empty list; valid: a value or a list of values to run")
    for values in itertools.product(*swept.values()):
        chosen = {**flags, **dict(zip(swept, values, strict=True))}
        models = {str(role): chosen.pop(role) for role in ROLES if isinstance(chosen.get(role), Mapping)}
        parameters = {name: chosen.pop(name) for name in flags if name.startswith(_PARAMETERS)}
        own = {name.removeprefix(_PARAMETERS): value for name, value in parameters.items()}
        chosen |= {**flattened(models), **({"parameters": own} if own else {})}
        yield row, layers.with_files_beside(chosen, folder)


def _overridden(flags: Mapping[str, Any], overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the flags with overrides, except for hyper-parameters of other methods. Raises ValueError."""
    if not overrides:
        return flags
    method = layers.merged_flags(flags).get("method")
    own = set(defaults(resolve(str(method)))) if method else set()
    foreign = set(parameter_names()) - own
    applicable = {name: value for name, value in overrides.items() if name not in foreign}
    left = without_replaced(flags, applicable)
    return {**left, **applicable}


def _flags(common: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """Return the flags of a table, with defaults from `common`."""
    return {**without_replaced(common, run), **run}


def _flat(table: dict[str, Any]) -> dict[str, Any]:
    """Return the flags of a table with the nested tables of models and parameters flattened."""
    flags = flattened(table)
    parameters = flags.pop("parameters", {})
    if not isinstance(parameters, dict):
        raise ValueError("parameters: expected a table of hyper-parameters")
    return {**flags, **{f"{_PARAMETERS}{name}": value for name, value in parameters.items()}}


def prepare(
    suite: Suite, tag: str | None, only: Sequence[int] | None = None, *, accept_code_change: bool = False
) -> list[PreparedLaunch]:
    """Plan the runs of a suite; nothing is written.

    `tag`: tag of every run; None: as in the file. `only`: numbers of the runs to plan; None: all. `accept_code_change`:
    resume runs that were started with other code. Raises the errors of planning a launch.
    """
    launches = suite.launches if only is None else [suite.launches[number] for number in only]
    changes = {**({"tag": tag} if tag else {}), **({"accept_code_change": True} if accept_code_change else {})}
    return [preparation.prepare(request.changed(**changes)) for request in launches]


def preview(launches: Sequence[PreparedLaunch], console: Console) -> None:
    """Print the plan of each run, the number of remaining samples and the estimated cost.

    Writes nothing. Raises ValueError.
    """
    launches = distinct(launches)
    for prepared in launches:
        print_plan(prepared, console, is_preview=True)
    num_left, to_time = (sum(prepared.num_left for prepared in launches), sum(one.num_to_time for one in launches))
    num_samples = counted(sum(prepared.plan.spec.num_samples for prepared in launches), "sample")
    timed = f", {counted(to_time, 'sample')} to rerun one at a time" if to_time else ""
    console.print(preparation.total(launches), soft_wrap=True)
    console.print(f"{counted(len(launches), 'run')}: {num_left} of {num_samples} left{timed}")
    preparation.check_budget(launches)


def rounds(launches: Sequence[PreparedLaunch], settings: ProbeSettings | None, console: Console) -> Schedule:
    """Return the rounds of a suite: its runs, all planned before the first one starts, then their probes."""
    return itertools.chain([launches], probe.rounds(launches, settings, console))


def carry_out(
    known: Outcome,
    suite: Suite,
    tag: str | None,
    *,
    is_dry: bool = False,
    waits: bool = False,
    accept_code_change: bool = False,
) -> None:
    """Launch the runs of a suite, probe them if configured, and compare them, even if a probe fails.

    On Slurm without `waits`, print the commands for the comparison. Fills in `known`. Raises the errors of planning
    and driving launches (see `jobs.drive`).
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
    print(f"When the jobs have ended, run:\n  {typed('warehouse.compare')} {folders}")
    print(f"  {typed('warehouse.report')} {folders} -o {quote(str(page))}")


def _compare(known: Outcome, page: Path) -> None:
    after.compare_and_report(known.runs, page)
    known.found["report"] = str(page)
