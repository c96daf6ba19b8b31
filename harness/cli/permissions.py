"""What a user may not do with a file, as one line: whose file it is, and what its owner can do about it."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import re
import shlex
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_DENIED = (errno.EACCES, errno.EPERM)
_QUOTED = re.compile(r"'([^']+)'")
_MARK_OF_A_RUN = "spec.json"
"""File of a run folder, which is shared as a whole."""


def is_forbidden(error: BaseException) -> bool:
    """Return whether an error says that the user, or a read-only file system, does not allow something."""
    return isinstance(error, OSError) and error.errno in (*_DENIED, errno.EROFS)


def explained(error: OSError) -> str:
    """Return one line about an error for which `is_forbidden` is true."""
    path = _path_of(error)
    if path is None:
        return " ".join(str(error).split())
    if error.errno == errno.EROFS:
        return f"{path} cannot be written: its file system is mounted read-only"
    cannot, place = _barrier(path)
    try:
        found = place.stat()
    except OSError:
        return f"{path} {cannot}: {os.strerror(error.errno or errno.EACCES)}"
    owner, group, me = (_name(pwd.getpwuid, found.st_uid), _name(grp.getgrgid, found.st_gid), os.geteuid())
    whose = "it belongs" if place == path else f"{place} belongs"
    mode = stat.S_IMODE(found.st_mode)
    problem = (
        f"{path} {cannot}: {whose} to {owner}, group {group}, mode {mode:04o}, and you are {_name(pwd.getpwuid, me)}"
    )
    if found.st_uid == me:
        return f"{problem}; chmod u+rwX {shlex.quote(str(place))}"
    share = f"chmod -R g+rwX {shlex.quote(str(_shared_folder(place)))}"
    if found.st_gid in {os.getegid(), *os.getgroups()}:
        return f"{problem}; {owner} can share it with the group: {share}"
    return f"{problem}, not in that group; {owner} can share it: chgrp -R GROUP and {share}"


def _path_of(error: OSError) -> Path | None:
    """Return the file that an error is about; Arrow's errors name it only in their message."""
    name = error.filename if isinstance(error.filename, str | os.PathLike) else None
    quoted = _QUOTED.search(str(error))
    return Path(name) if name is not None else Path(quoted[1]) if quoted else None


def _barrier(path: Path) -> tuple[str, Path]:
    """Return what cannot be done with a path, and the file or folder whose mode is in the way."""
    for folder in reversed(path.parents):
        if not _may(folder, os.X_OK) and os.path.lexists(folder):
            return "cannot be reached", folder
    if not os.path.lexists(path):
        folder = next((folder for folder in path.parents if os.path.lexists(folder)), path.parent)
        return "cannot be created", folder
    if not _may(path, os.R_OK) or (path.is_dir() and not _may(path, os.X_OK)):
        return "cannot be read", path
    if not _may(path, os.W_OK):
        return "cannot be written", path
    return "cannot be replaced", path.parent


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _shared_folder(place: Path) -> Path:
    """Return the run folder that a file belongs to; elsewhere the file's folder."""
    folder = place if place.is_dir() else place.parent
    # Unlike pathlib's, these functions say no where the user may not look.
    runs = [upper for upper in (folder, *folder.parents) if os.path.lexists(upper / _MARK_OF_A_RUN)]
    return runs[0] if runs else folder


def _name(lookup: Callable[[int], Sequence[Any]], number: int) -> str:
    """Return the name of a user or group, or its number where it has none."""
    try:
        return str(lookup(number)[0])
    except KeyError:
        return str(number)
