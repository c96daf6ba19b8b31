"""The options of sbatch: a cluster's profile, flags that override it, and anything else passed through.

# slurm/clusters/mycluster.toml
partition = "gpu"
time = "4:00:00"
gpus-per-node = 2                                     # or with a type, as "h100:2"
gpu-memory = "80GB"                                   # of one of them, where the type does not tell; not for sbatch
array-parallelism = 64                                # tasks of an array that run at a time, sbatch's %64
requeue = false                                       # a switch; false is the opposite, --no-requeue
setup = ["module load cuda/12.4"]                     # lines of the batch script before the worker, or one as a string
srun = ["--mpi=none"]                                 # further arguments of srun, or all of them as one string
python = "apptainer exec --nv /scratch/vllm.sif python3"  # of the jobs (jobs.slurm.python_command); default: this one

[finalize]                                            # the job that grades, loads and reports: no GPU, 4 GB; overrides
partition = "cpu"                                     # what it takes over (account, time, setup, ...), after all others

[launch]                                              # of a launch that does not say otherwise
output = "/scratch/$USER/runs"                        # the folder of run folders (harness.settings.layers)
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
"""Table of a profile: options of sbatch for the job that grades, loads and reports."""
_FINALIZER_CORES = 4
"""Most cores of that job, unless its table says otherwise; it grades in one process per core."""
_FINALIZER_MEMORY = "4G"
_OF_FINALIZER = frozenset(
    {
        *("account", "clusters", "comment", "exclude", "export", "export-file", "get-user-env", "mail-type"),
        *("mail-user", "mcs-label", "nice", "no-requeue", "partition", "priority", "qos", "requeue"),
        *("setup", "srun", "time", "wckey", python_command.KEY, *python_command.PYXIS),
    }
)
"""Options of the workers that the job that grades has too: what it takes to submit it, and its Python.

What asks for nodes, cores, memory or GPUs is not among them, but for `exclude`, which names broken nodes. Nor is
`dependency`: it depends on the workers, and so on whatever they depend on.
"""
_OWN_LISTS = frozenset({"setup", "srun", python_command.KEY})
"""Keys of a profile that are lists; a list for any other is what sbatch separates by commas."""
_LOGS = "logs are in the run folder (python -m jobs logs RUN); --output chooses the folder of run folders"
_ONLY_BY_HARNESS = {
    "array": "the harness numbers the tasks itself; array-parallelism=N limits those that run at a time",
    "job-name": "the harness names its jobs and finds them by name; comment=TEXT holds text of yours",
    "output": _LOGS,
    "error": _LOGS,
    "open-mode": "a requeued task appends to its log",
    "signal": "workers are signalled 10 to 120 s before the time limit, to save the steps in flight",
}
"""Options that are refused, and why; all others are for sbatch to judge."""
_NOT_FOR_SBATCH = {"time", GPU_MEMORY, FINALIZE, python_command.KEY, *python_command.PYXIS}
"""Keys of a profile that sbatch does not get, or gets in another form."""
_NAMES = resources.files("jobs.slurm") / "profile_keys.txt"
_KEYS = frozenset(_NAMES.read_text(encoding="utf-8").split()) | python_command.PYXIS
"""Keys of a profile, most of them options of sbatch, for a hint at what a misspelt one may mean."""
DEFAULT_TIME = "4:00:00"
_NO_LIMIT = {"unlimited", "infinite", "-1"}
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")


def load(name: str) -> dict[str, Any]:
    """Read the options of sbatch of a profile, by the name of its file or by path. Raises ValueError."""
    return {key: _joined(key, value) for key, value in layers.profile(name).items() if key != layers.LAUNCH}


def sbatch_options(profile: str | None, pairs: Sequence[str], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a profile, `KEY=VALUE` pairs and flags; later ones win. Raises ValueError.

    A pair or flag that asks for GPUs replaces every option of the profile that does.
    """
    typed: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--slurm {pair}: expected KEY=VALUE, e.g. partition=gpu")
        typed[key.replace("_", "-")] = value
    typed |= flags
    options = {**without_replaced(load(profile), typed), **typed} if profile else typed
    submitit_parameters(options)  # raises on a wrong value before anything is planned
    of_finalizer = {key.replace("_", "-") for key in options.get(FINALIZE, {})}
    for key in sorted((options.keys() | of_finalizer) - _KEYS):
        if hint := did_you_mean(key, _KEYS):  # others are for sbatch to judge, which has more with every release
            raise ValueError(f"--slurm {key}: no option of sbatch{hint}")
    finalizer_parameters(options)
    cards_of_job(options)
    return options


def minutes(time: Option) -> int:
    """Convert a time limit in any of sbatch's forms (M, M:S, H:M:S, D-H, D-H:M, D-H:M:S) to minutes, rounded up.

    0 is no limit, as for sbatch. Raises ValueError.
    """
    if str(time).strip().lower() in _NO_LIMIT:
        return 0
    fields = _TIME.fullmatch(str(time).strip())
    if fields is None:
        raise ValueError(
            f"--time {time}: expected minutes, hours:minutes:seconds, days-hours or UNLIMITED, as sbatch takes them"
        )
    days, *numbers = (int(fields[name] or 0) for name in ("days", "first", "second", "third"))
    units = (3600, 60, 1) if fields["days"] or fields["third"] else (60, 1, 0)
    seconds = 86_400 * days + sum(number * unit for number, unit in zip(numbers, units, strict=True))
    return -(-seconds // 60)


def submitit_parameters(options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert sbatch's options to submitit's parameters, most of which are passed to sbatch as they are.

    Raises ValueError where a value is not what the option expects.
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
        # Early enough to record the steps under way, and a small part of a short limit.
        "signal_delay_s": max(10, min(120, limit * 60 // 10)) if limit else 120,
        "stderr_to_stdout": True,  # one file per task instead of two
        "wckey": None,  # otherwise submitit sends one of its own, which sites that use them reject
        # From Slurm 22.05 on srun does not take this from sbatch.
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
    """Raise ValueError where a value is not of a type that the option may have."""
    listed = value if isinstance(value, list) and key != "time" else [value]
    if key == FINALIZE:
        expected, is_right = "a table", isinstance(value, Mapping)
    elif key in {"setup", "srun"}:
        expected, is_right = "a text or a list of texts", all(isinstance(one, str) for one in listed)
    elif key == python_command.KEY:  # read there
        return
    else:
        kinds = (str, int, float, type(None))
        expected, is_right = "a text, a number, true, false or a list", all(isinstance(one, kinds) for one in listed)
    if not is_right:
        raise ValueError(f"--slurm {key}={value!r}: expected {expected}")
    if isinstance(value, Mapping):
        for own, one in value.items():
            _check_type(own.replace("_", "-"), one)


def switches(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with their switches as sbatch takes them: True for one that is on, none for one that is off.

    `requeue = false` becomes `no-requeue`, because sites differ in what they do without either.
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
    """Return a list as sbatch takes it, with commas."""
    return ",".join(map(str, value)) if isinstance(value, list) and key not in _OWN_LISTS else value


def finalizer_parameters(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return submitit's parameters of the job that grades, loads and reports after workers with these options.

    The table [finalize] overrides what it has by default: no GPU, 4 GB, and no more than 4 cores nor more than the
    workers, which the nodes are known to have. Raises ValueError.
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
        raise ValueError(f"--{key} {value}: expected a number of 1 or more")
    return int(str(value))
