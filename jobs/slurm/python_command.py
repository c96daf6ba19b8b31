"""The Python of jobs, where a profile names it: an interpreter of the nodes, or a command that starts a container's.

python = "/scratch/venv/bin/python"                                # or "$VENV/bin/python", a variable of the node
python = "apptainer exec --nv /scratch/vllm.sif python3"           # likewise podman, docker, ch-run
python = "python3"                                                 # in Pyxis's container: the image is srun's to start
container-image = "/scratch/vllm.sqsh"

It is split as a shell does. Variables ($NAME, ${NAME}) and a leading ~ are expanded on the node, after the lines of
`setup`; nothing else is, so that no other character has a meaning for the batch script's shell.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from harness.sizing.memory import Option

KEY = "python"
"""The key of a profile."""
_OF_PYXIS = "image mounts workdir name save mount-home remap-root entrypoint entrypoint-log writable readonly env"
PYXIS = frozenset(f"container-{option}" for option in _OF_PYXIS.split())
"""Options that Pyxis adds to Slurm. They are given to srun: under sbatch, the batch script itself would run inside."""
_MOUNTS = "--container-mounts"
_IMAGE = "--container-image"
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_EXAMPLE = 'python = "apptainer exec --nv /scratch/vllm.sif python3"'


@dataclass(frozen=True)
class _Runtime:
    """How a program that starts containers is told to make a folder visible there."""

    flag: str
    value: str = "$folder"
    """What follows the flag, in a shell where `folder` is set."""
    after: tuple[str, ...] = ()
    """The subcommand that the flag follows; empty: it follows the program."""


_TWICE = "$folder:$folder"
_RUNTIMES: Mapping[str, _Runtime] = {
    "apptainer": _Runtime("--bind", after=("exec", "run")),
    "singularity": _Runtime("--bind", after=("exec", "run")),
    "podman": _Runtime("--volume", _TWICE, after=("run",)),
    "docker": _Runtime("--volume", _TWICE, after=("run",)),
    "ch-run": _Runtime("--bind"),
}


@dataclass(frozen=True)
class PythonCommand:
    """The command of a profile's `python`."""

    words: tuple[str, ...]
    mounts: str | None = None
    """What the profile mounts into Pyxis's container, perhaps nothing; None where Pyxis starts none."""
    folders: tuple[str, ...] = ()
    """Folders of the job that a container has to show, beside those that the node's environment names."""

    @property
    def starts_container(self) -> bool:
        """Whether folders have to be made visible; a wrapper that is not known here does that by itself."""
        return self.mounts is not None or PurePath(self.words[0]).name in _RUNTIMES

    def showing(self, names: Sequence[str]) -> PythonCommand:
        """Return the command with those of these names that are absolute folders of this machine among its folders."""
        found = [name for name in names if Path(name).is_absolute() and Path(name).is_dir()]
        return replace(self, folders=tuple(dict.fromkeys([*self.folders, *found])))

    def shell_words(self) -> str:
        """Return the command in bash's syntax, where the array `harness_folders` names the folders to be shown."""
        words = [_shell_word(word) for word in self.words]
        runtime = _RUNTIMES.get(PurePath(self.words[0]).name)
        if self.mounts is not None:
            words.insert(0, '${harness_bind:+"$harness_bind"}')
        elif runtime is not None:
            place = 1 + next((n for n, word in enumerate(self.words) if word in runtime.after), 0)
            words.insert(place, '"${harness_bind[@]}"')
        return " ".join(words)

    def shell_bind(self) -> list[str]:
        """Return bash's lines that make `harness_bind`, the options that show the folders of `harness_folders`."""
        if self.mounts is not None:
            own = _shell_word(self.mounts)
            return [
                f"harness_bind={own}",
                'for folder in "${harness_folders[@]}"; do harness_bind+="${harness_bind:+,}$folder:$folder"; done',
                f"harness_bind=${{harness_bind:+{_MOUNTS}=$harness_bind}}",
            ]
        runtime = _RUNTIMES.get(PurePath(self.words[0]).name)
        if runtime is None:
            return []
        add = f'harness_bind+=({runtime.flag} "{runtime.value}")'
        return ["harness_bind=()", f'for folder in "${{harness_folders[@]}}"; do {add}; done']


def read(value: Any, srun: Sequence[str]) -> tuple[PythonCommand, list[str]]:
    """Return the command of a profile, and the arguments of srun without the mounts that the command takes over.

    Raises ValueError with one line.
    """
    try:
        words = shlex.split(value) if isinstance(value, str) else list(value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"python = {value!r}: {error}; expected a command, e.g. {_EXAMPLE}") from error
    if not words or not all(isinstance(word, str) and word and "\n" not in word for word in words):
        raise ValueError(f"python = {value!r}: expected a command, e.g. {_EXAMPLE}")
    mounts, arguments = _taken_mounts(srun)
    return PythonCommand(tuple(words), mounts), arguments


def pyxis_arguments(options: Mapping[str, Option]) -> list[str]:
    """Return Pyxis's options as arguments of srun, none where they name no container.

    A switch is True or False, and its opposite begins with `no-`.
    """
    if not names_pyxis_container(options):
        return []
    arguments = []
    for key, value in options.items():
        if key not in PYXIS or value == "":
            continue
        if isinstance(value, bool):
            arguments.append(f"--{key}" if value else f"--no-{key}")
        else:
            arguments.append(f"--{key}={','.join(map(str, value)) if isinstance(value, list) else value}")
    return arguments


def names_pyxis_container(options: Mapping[str, Option]) -> bool:
    """Return whether Pyxis's options name a container; an empty value takes back that of the profile."""
    return bool(options.get("container-image") or options.get("container-name"))


def names_own_python(options: Mapping[str, Option]) -> bool:
    """Return whether options name the Python of jobs, so that the one that submits them says nothing about it."""
    return bool(options.get(KEY))


def _taken_mounts(srun: Sequence[str]) -> tuple[str | None, list[str]]:
    """Take Pyxis's mounts out of srun's arguments; None where there is no image."""
    left, mounts, words = [], [], list(srun)
    while words:
        word = words.pop(0)
        if word == _MOUNTS and words:
            mounts.append(words.pop(0))
        elif word.startswith(f"{_MOUNTS}="):
            mounts.append(word.partition("=")[2])
        else:
            left.append(word)
    has_image = any(word == _IMAGE or word.startswith((f"{_IMAGE}=", "--container-name")) for word in left)
    return (",".join(mounts), left) if has_image else (None, list(srun))


def _shell_word(word: str) -> str:
    """Quote a word for bash, with its variables expanded; one that is not set ends the batch script with a line."""
    quoted = ""
    if word == "~" or word.startswith("~/"):
        quoted, word = '"$HOME"', word[1:]
    end = 0
    for match in _VARIABLE.finditer(word):
        name = match[1] or match[2]
        literal = word[end : match.start()]
        quoted += (shlex.quote(literal) if literal else "") + f'"${{{name}:?is not set, and the profile uses it}}"'
        end = match.end()
    rest = word[end:]
    return quoted + (shlex.quote(rest) if rest or not quoted else "")
