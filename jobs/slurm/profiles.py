"""Options of sbatch: a cluster's profile, flags that override it, and options passed through unchanged.

# slurm/clusters/mycluster.toml
partition = "gpu"
time = "4:00:00"
gpus-per-node = 2                                     # or with a type: "h100:2"
gpu-memory = "80GB"                                   # of one GPU, if its type is ambiguous; not passed to sbatch
array-parallelism = 64                                # maximum number of concurrent array tasks, sbatch's %64
requeue = false                                       # a switch; false means --no-requeue
setup = ["module load cuda/12.4"]                     # lines of the batch script before the worker; or one string
srun = ["--mpi=none"]                                 # additional arguments of srun; or one string
python = "apptainer exec --nv /scratch/vllm.sif python3"  # Python of jobs (jobs.slurm.python_command)

[finalize]                                            # the job that grades, loads and reports; tables must come last
partition = "cpu"                                     # overrides a default (no GPU, 4 GB) or an inherited option

[launch]                                              # defaults of launches
output = "/scratch/$USER/runs"                        # parent of the run folders (harness.settings.layers)
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from harness.cli.messages import did_you_mean
from harness.settings import layers
from harness.sizing.memory import GPU_MEMORY, Option, cards_of_job, without_replaced
from jobs.slurm import python_command

FINALIZE = "finalize"
"""Table of a profile: sbatch options of the job that grades, loads and reports."""
_FINALIZER_CORES = 4
"""Maximum number of cores of the grading job unless the table [finalize] sets cores; one grading process per core."""
_FINALIZER_MEMORY = "4G"
_OF_FINALIZER = frozenset(
    {
        *("account", "clusters", "comment", "exclude", "export", "export-file", "get-user-env", "mail-type"),
        *("mail-user", "mcs-label", "nice", "no-requeue", "partition", "priority", "qos", "requeue"),
        *("setup", "srun", "time", "wckey", python_command.KEY, *python_command.PYXIS),
    }
)
"""Worker options that the grading job inherits: options needed for submission, and the Python.

Options for nodes, cores, memory or GPUs are not inherited, except `exclude`, which lists broken nodes. `dependency` is
not inherited: the job depends on the workers, and so indirectly on their dependencies.
"""
_OWN_LISTS = frozenset({"setup", "srun", python_command.KEY})
"""Keys whose lists stay lists; for other keys, lists are joined with commas for sbatch."""
_LOGS = "logs are in the run folder (python -m jobs logs RUN); --output sets the parent folder of run folders"
_ONLY_BY_HARNESS = {
    "array": "the harness sets the array indices; use array-parallelism=N to limit how many tasks run at once",
    "job-name": "the harness uses job names to find its jobs; use comment=TEXT for your own text",
    "output": _LOGS,
    "error": _LOGS,
    "open-mode": "fixed, because a requeued task must append to its log",
    "signal": "workers are signalled 10 to 120 s before the time limit, to save the steps in flight",
}
"""Rejected options with the reason; all others are validated by sbatch."""
_NOT_FOR_SBATCH = {"time", GPU_MEMORY, FINALIZE, python_command.KEY, *python_command.PYXIS}
"""Keys of a profile that are not passed to sbatch, or are passed in another form."""
_NAMES = resources.files("jobs.slurm") / "profile_keys.txt"
_KEYS = frozenset(_NAMES.read_text(encoding="utf-8").split()) | python_command.PYXIS
"""Known keys of profiles, mostly sbatch options; used to suggest corrections for typos."""
DEFAULT_TIME = "4:00:00"
_NO_LIMIT = {"unlimited", "infinite", "-1"}
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")


def load(name: str) -> dict[str, Any]:
    """Read the sbatch options of a profile, given by file name or path. Raises ValueError."""
    options = {key: value for key, value in layers.profile(name).items() if key != layers.LAUNCH}
    for key, value in options.items():
        _check_type(key, value)
    return {key: _joined(key, value) for key, value in options.items()}


def sbatch_options(profile: str | None, pairs: Sequence[str], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a profile, `KEY=VALUE` pairs and flags; later ones take precedence. Raises ValueError.

    A pair or flag that requests GPUs replaces all GPU options of the profile.
    """
    typed: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--slurm {pair}: expected KEY=VALUE, e.g. partition=gpu")
        typed[key.replace("_", "-")] = value
    typed |= flags
    options = {**without_replaced(load(profile), typed), **typed} if profile else typed
    submitit_parameters(options)  # rejects invalid values before anything is planned
    of_finalizer = {key.replace("_", "-") for key in options.get(FINALIZE, {})}
    for key in sorted((options.keys() | of_finalizer) - _KEYS):
        if hint := did_you_mean(key, _KEYS):  # sbatch checks all others: every release adds options
            raise ValueError(f"--slurm {key}: not an sbatch option{hint}")
    finalizer_parameters(options)
    cards_of_job(options)
    return options


