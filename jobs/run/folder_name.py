"""The folder of a specification: its readable name ends in the hash, by which it is found again.

    runs/demo-speccot-demo-draft_demo-target-947bf651    dataset, method, draft, target (and reward model), hash

Only the hash tells specifications apart; what stands before it is for people, who may rename it: a folder is found and
resumed by its hash. What a user types is a path, or a name in `runs` or here, a unique beginning of one, or of its
hash.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from jobs.run.files import WrongFormat
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec

_LONGEST_MODEL = 32
"""Characters of a model's name that are kept."""
_LONGEST_NAME = 200
"""Bytes of a folder's name; 255 are possible, and archives and temporary files have longer names."""


def folder_name(spec: RunSpec) -> str:
    """Return the name of a new folder for a specification."""
    dataset_and_method = f"{spec.dataset}-{spec.method}"
    room = _LONGEST_NAME - len(f"{dataset_and_method}--{spec.digest}".encode())
    models = "_".join(readable(model.name) for model in spec.models.values() if model)[: max(0, room)].strip("-._")
    return "-".join(part for part in (dataset_and_method, models, spec.digest) if part)


def run_folder(output: Path, spec: RunSpec) -> RunFolder:
    """Return the folder of a specification below `output`: one that has its hash in its name, else a new one."""
    new = output / folder_name(spec)
    if os.path.lexists(new):
        return RunFolder(new)
    return RunFolder(next(_with_hash_of(spec, output), new))


def _with_hash_of(spec: RunSpec, output: Path) -> Iterator[Path]:
    """Yield the folders of the specification that a user has renamed."""
    beginning, ending = f"{spec.dataset}-{spec.method}-", f"-{spec.digest}"
    try:
        names = sorted(entry.name for entry in os.scandir(output) if entry.name.endswith(ending))
    except OSError:  # there is no such folder yet, or what makes it unusable is said where it is written
        return
    yield from (output / name for name in names if name.startswith(beginning) and RunFolder(output / name).exists())


def readable(model: str) -> str:
    """Return a model's name without its organization, in characters that no shell treats specially."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", model.rstrip("/").rpartition("/")[2])
    return plain[:_LONGEST_MODEL].strip("-.") or "model"


PLACES = (Path("runs"), Path())
"""Folders in which a run is looked for by its name alone."""
_MOST_NAMED = 8
_FEWEST_DIGITS = 4
"""Digits from which on a text can be the beginning of a hash."""


class NoSuchRun(ValueError):
    """No run is meant, or several are; the message is one line."""


def run_path(text: str, output: Path | None = None) -> Path:
    """Return the path of the run folder that a text means; a name is looked for in `output` before PLACES.

    A path that exists is taken as it is, whether or not it is a run folder; but a run folder comes before another
    folder of the same name. Raises NoSuchRun.
    """
    path = Path(text)
    if os.path.isdir(path) and _is_run(path):  # noqa: PTH112 a folder that may not be entered is no error here
        return path
    found = run_paths(text, output) if _has_name(text) else []
    named = [run for run in found if run.name == path.name] or found
    if len(named) == 1:
        return named[0]
    if os.path.exists(path):  # noqa: PTH110 as above
        return path
    if named:
        raise NoSuchRun(f"{text} is the beginning of {len(named)} runs: {_listed(named)}")
    folders = _folders(text, output)
    places = " and ".join(str(folder) if folder != Path() else "this folder" for folder in folders)
    known = [folder / name for folder in folders for name in _folders_in(folder) if _is_run(folder / name)]
    raise NoSuchRun(
        f"{text} is not a run folder: it does not exist, and no run in {places} begins so; "
        + (f"the runs: {_listed(known)}" if known else "there is no run")
    )


def run_paths(beginning: str, output: Path | None = None) -> list[Path]:
    """Return the run folders whose path, or name or hash in one of PLACES, begins so; of equal names the first.

    `output`: a folder to look in before those.
    """
    if beginning and not beginning.endswith(os.sep) and not _has_name(beginning):
        return []
    name = "" if beginning.endswith(os.sep) else Path(beginning).name
    found: dict[str, Path] = {}
    for folder in _folders(beginning, output):
        for other in _folders_in(folder):
            found.setdefault(other, folder / other)
    begun = [other for other in found if other.startswith(name) and _is_run(found[other])]
    return [found[other] for other in begun or meant_by(name, found) if begun or _is_run(found[other])]


def meant_by(text: str, names: Collection[str]) -> list[str]:
    """Return which of the names of runs a text means.

    That is the name itself, else those that begin so, else those whose hash begins so: `947b`, or `demo-speccot-947b`.
    """
    if text in names:
        return [text]
    if begun := [name for name in names if name.startswith(text)]:
        return begun
    readable, dash, digits = text.rpartition("-")
    if not re.fullmatch(rf"[0-9a-f]{{{_FEWEST_DIGITS},}}", digits):
        return []
    found = (re.fullmatch(r"(.*-)([0-9a-f]{8})", name) for name in names)
    return [own[0] for own in found if own and own[1].startswith(readable + dash) and own[2].startswith(digits)]


def _has_name(text: str) -> bool:
    """Return whether a text has at least one letter of a run's name: nothing, `.` and `runs/` mean no run."""
    return not text.endswith(os.sep) and Path(text).name not in ("", "..")


def _folders(text: str, output: Path | None) -> list[Path]:
    if os.sep not in text:
        places = dict.fromkeys([*([] if output is None else [output]), *PLACES])
        return [folder for folder in places if folder.is_dir()] or [next(iter(places))]
    return [Path(text) if text.endswith(os.sep) else Path(text).parent]


def _folders_in(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    except OSError:
        return []


def _is_run(path: Path) -> bool:
    """Return whether a folder is a run's; True where it cannot be read, which its reader explains."""
    try:
        return RunFolder(path).exists()
    except (PermissionError, WrongFormat):
        return True


def _listed(runs: list[Path]) -> str:
    more = f" and {len(runs) - _MOST_NAMED} more" if len(runs) > _MOST_NAMED else ""
    return ", ".join(str(run) for run in runs[:_MOST_NAMED]) + more
