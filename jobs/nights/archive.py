"""A finished run folder as one file, from which it can be restored byte by byte.

<archive>/<run id>.tar.gz     the folder without its locks and its archives of code
<archive>/code-*.zip          these, once each: many nights submit equal code
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from pathlib import Path

from jobs.run.files import opened, write_atomically
from jobs.run.folder import RunFolder

_ENDING = ".tar.gz"
_CODE = "code-*.zip"
_REMOVED = ".pruned-"
"""Prefix of a folder that is being removed: no longer a run, whenever the removal is killed."""


class ArchiveFailed(RuntimeError):
    """An archive does not hold what its run folder holds, or cannot be restored; the message is one line."""


def archive_of(folder: Path, name: str) -> Path:
    """Return the path of a run's archive, whether or not it exists."""
    return folder / f"{name}{_ENDING}"


def archived(folder: Path) -> list[str]:
    """Return the names of the archived runs, sorted."""
    return sorted(path.name.removesuffix(_ENDING) for path in folder.glob(f"*{_ENDING}"))


def archive(run: RunFolder, folder: Path) -> Path:
    """Write a run folder to its archive and read it back; the run folder stays. Raises ArchiveFailed and OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    path = archive_of(folder, run.path.name)
    temporary = path.with_name(f".{path.name}.new")
    files = _files(run)
    temporary.unlink(missing_ok=True)
    try:
        with os.fdopen(opened(temporary, os.O_EXCL), "wb") as out:
            with tarfile.open(fileobj=out, mode="w:gz", compresslevel=6) as packed:
                for file in files:
                    packed.add(file, str(Path(run.path.name) / file.relative_to(run.path)), recursive=False)
            out.flush()
            os.fsync(out.fileno())
        _check(temporary, run, files)
        for code in sorted(run.path.glob(_CODE)):
            if not (folder / code.name).exists():
                write_atomically(folder / code.name, code.read_bytes())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def remove(run: RunFolder) -> None:
    """Remove a run folder; killed in between, what is left is no run folder any more."""
    doomed = run.path.with_name(f"{_REMOVED}{run.path.name}")
    shutil.rmtree(doomed, ignore_errors=True)
    run.path.rename(doomed)
    shutil.rmtree(doomed)


def restore(name: str, folder: Path, output: Path) -> RunFolder:
    """Unpack a run's archive into `output`; it stays. Returns the run folder. Raises ArchiveFailed and OSError."""
    target = output / name
    if target.exists():
        raise ArchiveFailed(f"{target} exists already")
    path = archive_of(folder, name)
    if not path.is_file():
        raise ArchiveFailed(f"{path} does not exist")
    unpacked = output / f".restored-{name}"
    shutil.rmtree(unpacked, ignore_errors=True)
    try:
        with tarfile.open(path, "r:gz") as packed:
            packed.extractall(unpacked, filter="data")
        run = RunFolder(unpacked / name)
        if not run.exists():
            raise ArchiveFailed(f"{path} holds no run folder {name}")
        for code in _codes(run):
            if (folder / code).is_file():
                shutil.copy2(folder / code, run.path / code)
        run.locks_dir.mkdir(exist_ok=True)
        run.path.rename(target)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise ArchiveFailed(f"{path} cannot be unpacked: {next(iter(str(error).splitlines()), '')}") from error
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
    return RunFolder(target)


def _codes(run: RunFolder) -> set[str]:
    """Return the names of the archives of code that a run's submissions name."""
    from jobs.run import submissions

    return {submission.code for submission in submissions.read(run) if submission.code}


def _files(run: RunFolder) -> list[Path]:
    """Return what is archived, sorted. Raises ArchiveFailed where a file is not a plain one."""
    left_out = {run.locks_dir, *run.path.glob(_CODE)}
    files = []
    for path in sorted(run.path.rglob("*")):
        if left_out & {path, *path.parents}:
            continue
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ArchiveFailed(f"{path} is neither a file nor a folder")
        files.append(path)
    return files


def _check(path: Path, run: RunFolder, files: list[Path]) -> None:
    """Read an archive back and compare it with the run folder."""
    expected = {str(file.relative_to(run.path)): _digest(file.read_bytes()) for file in files if file.is_file()}
    with tarfile.open(path, "r:gz") as packed:
        found = {
            str(Path(member.name).relative_to(run.path.name)): _digest(content.read())
            for member in packed
            if member.isfile() and (content := packed.extractfile(member)) is not None
        }
    if found != expected:
        raise ArchiveFailed(f"{run.path} changed while it was archived, or the archive was not written as it should be")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
