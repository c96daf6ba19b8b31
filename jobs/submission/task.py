"""A job's task in a Python of its own: unpack the submitted code here, run it, and remove it at the end.

`begin` runs from the archive itself, in an interpreter that may have none of the packages, so only the standard library
is imported. It replaces itself by `python -m jobs.submission.task`, which runs the module that it is told from the
unpacked code; so that signals meet the task, and the interpreter has nothing of the archive in it.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import runpy
import socket
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

from jobs.submission import unpacked

CODE = "HARNESS_CODE"
"""Environment variable: the folder that a job's code was unpacked into."""
_SHOWN_NAMES = 3
_NAME = re.compile(r"[\w.-]+")


def begin(arguments: list[str]) -> None:
    """Become the task: `arguments` are the archive, its SHA-256, and what Python is to run (`-u -m MODULE …`).

    Ends with a line and exit code 2 where this interpreter lacks packages, or the code cannot be unpacked.
    """
    archive, sha256, *command = arguments
    if missing := missing_packages(Path(archive)):
        further = f" and {len(missing) - _SHOWN_NAMES} more" if len(missing) > _SHOWN_NAMES else ""
        names = ", ".join(missing[:_SHOWN_NAMES]) + further
        _stop(f"{sys.executable} has no {names}: install what pyproject.toml requires for the python of the profile")
    try:
        folder, lock = take(Path(archive), sha256)
    except (OSError, unpacked.Damaged, zipfile.BadZipFile) as error:
        _stop(f"the code cannot be unpacked: {error}; set TMPDIR in the profile's setup to a folder with room")
    os.environ[CODE] = str(folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    # `python -m` puts the working directory first, which is often the checkout, edited since.
    os.environ["PYTHONSAFEPATH"] = "1"
    if lock is not None:
        os.set_inheritable(lock, True)
    module = command.index("-m")
    command[module + 1 : module + 1] = [__name__, str(lock or 0)]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *command])


def take(archive: Path, sha256: str) -> tuple[Path, int | None]:
    """Unpack an archive into the folder for temporary files, or use what another job has unpacked there.

    Returns the folder, and a descriptor whose lock keeps it, if there is one. Raises what `unpacked.take` raises.
    """
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    shared = Path(tempfile.gettempdir()) / f"{unpacked.PREFIX}{os.getuid()}-{node}-{sha256[:12]}"
    while True:
        lock = unpacked.open_lock(shared)
        try:
            return unpacked.take(archive, sha256, shared, lock), lock
        except unpacked.Removed:
            if lock is not None:
                os.close(lock)


def missing_packages(archive: Path) -> list[str]:
    """Return the required packages that are not installed here, as the project's file in the archive names them."""
    with zipfile.ZipFile(archive) as packed:
        project = tomllib.loads(packed.read("pyproject.toml").decode())["project"]
    names = [name[0] for line in project["dependencies"] if ";" not in line and (name := _NAME.match(line))]
    return [name for name in names if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _stop(text: str) -> None:
    print(f"error: {text}", file=sys.stderr)
    sys.exit(2)


def main(arguments: list[str]) -> None:
    """Run a module of the unpacked code. The arguments are the lock's descriptor (0: none), the module, and its own."""
    lock, module = int(arguments[0]) or None, arguments[1]
    if lock is not None:
        os.set_inheritable(lock, False)
    sys.argv = [module, *arguments[2:]]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        unpacked.leave(Path(os.environ[CODE]), lock)


if __name__ == "__main__":
    main(sys.argv[1:])
