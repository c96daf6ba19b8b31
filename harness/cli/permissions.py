"""Format permission errors as one line with the file's owner."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

_QUOTED = re.compile(r"'([^']+)'")


def is_forbidden(error: BaseException) -> bool:
    """Return whether an error is due to missing permissions or a read-only file system."""
    return isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)


def explained(error: OSError) -> str:
    """Return a permission error (see `is_forbidden`) as one line: file, reason and owner."""
    name = error.filename if isinstance(error.filename, str | os.PathLike) else None
    if name is None and (quoted := _QUOTED.search(str(error))):  # Arrow: only in the message
        name = quoted[1]
    if name is None:
        return " ".join(str(error).split())
    path, reason = Path(name), os.strerror(error.errno or errno.EACCES)
    place = next(upper for upper in (path, *path.parents) if os.path.lexists(upper) or upper == upper.parent)
    found = place.lstat()
    whose = "it" if place == path else str(place)
    owner = f"user {found.st_uid}, group {found.st_gid}, mode {stat.S_IMODE(found.st_mode):04o}"
    return f"{path}: {reason}; {whose} belongs to {owner}; you are user {os.geteuid()}"
