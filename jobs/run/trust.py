"""What a run folder holds that would run as whoever works on the run, or would be sent their prompts and keys.

That is the options of sbatch (`setup`, `srun`, `python` and all others), the arguments of vLLM, the code of a method
or a grader that is not part of this package, and the addresses of servers. Whoever may write to the folder may have put
it there, and the owner of a file does not tell who wrote a line of it, so trust belongs to content. What this user gave
a launch is remembered; what anybody else recorded is used only after a command has shown it and was repeated with
`--trust`.

    ~/.local/state/speculative-harness/trusted    or below $XDG_STATE_HOME: a line for each digest of folder and content

The folder is the one that the run folders are in: a group that works there accepts once each. A job asks nobody: its
batch script, which the one who submitted it has made, exports the digests of what that command relied on.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from harness.cli.program import typed
from harness.cli.screen import printable
from harness.methods.references import files_packed
from harness.settings.roles import ModelSettings
from jobs.run.folder import RunFolder

VARIABLE = "HARNESS_TRUSTED"
"""Environment variable: the digests that this process, or the one that started it, relies on."""
_DIGITS = 32
_MOST_CHARACTERS = 20_000
"""Nobody would read more than this, so it cannot be accepted."""


class NotTrusted(ValueError):
    """Something would be used that this user neither gave nor accepted; the message is one line."""


@dataclass(frozen=True)
class Recorded:
    """Something that a run folder holds of this sort."""

    what: str
    content: str
    """All of it that has an effect, in lines."""
    hint: str = ""
    """What the content is only the digest of, in lines."""


def options(given: Mapping[str, Any]) -> list[Recorded]:
    """Return options of sbatch; nothing where there are none."""
    return [Recorded("options of sbatch", _lines(given))] if given else []


def arguments(settings: Mapping[Any, ModelSettings]) -> list[Recorded]:
    """Return the arguments of vLLM among the settings of models by role: some name files of code, others addresses."""
    return [
        Recorded(f"arguments of the {role}'s vLLM", _lines(own.engine)) for role, own in settings.items() if own.engine
    ]


def servers(addresses: Mapping[Any, str]) -> list[Recorded]:
    """Return the addresses of a run's servers, by role."""
    return [Recorded(f"the address of the {role}'s server", address) for role, address in addresses.items()]


def code(kind: Literal["method", "grader"], reference: str, archive: bytes) -> list[Recorded]:
    """Return the code of a run's method or grader, given by its archive. Raises BadMethod."""
    digest, files = hashlib.sha256(archive).hexdigest(), files_packed(archive)
    texts = [f"{name}:\n{content.decode('utf-8', 'backslashreplace')}" for name, content in files.items()]
    sums = [f"sha256 {hashlib.sha256(content).hexdigest()} {name}" for name, content in files.items()]
    shown = texts if sum(map(len, texts)) <= _MOST_CHARACTERS else [*sums, "too long to be shown"]
    return [Recorded(f"the code of its {kind}", f"sha256 {digest}", "\n".join([reference, *shown]))]


def remember(run: RunFolder, recorded: Sequence[Recorded]) -> None:
    """Trust what this user gave or has accepted; jobs and workers of this process then do, too."""
    if recorded:
        digests = {_digest(run, one): one.what for one in recorded}
        _rely_on(digests)
        with contextlib.suppress(OSError, RuntimeError):  # no place for the file: this process alone remembers them
            _write(run, digests)


def require(run: RunFolder, recorded: Sequence[Recorded]) -> None:
    """Raise NotTrusted where one of these is not trusted. It is called with the very content that is used next."""
    if recorded and (unknown := _unknown(run, recorded)):
        raise NotTrusted(
            f"{run.path.name} records {unknown[0].what}, which you did not give, so it is not used: "
            f"{typed('jobs resume')}, finalize, probe, target-logprobs and worker show it, and accept it with --trust"
        )


def ask(run: RunFolder, recorded: Sequence[Recorded], *, accept: bool) -> None:
    """Show what is not trusted, and with `accept` trust it if it was shown before. Raises NotTrusted if it is not."""
    unknown = _unknown(run, recorded)
    if not unknown:
        return
    click.echo(f"Recorded in {run.path}, and not given by you:", err=True)
    for one in unknown:
        if len(one.content) > _MOST_CHARACTERS:
            raise NotTrusted(f"{run.path.name}: {one.what} has {len(one.content)} characters, too many to be accepted")
        told = [*one.content.split("\n"), *(one.hint.split("\n") if one.hint else [])]
        lines = [one.what, *(f"  {line}" for line in told)]
        click.echo("".join(f"  {printable(line)}\n" for line in lines), err=True, nl=False)
    shown = {_digest(run, one, "shown"): one.what for one in unknown}
    if accept and shown.keys() <= _accepted():
        remember(run, unknown)
        return
    _write(run, shown)
    first = ", and is shown for the first time" if accept else ""
    raise NotTrusted(
        f"{run.path.name} holds {' and '.join(shown.values())}, which you did not give and would use{first}: to accept "
        "what is shown above, repeat this with --trust"
    )


def _lines(given: Mapping[str, Any]) -> str:
    return "\n".join(
        f"{json.dumps(name)} = {json.dumps(value, sort_keys=True)}" for name, value in sorted(given.items())
    )


def _unknown(run: RunFolder, recorded: Iterable[Recorded]) -> list[Recorded]:
    """Return what is not trusted; on all else this process relies."""
    digests = {_digest(run, one): one for one in recorded}
    known = digests.keys() & (_accepted() | _relied_on())
    _rely_on(known)
    return [one for digest, one in digests.items() if digest not in known]


def _digest(run: RunFolder, one: Recorded, state: str = "trusted") -> str:
    text = "\0".join((state, str(run.path.resolve().parent), one.what, one.content))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]


def _relied_on() -> set[str]:
    return set(os.environ.get(VARIABLE, "").split())


def _rely_on(digests: Collection[str]) -> None:
    if digests:
        os.environ[VARIABLE] = " ".join(sorted(_relied_on().union(digests)))


def _file(flags: int) -> int:
    """Open this user's file. Raises OSError, also if it is another's, as under `su` with their HOME; RuntimeError."""
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    folder = (named if named.is_absolute() else Path("~/.local/state").expanduser()) / "speculative-harness"
    if flags & os.O_CREAT:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / "trusted", flags | os.O_NOFOLLOW, 0o600)
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise PermissionError(errno.EACCES, "it belongs to another user", str(folder / "trusted"))
    return descriptor


def _accepted() -> set[str]:
    with (
        contextlib.suppress(OSError, RuntimeError),
        os.fdopen(_file(os.O_RDONLY), encoding="utf-8", errors="replace") as file,
    ):
        return {line.partition(" ")[0] for line in file}
    return set()


def _write(run: RunFolder, digests: Mapping[str, str]) -> None:
    """Add digests to the file. Raises OSError and RuntimeError."""
    known, folder = _accepted(), printable(str(run.path.resolve().parent))
    lines = [f"{digest} {what} in {folder}\n" for digest, what in digests.items() if digest not in known]
    if lines:
        with os.fdopen(_file(os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a", encoding="utf-8") as file:
            file.write("".join(lines))
