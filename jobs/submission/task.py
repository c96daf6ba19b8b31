"""A job's task in a Python of its own: unpack the submitted code here, run it, and remove it at the end.

`begin` runs from the archive itself, in an interpreter that may have none of the packages, so only the standard library
is imported. It replaces itself by `python -m jobs.submission.task`, which runs the module that it is told from the
unpacked code; so that signals meet the task, and the interpreter has nothing of the archive in it.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import os
import re
import runpy
import shutil
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import NoReturn

CODE = "HARNESS_CODE"
"""Environment variable: the folder that a job's code was unpacked into."""
_NAME = re.compile(r"[\w.-]+")


def begin(arguments: list[str]) -> None:
    """Become the task: `arguments` are the archive, its SHA-256, and what Python is to run (`-u -m MODULE …`).

    Ends with a line and exit code 2 where this interpreter lacks packages, or the code cannot be unpacked.
    """
    archive, sha256, *command = arguments
    if missing := missing_packages(Path(archive)):
        names = ", ".join(missing)
        _stop(f"{sys.executable} has no {names}: install what pyproject.toml requires for the python of the profile")
    folder = unpack(archive, sha256)
    os.environ[CODE] = str(folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    # `python -m` puts the working directory first, which is often the checkout, edited since.
    os.environ["PYTHONSAFEPATH"] = "1"
    command.insert(command.index("-m") + 1, __name__)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *command])


def unpack(archive: str, sha256: str) -> Path:
    """Check an archive and unpack it into a new folder for temporary files; returns the folder.

    Ends with a line and exit code 2 where the archive is not what was submitted, or nothing can be written.
    """
    try:
        content = Path(archive).read_bytes()
        if hashlib.sha256(content).hexdigest() != sha256:
            _stop(f"{archive} is damaged: it is not the archive that was submitted")
        folder = Path(tempfile.mkdtemp(prefix="harness-code-"))
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            packed.extractall(folder)
    except OSError as error:
        _stop(f"the code cannot be unpacked: {error}; set TMPDIR in the profile's setup to a folder with room")
    return folder


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


def _stop(text: str) -> NoReturn:
    print(f"error: {text}", file=sys.stderr)
    sys.exit(2)


def main(arguments: list[str]) -> None:
    """Run a module of the unpacked code, and remove that at the end. The arguments are the module and its own."""
    sys.argv = arguments
    try:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    finally:
        shutil.rmtree(os.environ[CODE], ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
