"""How the flags of a launch are declared and read, and what is said of wrong ones."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import ValidationError

from harness.engine import Role
from harness.engines import placement
from harness.engines.registry import AUTO, CHOICES
from harness.methods import METHODS
from harness.methods.method import flag
from harness.plural import counted
from harness.problems.benchmarks import DATASETS

Group = Literal["run", "models", "sampling", "method", "engine", "cluster", "output"]
if TYPE_CHECKING:
    EngineChoice = str
else:
    EngineChoice = Literal[(AUTO, *CHOICES)]
Proposer = Literal["none", "draft", "ngram", "suffix", "eagle3", "mtp"]
DraftSampling = Literal["greedy", "probabilistic"]
DataType = Literal["auto", "bfloat16", "float16", "float32", "half", "float"]
Cluster = Literal["auto", "slurm", "local", "debug"]


_LONGEST_PAIR = 10_000


class BadLaunch(ValueError):
    """A launch that is not valid; the message is one line that names the flag and says what is valid."""


@dataclass(frozen=True)
class Flag:
    """How a field of a launch looks on the command line."""

    group: Group
    """The heading of `--help` that lists it."""
    help: str
    metavar: str | None = None
    default: str | None = None
    """The default in words, where the value alone does not say it."""


SBATCH: Mapping[str, str] = {
    "partition": "Partition.",
    "account": "Account to charge.",
    "qos": "Quality of service.",
    "time": "Time limit of one job, in sbatch's format; a run that needs longer is requeued and resumes.  "
    "[default: 4:00:00]",
    "gpus-per-node": "GPUs per task, e.g. 4 or h100:4. A task has one worker unless --workers-per-task says more.",
    "gpu-memory": "Memory of one GPU, e.g. 80GB, where its type does not tell; for the plan only, not for sbatch.",
    "cpus-per-task": "CPU cores per task.",
    "mem": "Memory per task, e.g. 200G.",
    "constraint": "Features that a node must have.",
    "exclude": "Nodes not to use.",
    "nodelist": "Nodes to use.",
    "gres": "Generic resources, for sites that do not support gpus-per-node.",
    "reservation": "Reservation to use.",
}
"""Options of sbatch that are flags of the launcher, and their help."""


def as_words(value: object) -> object:
    """Return a single word as a tuple of one, as a flag that may be repeated takes it."""
    return (value,) if isinstance(value, str) else value


def as_pairs(value: object) -> object:
    """Return a table of a file as the words KEY=VALUE, as a flag that may be repeated takes them."""
    if isinstance(value, Mapping):
        return tuple(f"{key}={item if isinstance(item, str) else json.dumps(item)}" for key, item in value.items())
    return as_words(value)


def pair_of(word: str) -> str:
    """Return a word KEY=VALUE as it is. Raises ValueError where it is not of that form."""
    key, equals, value = word.partition("=")
    if not equals or not key.isidentifier() or not value.strip() or len(word) > _LONGEST_PAIR or "\0" in word:
        raise ValueError(f"expected KEY=VALUE with a name and a value, of at most {_LONGEST_PAIR:,} characters")
    return word


def pairs(flag_name: str, words: Iterable[str]) -> dict[str, Any]:
    """Return the values of words KEY=VALUE: what JSON means by them (true, 8, [1, 2]), otherwise the text itself.

    Raises ValueError where a key is given twice, with the name of the flag.
    """
    values: dict[str, Any] = {}
    for word in words:
        key, _, text = word.partition("=")
        if key in values:
            raise ValueError(f"{flag_name} {word}: {key} is given twice")
        values[key] = _value(text)
    return values


def _value(text: str) -> Any:
    lowered = {"true": True, "false": False}.get(text.lower())
    if lowered is not None:
        return lowered
    try:
        return json.loads(text, parse_constant=lambda name: name)
    except (ValueError, RecursionError):
        return text


def as_list_text(value: object) -> object:
    """Return a list of numbers, as a file of flags has it, as the text that the flag takes."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else value


def card_numbers(text: str | None) -> str | None:
    """Return numbers of GPUs in their shortest form; None for all of them. Raises ValueError."""
    return None if text in (None, placement.ALL) else placement.written(placement.parse(text))


def existing_path(path: Path) -> Path:
    """Return the path of a folder. Raises ValueError where it does not exist."""
    if not path.exists():
        raise ValueError("no such folder")
    return path


def from_toml(value: Any) -> Any:
    """Return a date or a time of a TOML file as text, as a tag or a time limit may be written."""
    return str(value) if isinstance(value, date | time) else value


def with_widths_of_named_gpus(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return flags with the widths of engines that have GPUs of their own: such an engine is split over all of them.

    Raises ValueError where another width is asked for.
    """
    widths = {}
    for role in get_args(Role):
        text, name = as_list_text(values.get(f"{role}_gpus")), f"{role}_tensor_parallel"
        if text in (None, placement.ALL) or not placement.is_valid(str(text)):
            continue  # what is not valid is reported with its flag
        number, asked = len(placement.parse(str(text))), values.get(name)
        if str(asked if asked is not None else number) != str(number):
            raise ValueError(
                f"{flag(f'{role}_gpus')} {text} names {counted(number, 'GPU')}, but {flag(name)} is {asked}: "
                "leave one of them out"
            )
        widths[name] = number
    return {**values, **widths}


def error_in_one_line(error: ValidationError, names: Iterable[str] = ()) -> str:
    """Return the first error in one line that names the flag; `names`: those that an unknown one may have meant."""
    # A name that is unknown is told before one that is missing, because it may have been meant.
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    message = _message(first)
    if not first["loc"]:
        return message
    name = str(first["loc"][0])
    if first["type"] == "missing":
        valid = METHODS if name == "method" else (*DATASETS, "a file of problems (see --list datasets)")
        return f"{flag(name)} is missing; choose from {', '.join(valid)}"
    if first["type"] == "extra_forbidden":
        close = difflib.get_close_matches(name, list(names), n=1)
        meant = f" (did you mean {close[0]!r}?)" if close else ""
        return f"unknown key {name!r}{meant}; the keys are the flags without the dashes"
    return f"{flag(name)} {first['input']}: {message}"


def _message(error: Mapping[str, Any]) -> str:
    return str(error["msg"]).removeprefix("Value error, ")
