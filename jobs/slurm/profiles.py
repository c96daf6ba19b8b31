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
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from harness.cli.toml_file import read_toml
from harness.sizing.cards import GPU_MEMORY, Option, cards_of_job, without_replaced
from jobs.slurm import client, python_command

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
_OF_WORKERS_ALONE = {
    "dependency": "the job waits for the workers; dependency outside the table is what they wait for",
    **dict.fromkeys((GPU_MEMORY, "array-parallelism", FINALIZE), "an option of the workers alone; leave it out"),
}
"""Options that the table [finalize] cannot have."""
_SWITCHES = frozenset(
    {
        *("contiguous", "hold", "no-kill", "no-requeue", "overcommit", "oversubscribe", "reboot", "requeue"),
        *("spread-job", "stepmgr", "use-min-nodes", "verbose"),
    }
)
"""Options that sbatch takes without a value."""
_WITH_OR_WITHOUT_VALUE = frozenset({"exclusive", "get-user-env", "nice", "propagate"})
"""Options that sbatch takes with or without a value; a number is one."""
_YES_OR_NO = "kill-on-invalid-dep"
_TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_NUMBERS = {"1": True, "0": False}
_OWN_LISTS = frozenset({"setup", "srun", python_command.KEY})
"""Keys of a profile that are lists; a list for any other is what sbatch separates by commas."""
_COUNTS = frozenset(
    {
        *("array-parallelism", "cores-per-socket", "cpus-per-gpu", "cpus-per-task", "mincpus", "ntasks"),
        *("ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket", "segment", "sockets-per-node"),
        "threads-per-core",
    }
)
"""Options whose value is a whole number of 1 or more."""
_GPUS = frozenset({"gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task"})
_MEMORY = re.compile(r"\d+([kmgt]b?)?", re.IGNORECASE), "a number with a unit, such as 64G"
_VALUES = {
    **dict.fromkeys(("mem", "mem-per-cpu", "mem-per-gpu", "tmp"), _MEMORY),
    "nodes": (re.compile(r"\d+[km]?([-,:]\d+[km]?)*", re.IGNORECASE), "a number, or the fewest and the most as in 2-4"),
    "exclusive": (re.compile("user|mcs|topo"), "true, false, user, mcs or topo"),
    "nice": (re.compile(r"[+-]?\d+"), "true, false or a number"),
    "switches": (re.compile(r"\d+(@.+)?"), "a number, or a number and the longest wait as in 1@12:00:00"),
    "core-spec": (re.compile(r"\d+"), "a number"),
    "thread-spec": (re.compile(r"\d+"), "a number"),
    "wait-all-nodes": (re.compile("[01]"), "0 or 1"),
}
"""Patterns of the values that some options take beside switches, counts, times and GPUs, and what they are in words."""
_THROTTLE = re.compile(r"%(\d+)")
_LOGS = "logs are in the run folder (python -m jobs logs RUN); --output chooses the folder of run folders"
_ONLY_BY_HARNESS = {
    "array": "the harness numbers the tasks itself; array-parallelism=N limits those that run at a time",
    "job-name": "the harness names its jobs and finds them by name; comment=TEXT holds text of yours",
    "output": _LOGS,
    "error": _LOGS,
    "open-mode": "a requeued task appends to its log",
    "signal": "workers are signalled 10 to 120 s before the time limit, to save the steps in flight",
    **dict.fromkeys(
        ("help", "ignore-pbs", "parsable", "quiet", "test-only", "usage", "version", "wait", "wrap"),
        "the harness submits a script of its own and reads sbatch's answer",
    ),
}
_SBATCH = frozenset(
    {
        *("account", "acctg-freq", "array", "batch", "bb", "bbf", "begin", "chdir", "cluster-constraint", "clusters"),
        *("comment", "constraint", "container", "container-id", "contiguous", "core-spec", "cores-per-socket"),
        *("cpu-freq", "cpus-per-gpu", "cpus-per-task", "deadline", "delay-boot", "dependency", "distribution"),
        *("error", "exclude", "exclusive", "export", "export-file", "extra", "extra-node-info", "get-user-env"),
        *("gid", "gpu-bind", "gpu-freq", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres"),
        *("gres-flags", "hint", "hold", "input", "job-name", "kill-on-invalid-dep", "licenses", "mail-type"),
        *("mail-user", "mcs-label", "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus", "network", "nice"),
        *("no-kill", "no-requeue", "nodefile", "nodelist", "nodes", "ntasks", "ntasks-per-core", "ntasks-per-gpu"),
        *("ntasks-per-node", "ntasks-per-socket", "open-mode", "output", "overcommit", "oversubscribe", "partition"),
        *("power", "prefer", "priority", "profile", "propagate", "qos", "reboot", "requeue", "reservation"),
        *("resv-ports", "segment", "signal", "sockets-per-node", "spread-job", "stepmgr", "switches", "thread-spec"),
        *("threads-per-core", "time", "time-min", "tmp", "tres-bind", "tres-per-task", "uid", "use-min-nodes"),
        *("verbose", "wait-all-nodes", "wckey"),
    }
)
"""Options of sbatch, Slurm 22.05 to 25.05; `sbatch --help` leaves some out."""
_OWN_KEYS = _OWN_LISTS | python_command.PYXIS | {GPU_MEMORY, "array-parallelism", "finalize"}
_HELP_SECONDS = 10.0
_TYPE = r"([\w.-]+:\d+|(?=\w*\d)[\w.-]+)"
_TYPES = re.compile(rf"{_TYPE}(,{_TYPE})*")
"""Types of GPUs with numbers; one without a number is taken for a type where it has a digit, as `h100`."""
DEFAULT_TIME = "4:00:00"
_NO_LIMIT = {"unlimited", "infinite", "-1"}
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")


def load(name: str) -> dict[str, Any]:
    """Read a profile by the name of its file in slurm/clusters, or by path. Raises ValueError."""
    root = Path(__file__).resolve().parents[2]
    places = (root / "jobs" / "examples" / "clusters", root / "slurm" / "clusters", Path("slurm/clusters"))
    profiles = {path.stem: path for place in places for path in sorted(place.glob("*.toml"))}
    path = profiles.get(name) or Path(name)
    if not path.is_file():
        raise ValueError(f"--profile {name}: no such file; the available profiles are: {', '.join(profiles) or 'none'}")
    content = read_toml(path, f"--profile {path}")
    return {key.replace("_", "-"): _joined(key, value) for key, value in content.items()}


def sbatch_options(profile: str | None, pairs: Sequence[str], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a profile, `KEY=VALUE` pairs and flags that are not None; later ones win. Raises ValueError.

    A pair or flag that asks for GPUs replaces every option of the profile that does.
    """
    typed: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--slurm {pair}: expected KEY=VALUE, e.g. partition=gpu")
        typed[key.replace("_", "-")] = value
    typed |= {name: value for name, value in flags.items() if value is not None}
    check_names(typed, "--slurm")
    options = typed
    if profile:
        held = load(profile)
        check_names(held, f"--profile {profile}:")
        check_names(_finalize_table(held), f"--profile {profile}: [{FINALIZE}]")
        options = {**without_replaced(held, typed), **typed}
    if throttle := _THROTTLE.fullmatch(str(options.get("array", ""))):
        options["array-parallelism"] = throttle[1]
        del options["array"]
    submitit_parameters(options)  # raises on a wrong value before anything is planned
    finalizer_parameters(options)
    cards_of_job(options)
    return options


def check_names(options: Mapping[str, Option], source: str) -> None:
    """Raise ValueError where sbatch has no such option; `source` says where it was given.

    sbatch is asked where the name is not known: a site's plugins may add options.
    """
    unknown = [key for key in options if key not in _SBATCH | _OWN_KEYS | _ONLY_BY_HARNESS.keys()]
    of_site = _options_of_site() if unknown else frozenset()
    for key in unknown:
        if key not in of_site:
            near = difflib.get_close_matches(key, _SBATCH | _OWN_KEYS | of_site, n=1)
            meant = f"did you mean {near[0]}?" if near else "valid: the long names that sbatch --help lists"
            raise ValueError(f"{source} {key}={options[key]}: sbatch has no such option; {meant}")


@cache
def _options_of_site() -> frozenset[str]:
    """Return the options that this machine's sbatch lists; none where it does not answer."""
    try:
        return frozenset(re.findall(r"--([a-z][a-z-]+)", client.ask("sbatch", "--help", seconds=_HELP_SECONDS)))
    except client.SlurmError:
        return frozenset()


def minutes(time: Option, key: str = "time") -> int:
    """Convert a time limit in any of sbatch's forms (M, M:S, H:M:S, D-H, D-H:M, D-H:M:S) to minutes, rounded up.

    0 is no limit, as for sbatch. Raises ValueError.
    """
    if str(time).strip().lower() in _NO_LIMIT:
        return 0
    fields = _TIME.fullmatch(str(time).strip())
    if fields is None:
        raise ValueError(
            f"--{key} {time}: expected minutes, hours:minutes:seconds, days-hours or UNLIMITED, as sbatch takes them"
        )
    first, second, third = (int(fields[name] or 0) for name in ("first", "second", "third"))
    if fields["days"]:
        seconds = ((int(fields["days"]) * 24 + first) * 60 + second) * 60 + third
    elif fields["third"]:
        seconds = (first * 60 + second) * 60 + third
    else:
        seconds = first * 60 + second
    return -(-seconds // 60)


def submitit_parameters(options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert sbatch's options to submitit's parameters; what submitit does not know is passed to sbatch as it is.

    Raises ValueError where a value is not what the option expects.
    """
    options = {"time": DEFAULT_TIME, **options}
    limit = minutes(options["time"])
    named = {"partition", "account", "qos", "constraint", "exclude", "nodelist", "gres", "mem"}
    numbers = {"cpus-per-task", "array-parallelism"}
    parameters: dict[str, Any] = {
        "time": limit,
        # Early enough to record the steps under way, and a small part of a short limit.
        "signal_delay_s": max(10, min(120, limit * 60 // 10)) if limit else 120,
        "stderr_to_stdout": True,  # one file per task instead of two
        "wckey": options.get("wckey"),  # otherwise submitit sends one of its own, which sites that use them reject
        # From Slurm 22.05 on srun does not take this from sbatch.
        "setup": ['[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK'],
    }
    passed: dict[str, Any] = {"requeue": True}
    options = _with_own_python(options, parameters)
    for key, value in switches(options).items():
        if key in named:
            parameters[key.replace("-", "_")] = value
        elif key == "gpus-per-node":
            parameters["gpus_per_node"] = _gpus(key, value)
        elif key in numbers:
            parameters[key.replace("-", "_")] = _count(key, value)
        elif key == "setup":
            parameters["setup"] = [*parameters["setup"], *_lines(value)]
        elif key == "srun":
            parameters["srun_args"] = _arguments(value)
        elif key in _ONLY_BY_HARNESS:
            raise ValueError(f"--slurm {key}={value}: {_ONLY_BY_HARNESS[key]}")
        elif key not in {"time", "wckey", GPU_MEMORY, FINALIZE}:
            passed[key] = value
    if passed.get("no-requeue"):
        del passed["requeue"]
    return {**parameters, "additional_parameters": passed}


def _with_own_python(options: Mapping[str, Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the options but those of a Python of the jobs' own, which are added to submitit's parameters.

    Raises ValueError.
    """
    left = {key: value for key, value in options.items() if key not in {python_command.KEY, *python_command.PYXIS}}
    if not python_command.names_own_python(options):
        if python_command.names_pyxis_container(options):
            raise ValueError('container-image: name the interpreter in the container too, e.g. python = "python3"')
        return left
    srun = [*python_command.pyxis_arguments(options), *_arguments(left.pop("srun", []))]
    command, srun = python_command.read(options[python_command.KEY], srun)
    parameters["python"] = command
    if srun:
        parameters["srun_args"] = srun
    return left


def switches(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with their switches as sbatch takes them: True for one that is on, none for one that is off.

    `requeue = false` becomes `no-requeue`, because sites differ in what they do without either. Raises ValueError where
    a value is not what the option expects.
    """
    passed: dict[str, Any] = {}
    for key, value in options.items():
        is_on = _truth(key, value)
        if is_on is not False:
            _check_value(key, value, is_on)
        if key in {"requeue", "no-requeue"} and is_on is not None:
            passed["requeue" if is_on == (key == "requeue") else "no-requeue"] = True
        elif key == _YES_OR_NO and is_on is not None:
            passed[key] = "yes" if is_on else "no"
        elif is_on is None:
            passed[key] = _joined(key, value)
        elif is_on:
            passed[key] = True
    return passed


def _check_value(key: str, value: Option, is_on: bool | None) -> None:
    """Raise ValueError where a known option expects another kind of value. `is_on`: see `_truth`."""
    if is_on and key in _SWITCHES | _WITH_OR_WITHOUT_VALUE | {_YES_OR_NO}:
        return
    pattern, expected = _VALUES.get(key, (None, ""))
    if key in _SWITCHES or key == _YES_OR_NO:
        raise ValueError(f"--{key} {value}: expected true or false")
    if pattern is not None and not pattern.fullmatch(str(value)):
        raise ValueError(f"--{key} {value}: expected {expected}")
    if key in _COUNTS:
        _count(key, value)
    elif key in _GPUS:
        _gpus(key, value)
    elif key == "time-min":
        minutes(value, key)
    elif is_on and key in _SBATCH:
        raise ValueError(f"--{key} {value}: expected a value, not a switch")


def _truth(key: str, value: Option) -> bool | None:
    """Return whether a switch is on; None where the value is none of a switch."""
    if isinstance(value, bool):
        return value
    if key in _WITH_OR_WITHOUT_VALUE:
        return _TRUTHS.get(str(value).lower())
    return {**_TRUTHS, **_NUMBERS}.get(str(value).lower()) if key in _SWITCHES or key == _YES_OR_NO else None


def _joined(key: str, value: Option) -> Option:
    """Return a list as sbatch takes it, with commas."""
    return ",".join(map(str, value)) if isinstance(value, list) and key not in _OWN_LISTS else value


def _lines(setup: Option) -> list[str]:
    """Return the lines of a batch script. Raises ValueError."""
    lines = [setup] if isinstance(setup, str) else setup
    if not isinstance(lines, list | tuple) or not all(isinstance(line, str) for line in lines):
        raise ValueError(
            'setup: expected a line of the batch script or a list of lines, e.g. setup = ["module load x"]'
        )
    return list(lines)


def _arguments(srun: Option) -> list[str]:
    """Return the arguments of srun; a string is split as a shell does. Raises ValueError."""
    try:
        arguments = shlex.split(srun) if isinstance(srun, str) else srun
    except ValueError as error:
        raise ValueError(f"srun = {srun!r}: {error}") from error
    if not isinstance(arguments, list | tuple) or not all(isinstance(argument, str) for argument in arguments):
        raise ValueError('srun: expected arguments, as a string or a list of strings, e.g. srun = "--mpi=none"')
    return list(arguments)


def finalizer_parameters(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return submitit's parameters of the job that grades, loads and reports after workers with these options.

    The table [finalize] overrides what it has by default: no GPU, 4 GB, and no more than 4 cores nor more than the
    workers, which the nodes are known to have. Raises ValueError.
    """
    own = _finalize_table(options)
    inherited: dict[str, Any] = {key: value for key, value in options.items() if key in _OF_FINALIZER}
    if not {"mem-per-cpu", "mem-per-gpu"} & own.keys():
        inherited["mem"] = _FINALIZER_MEMORY
    if "cpus-per-task" in options:
        inherited["cpus-per-task"] = min(_FINALIZER_CORES, _count("cpus-per-task", options["cpus-per-task"]))
    try:
        return submitit_parameters({**inherited, **own})
    except ValueError as error:
        raise ValueError(f"[{FINALIZE}] {error}") from error


def _finalize_table(options: Mapping[str, Any]) -> dict[str, Any]:
    table = options.get(FINALIZE, {})
    if not isinstance(table, Mapping):
        raise ValueError(f'{FINALIZE}: expected a table of sbatch\'s options, e.g. [{FINALIZE}] partition = "cpu"')
    own = {key.replace("_", "-"): value for key, value in table.items()}
    for key in own.keys() & _OF_WORKERS_ALONE.keys():
        raise ValueError(f"[{FINALIZE}] {key}={own[key]}: {_OF_WORKERS_ALONE[key]}")
    return own


def _gpus(key: str, value: Option) -> int | str:
    """Return a number of GPUs, or types with numbers such as `h100:4` or `h100`; all are what sbatch takes."""
    if str(value).isdigit():
        return int(str(value))
    if not _TYPES.fullmatch(str(value)):
        raise ValueError(f"--{key} {value}: expected a number, or a type and a number such as h100:4")
    return str(value)


def _count(key: str, value: Option) -> int:
    if not (str(value).isdigit() and int(str(value))):
        raise ValueError(f"--{key} {value}: expected a number of 1 or more")
    return int(str(value))