def minutes(time: Option) -> int:
    """Convert a time limit in sbatch format (M, M:S, H:M:S, D-H, D-H:M, D-H:M:S) to minutes, rounded up.

    0 means no limit, as in sbatch. Raises ValueError.
    """
    if str(time).strip().lower() in _NO_LIMIT:
        return 0
    fields = _TIME.fullmatch(str(time).strip())
    if fields is None:
        raise ValueError(
            f"--time {time}: expected minutes, hours:minutes:seconds, days-hours or UNLIMITED (sbatch format)"
        )
    days, *numbers = (int(fields[name] or 0) for name in ("days", "first", "second", "third"))
    units = (3600, 60, 1) if fields["days"] or fields["third"] else (60, 1, 0)
    seconds = 86_400 * days + sum(number * unit for number, unit in zip(numbers, units, strict=True))
    return -(-seconds // 60)


def submitit_parameters(options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert sbatch's options to submitit's parameters; most are passed to sbatch unchanged.

    Raises ValueError for an invalid value.
    """
    for key, value in options.items():
        _check_type(key, value)
        if reason := _ONLY_BY_HARNESS.get(key):
            raise ValueError(f"--slurm {key}={value}: {reason}")
    left, limit = dict(options), minutes(options.get("time", DEFAULT_TIME))
    setup, srun = left.pop("setup", []), left.pop("srun", [])
    srun = shlex.split(srun) if isinstance(srun, str) else list(srun)
    parameters: dict[str, Any] = {
        "time": limit,
        # Early enough to record the steps in flight, but a small share of short limits.
        "signal_delay_s": max(10, min(120, limit * 60 // 10)) if limit else 120,
        "stderr_to_stdout": True,  # one file per task instead of two
        "wckey": None,  # otherwise submitit sets a wckey, which some sites reject
        # Since Slurm 22.05, srun does not inherit this from sbatch.
        "setup": ['[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK'],
    }
    parameters["setup"] += [setup] if isinstance(setup, str) else setup
    if (parallel := left.pop("array-parallelism", None)) is not None:
        parameters["array_parallelism"] = _count("array-parallelism", parallel)
    command = python_command.read(options)
    if command is not None:
        parameters["python"] = command
        srun = [*python_command.pyxis_arguments(options), *srun]
    if srun:
        parameters["srun_args"] = srun
    passed = {key: value for key, value in switches(left).items() if key not in _NOT_FOR_SBATCH}
    if not passed.get("no-requeue"):
        passed["requeue"] = True
    return {**parameters, "additional_parameters": passed}


def _check_type(key: str, value: Any) -> None:
    listed = value if isinstance(value, list) and key != "time" else [value]
    if key == FINALIZE:
        expected, is_right = "a table", isinstance(value, Mapping)
    elif key in {"setup", "srun"}:
        expected, is_right = "a string or a list of strings", all(isinstance(one, str) for one in listed)
    elif key == python_command.KEY:  # validated there
        return
    else:
        kinds = (str, int, float, type(None))
        expected, is_right = "a string, a number, true, false or a list", all(isinstance(one, kinds) for one in listed)
    if not is_right:
        raise ValueError(f"--slurm {key}={value!r}: expected {expected}")
    if isinstance(value, Mapping):
        for own, one in value.items():
            _check_type(own.replace("_", "-"), one)


def switches(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with switches in sbatch's form: True if on, omitted if off.

    `requeue = false` becomes `no-requeue`, because site defaults differ.
    """
    passed: dict[str, Any] = {}
    for key, value in options.items():
        is_on = value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value).lower())
        if key in {"requeue", "no-requeue"} and is_on is not None:
            passed["requeue" if is_on == (key == "requeue") else "no-requeue"] = True
        elif is_on is None:
            passed[key] = _joined(key, value)
        elif is_on:
            passed[key] = True
    return passed


def _joined(key: str, value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, list) and key not in _OWN_LISTS else value


def finalizer_parameters(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return submitit's parameters for the job that grades, loads and reports after workers with these options.

    The table [finalize] overrides the defaults: no GPU, 4 GB, and at most 4 cores, but not more than the workers have.
    Raises ValueError.
    """
    own = {key.replace("_", "-"): value for key, value in options.get(FINALIZE, {}).items()}
    inherited: dict[str, Any] = {key: value for key, value in options.items() if key in _OF_FINALIZER}
    if not {"mem-per-cpu", "mem-per-gpu"} & own.keys():
        inherited["mem"] = _FINALIZER_MEMORY
    if "cpus-per-task" in options:
        inherited["cpus-per-task"] = min(_FINALIZER_CORES, _count("cpus-per-task", options["cpus-per-task"]))
    try:
        return submitit_parameters({**inherited, **own})
    except ValueError as error:
        raise ValueError(f"[{FINALIZE}] {error}") from error


def _count(key: str, value: Option) -> int:
    if not (str(value).isdigit() and int(str(value))):
        raise ValueError(f"--{key} {value}: expected a positive integer")
    return int(str(value))
