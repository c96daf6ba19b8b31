"""A method's code as one file, as a run folder and a job's code hold it: `method.json`, and below `code/` its files."""

from __future__ import annotations

import io
import json
import sys
import tempfile
import zipfile
from pathlib import Path

from harness.code_hash import digest_of
from harness.methods.own_code import BadMethod
from harness.methods.plugins import PREFIX, PlugIn, hash_of
from harness.methods.references import load

_FILE_TIME = (1980, 1, 1, 0, 0, 0)
"""Modification time of every file in an archive, so that equal code makes equal bytes."""
_ABOUT, _CODE = "method.json", "code"
_MAX_BYTES = 64 * 2**20
"""Most that an archive may unpack to."""
_folders: list[tempfile.TemporaryDirectory[str]] = []
"""Folders of unpacked code, which the process needs until it ends."""


def packed(plugin: PlugIn) -> bytes:
    """Return a method's code as an archive."""
    about = {"name": plugin.name, "reference": plugin.reference, "distribution": plugin.distribution}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        _write(archive, _ABOUT, json.dumps(about, indent=2, sort_keys=True).encode())
        for name, code in sorted(plugin.contents.items()):
            _write(archive, f"{_CODE}/{name}", code)
    return content.getvalue()


def load_packed(content: bytes, code_hash: str | None = None) -> PlugIn:
    """Register the method of an archive, from a copy of its files that is removed when the process ends.

    `code_hash`: what the code's hash should be; nothing is imported where it is another. Code that is installed is not
    in the archive, and so not compared. Raises BadMethod where the archive is damaged or the method cannot be imported.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(member.file_size for member in archive.infolist()) > _MAX_BYTES:
                raise BadMethod("the archive of the method's code is too large")
            about = json.loads(archive.read(_ABOUT))
            if code_hash not in (None, found := _hash(archive)) and found is not None:
                raise BadMethod(f"the archive of the method's code has the hash {found} instead of {code_hash}")
            folder = _extracted(archive)
    except (zipfile.BadZipFile, KeyError, OSError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadMethod(f"the archive of the method's code is damaged: {error}") from error
    name, reference = str(about["name"]), str(about["reference"])
    if folder is not None and not reference.partition(":")[0].endswith(".py"):
        sys.path.insert(0, str(folder))
    try:
        return load(name, reference, folder)
    except BadMethod as error:
        installed = f" (it was installed with {about['distribution']})" if about.get("distribution") else ""
        raise BadMethod(f"method {name}, {reference}: {error}{installed}") from error


def _hash(archive: zipfile.ZipFile) -> str | None:
    """Return the hash of the code in an archive, as `PlugIn.code_hash` has it; None where it holds none."""
    names = _members(archive)
    own = {f"{PREFIX}{name.removeprefix(f'{_CODE}/')}": digest_of(name, archive.read(name)) for name in names}
    return hash_of(own) if own else None


def _members(archive: zipfile.ZipFile) -> list[str]:
    return [name for name in archive.namelist() if name.startswith(f"{_CODE}/")]


def _extracted(archive: zipfile.ZipFile) -> Path | None:
    """Return a new folder with the code of an archive; None where it holds none."""
    members = _members(archive)
    if not members:
        return None
    folder = tempfile.TemporaryDirectory(prefix="harness-method-")
    _folders.append(folder)
    archive.extractall(folder.name, members)  # which leaves out what would lead out of the folder
    return Path(folder.name) / _CODE


def _write(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _FILE_TIME), content, zipfile.ZIP_DEFLATED)
