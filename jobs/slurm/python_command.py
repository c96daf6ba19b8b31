"""The Python of jobs if set by a profile: an interpreter on the nodes, or a command that starts a container.

python = "/scratch/venv/bin/python"                                # or "$VENV/bin/python", a variable of the node
python = "apptainer exec --nv /scratch/vllm.sif python3"           # likewise podman, docker, ch-run
python = "python3"                                                 # in Pyxis's container, started by srun
container-image = "/scratch/vllm.sqsh"

The command is split as by a shell. Variables ($NAME, ${NAME}) and a leading ~ are expanded on the node, after the lines
of `setup`; all other characters are literal.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from harness.sizing.memory import Option

KEY = "python"
"""Key of a profile that sets the Python of jobs."""
_OF_PYXIS = "image mounts workdir name save mount-home remap-root entrypoint entrypoint-log writable readonly env"
PYXIS = frozenset(f"container-{option}" for option in _OF_PYXIS.split())
"""Options that Pyxis adds to Slurm, passed to srun: with sbatch, the batch script itself would run in the container."""
_MOUNTS = "container-mounts"
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_EXAMPLE = 'python = "apptainer exec --nv /scratch/vllm.sif python3"'


_RUNTIMES: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "apptainer": ("--bind", "$folder", ("exec", "run")),
    "singularity": ("--bind", "$folder", ("exec", "run")),
    "podman": ("--volume", "$folder:$folder", ("run",)),
    "docker": ("--volume", "$folder:$folder", ("run",)),
    "ch-run": ("--bind", "$folder", ()),
}
"""How each container runtime mounts a folder: a flag, its value in a shell with the variable `folder`, and the
subcommands after which the flag is inserted; none: directly after the program."""


@dataclass(frozen=True)
class PythonCommand:
    """The command of a profile's `python`."""

    words: tuple[str, ...]
    mounts: str | None = None
    """Mounts from the profile for Pyxis's container, possibly empty; None without Pyxis."""

    def shell_lines(self, named: Sequence[str] = (), folders: Sequence[str] = ()) -> list[str]:
        """Return bash lines that define the array `harness_python`, the command.

        In a container, the lines mount those of `folders` that are absolute and exist here, and the folders to which
        the bash words in `named` expand. Folders with a comma or colon, which are special characters in mounts, are
        skipped; the profile must mount them.
        """
        found = dict.fromkeys(name for name in folders if Path(name).is_absolute() and Path(name).is_dir())
        words = [_shell_word(word) for word in self.words]
        runtime = _RUNTIMES.get(PurePath(self.words[0]).name)
        if self.mounts is not None:
            begin, seen, value = _shell_word(self.mounts), ",$harness_bind,", ",$folder:$folder,"
            add = '"${harness_bind:+,}$folder:$folder"'
            end = [f"harness_bind=${{harness_bind:+--{_MOUNTS}=$harness_bind}}"]
            words.insert(0, '${harness_bind:+"$harness_bind"}')
        elif runtime is not None:
            flag, mounted, after = runtime
            begin, seen, value = "()", " ${harness_bind[*]} ", f" {mounted} "
            add, end = f'({flag} "{mounted}")', []
            place = 1 + next((n for n, word in enumerate(self.words) if word in after), 0)
            words.insert(place, '"${harness_bind[@]}"')
        else:  # no container, or an unknown wrapper, which must mount the folders
            return [f"harness_python=({' '.join(words)})"]
        return [
            f"harness_bind={begin}",
            f"for folder in {' '.join([*map(shlex.quote, found), *named])}; do",
            f'  [[ $folder == /?* && $folder != *[,:]* && -d $folder && "{seen}" != *"{value}"* ]] || continue',
            f"  harness_bind+={add}",
            "done",
            *end,
            f"harness_python=({' '.join(words)})",
        ]


def read(options: Mapping[str, Option]) -> PythonCommand | None:
    """Return the command of a profile; None if jobs use the submitting Python. Raises ValueError."""
    has_image, value = names_pyxis_container(options), options.get(KEY)
    if not value:
        if has_image:
            raise ValueError('container-image: also set the interpreter in the container, e.g. python = "python3"')
        return None
    try:
        words = shlex.split(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"python = {value!r}: {error}; expected a command, e.g. {_EXAMPLE}") from error
    if not isinstance(words, list) or not all(isinstance(word, str) and word and "\n" not in word for word in words):
        raise ValueError(f"python = {value!r}: expected a command, e.g. {_EXAMPLE}")
    return PythonCommand(tuple(words), _joined(options.get(_MOUNTS, "")) if has_image else None)


def pyxis_arguments(options: Mapping[str, Option]) -> list[str]:
    """Return Pyxis's options as srun arguments, without the mounts; empty if they do not specify a container.

    Switches are True or False; the opposite of a switch starts with `no-`.
    """
    if not names_pyxis_container(options):
        return []
    own = {key: value for key, value in options.items() if key in PYXIS - {_MOUNTS} and value != ""}
    return [
        (f"--{key}" if value else f"--no-{key}") if isinstance(value, bool) else f"--{key}={_joined(value)}"
        for key, value in own.items()
    ]


def names_pyxis_container(options: Mapping[str, Option]) -> bool:
    """Return whether Pyxis's options specify a container; an empty value overrides the profile."""
    return bool(options.get("container-image") or options.get("container-name"))


def _joined(value: Option) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _shell_word(word: str) -> str:
    """Quote a word for bash, which still expands its variables; an unset one ends the batch script with a message."""
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
