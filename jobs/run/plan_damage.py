"""What is wrong with a file of a run's plan, as one line: missing, forbidden, damaged, or of another format."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from harness.cli import permissions
from jobs.run import trace_files
from jobs.run.digest import FileDamaged


class RunDamaged(FileDamaged):
    """A file of a run's plan cannot be read; the message is one line that names the file."""


class RunForbidden(RunDamaged):
    """The user may not read a file of a run's plan."""


@contextlib.contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turn what reading a file of the plan raises into RunDamaged."""
    try:
        yield
    except FileNotFoundError as error:
        raise RunDamaged(f"{path} is missing") from error
    except PermissionError as error:
        raise RunForbidden(permissions.explained(error)) from error
    except FileDamaged as error:
        raise RunDamaged(str(error)) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(key) for key in first["loc"])
        raise RunDamaged(f"{path} is damaged: {place}{': ' if place else ''}{first['msg']}") from error
    except (*trace_files.DAMAGED, ValueError, TypeError, LookupError, RecursionError) as error:
        problem = "cannot be read" if isinstance(error, OSError) and error.errno else "is damaged"
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise RunDamaged(f"{path} {problem}: {reason}") from error
