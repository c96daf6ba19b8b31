"""Trust in run-folder content that can run code as the current user, or send prompts and keys to a server.

This includes sbatch options (`setup`, `srun`, `python` and all others), vLLM arguments, code of methods and graders
outside this package, and server addresses. Anyone with write access to the folder may have added them, and file
ownership does not identify the author of a line, so trust applies to content. Content given by this user at a launch is
remembered. Other content is used only after a command has shown it and was repeated with `--trust`.

    ~/.local/state/speculative-harness/trusted    or below $XDG_STATE_HOME: one digest per line

A digest covers the content and the parent of the run folders, so each user accepts content once per parent folder.
Jobs do not ask: their batch scripts, created by the submitting user, export the digests that the command relied on.
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
"""Environment variable: the digests that this process, or its parent, relies on."""
_DIGITS = 32
_MOST_CHARACTERS = 20_000
"""Longer content cannot be accepted, because nobody would read it."""


class NotTrusted(ValueError):
    """Untrusted content would be used; the message is one line."""


@dataclass(frozen=True)
class Recorded:
    """Content of a run folder that the user must trust before it is used."""

    what: str
    content: str
    """The complete effective content, in lines."""
    hint: str = ""
    """Readable form if the content is only a digest, in lines."""


def options(given: Mapping[str, Any]) -> list[Recorded]:
    """Return sbatch options as content that must be trusted; empty if there are none."""
    return [Recorded("options of sbatch", _lines(given))] if given else []


def arguments(settings: Mapping[Any, ModelSettings]) -> list[Recorded]:
    """Return vLLM arguments by role as content that must be trusted: some contain code paths or addresses."""
    return [
        Recorded(f"arguments of the {role}'s vLLM", _lines(own.engine)) for role, own in settings.items() if own.engine
    ]


def servers(addresses: Mapping[Any, str]) -> list[Recorded]:
    """Return the addresses of a run's servers as content that must be trusted."""
    return [Recorded(f"the address of the {role}'s server", address) for role, address in addresses.items()]


def code(kind: Literal["method", "grader"], reference: str, archive: bytes) -> list[Recorded]:
    """Return the archived code of a method or grader as content that must be trusted. Raises BadMethod."""
    digest, files = hashlib.sha256(archive).hexdigest(), files_packed(archive)
    texts = [f"{name}:\n{content.decode('utf-8', 'backslashreplace')}" for name, content in files.items()]
    sums = [f"sha256 {hashlib.sha256(content).hexdigest()} {name}" for name, content in files.items()]
    shown = texts if sum(map(len, texts)) <= _MOST_CHARACTERS else [*sums, "too long to be shown"]
    return [Recorded(f"the code of its {kind}", f"sha256 {digest}", "\n".join([reference, *shown]))]


def remember(run: RunFolder, recorded: Sequence[Recorded]) -> None:
    """Trust content that this user gave or accepted, in this process and in its jobs and workers."""
    if recorded:
        digests = {_digest(run, one): one.what for one in recorded}
        _rely_on(digests)
        with contextlib.suppress(OSError, RuntimeError):  # file not writable: remembered in this process only
            _write(run, digests)


def require(run: RunFolder, recorded: Sequence[Recorded]) -> None:
    """Raise NotTrusted if content is not trusted. Call this with exactly the content that is used next."""
    if recorded and (unknown := _unknown(run, recorded)):
        raise NotTrusted(
            f"{run.path.name} contains {unknown[0].what} that you did not provide and have not accepted. These "
            f"commands show it and stop: {typed('jobs resume')}, finalize, probe, target-logprobs, worker. To accept "
            "it, repeat one with --trust"
        )


def ask(run: RunFolder, recorded: Sequence[Recorded], *, accept: bool) -> None:
    """Show untrusted content; with `accept`, trust it if it was shown before. Raises NotTrusted otherwise."""
    unknown = _unknown(run, recorded)
    if not unknown:
        return
    click.echo(f"{run.path} contains the following, which you did not provide:", err=True)
    for one in unknown:
        if len(one.content) > _MOST_CHARACTERS:
            raise NotTrusted(f"{run.path.name}: {one.what}: too long to be accepted ({len(one.content)} characters)")
        told = [*one.content.split("\n"), *(one.hint.split("\n") if one.hint else [])]
        lines = [one.what, *(f"  {line}" for line in told)]
        click.echo("".join(f"  {printable(line)}\n" for line in lines), err=True, nl=False)
    shown = {_digest(run, one, "shown"): one.what for one in unknown}
    if accept and shown.keys() <= _accepted():
        remember(run, unknown)
        return
    try:
        _write(run, shown)
    except (OSError, RuntimeError) as error:
        raise NotTrusted(f"cannot record what was shown: {error}; set XDG_STATE_HOME to a writable folder") from error
    first = " (shown for the first time)" if accept else ""
    raise NotTrusted(
        f"{run.path.name} would use {' and '.join(shown.values())}, which you did not provide{first}: to accept the "
        "content shown above, repeat the command with --trust"
    )


def _lines(given: Mapping[str, Any]) -> str:
    pairs = sorted(given.items())
    return "\n".join(f"{json.dumps(name)} = {json.dumps(value, sort_keys=True)}" for name, value in pairs)


def _unknown(run: RunFolder, recorded: Iterable[Recorded]) -> list[Recorded]:
    """Return the untrusted content; from now on, this process relies on the trusted content."""
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
    """Open the file with this user's digests.

    Raises RuntimeError if there is no home folder, and OSError if opening fails or another user owns the file (as with
    `su`).
    """
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    folder = (named if named.is_absolute() else Path("~/.local/state").expanduser()) / "speculative-harness"
    if flags & os.O_CREAT:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / "trusted", flags | os.O_NOFOLLOW, 0o600)
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise PermissionError(errno.EACCES, "owned by another user", str(folder / "trusted"))
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
