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

from harness.sizing.memory import Option

KEY = "python"
"""The key of a profile."""
_OF_PYXIS = "image mounts workdir name save mount-home remap-root entrypoint entrypoint-log writable readonly env"
PYXIS = frozenset(f"container-{option}" for option in _OF_PYXIS.split())
"""Options that Pyxis adds to Slurm. They are given to srun: under sbatch, the batch script itself would run inside."""
_MOUNTS = "container-mounts"
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

    def shell_lines(self, named: Sequence[str] = ()) -> list[str]:
        """Return bash's lines that make the array `harness_python`, the command.

        A container shows its folders and those that `named`, words of bash, expand to. None of them contains a comma or
        a colon, which have a meaning there: such a folder is left to the profile.
        """
        words = [_shell_word(word) for word in self.words]
        runtime = _RUNTIMES.get(PurePath(self.words[0]).name)
        if not self.starts_container:
            return [f"harness_python=({' '.join(words)})"]
        if self.mounts is not None:
            begin, seen, value = _shell_word(self.mounts), ",$harness_bind,", ",$folder:$folder,"
            add = '"${harness_bind:+,}$folder:$folder"'
            end = [f"harness_bind=${{harness_bind:+--{_MOUNTS}=$harness_bind}}"]
            words.insert(0, '${harness_bind:+"$harness_bind"}')
        else:
            assert runtime is not None
            begin, seen, value = "()", " ${harness_bind[*]} ", f" {runtime.value} "
            add, end = f'({runtime.flag} "{runtime.value}")', []
            place = 1 + next((n for n, word in enumerate(self.words) if word in runtime.after), 0)
            words.insert(place, '"${harness_bind[@]}"')
        return [
            f"harness_bind={begin}",
            f"for folder in {' '.join([*map(shlex.quote, self.folders), *named])}; do",
            f'  [[ $folder == /?* && $folder != *[,:]* && -d $folder && "{seen}" != *"{value}"* ]] || continue',
            f"  harness_bind+={add}",
            "done",
            *end,
            f"harness_python=({' '.join(words)})",
        ]


def read(options: Mapping[str, Option]) -> PythonCommand | None:
    """Return the command of a profile; None where jobs run in the Python that submits. Raises ValueError."""
    has_image, value = names_pyxis_container(options), options.get(KEY)
    if not value:
        if has_image:
            raise ValueError('container-image: name the interpreter in the container too, e.g. python = "python3"')
        return None
    try:
        words = shlex.split(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"python = {value!r}: {error}; expected a command, e.g. {_EXAMPLE}") from error
    if not isinstance(words, list) or not all(isinstance(word, str) and word and "\n" not in word for word in words):
        raise ValueError(f"python = {value!r}: expected a command, e.g. {_EXAMPLE}")
    return PythonCommand(tuple(words), _joined(options.get(_MOUNTS, "")) if has_image else None)


def pyxis_arguments(options: Mapping[str, Option]) -> list[str]:
    """Return Pyxis's options as arguments of srun, but for the mounts; none where they name no container.

    A switch is True or False, and its opposite begins with `no-`.
    """
    if not names_pyxis_container(options):
        return []
    own = {key: value for key, value in options.items() if key in PYXIS - {_MOUNTS} and value != ""}
    return [
        (f"--{key}" if value else f"--no-{key}") if isinstance(value, bool) else f"--{key}={_joined(value)}"
        for key, value in own.items()
    ]


def names_pyxis_container(options: Mapping[str, Option]) -> bool:
    """Return whether Pyxis's options name a container; an empty value takes back that of the profile."""
    return bool(options.get("container-image") or options.get("container-name"))


def _joined(value: Option) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


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
