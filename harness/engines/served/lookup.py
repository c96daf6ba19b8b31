"""A server and the tokenizer of its model, found together: for a launch, and for the checks before one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from harness.engine import EngineDied, Role
from harness.engines.served import probe
from harness.engines.served.address import ServerAddress, api_key
from harness.engines.served.connection import Connection
from harness.engines.served.replies import BadReply
from harness.engines.served.served_engine import PADDED_TOKENS
from harness.problems import hub
from harness.weights import models
from harness.weights.tokenizer import HFTokenizer

_ATTEMPTS, _FIRST_WAIT_SECONDS = 2, 0.2
FIND_SECONDS = 30.0
"""For what a server says of itself, which it need not compute."""
CHECK_SECONDS = 240.0
"""For texts and verdicts, which may wait behind the requests of others."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class OwnTokenizer:
    """The tokenizer of a served model, as this machine has it."""

    source: models.ModelRef
    tokenizer: HFTokenizer


def find(address: ServerAddress, role: Role, wanted: str | None) -> probe.Found:
    """Ask the server of a role what it runs. Raises ValueError with one line, and EngineDied without an answer."""

    async def ask(connection: Connection) -> probe.Found:
        try:
            return await probe.find(connection, wanted)
        except BadReply as error:
            raise ValueError(str(error)) from None

    return _run(address, role, ask, FIND_SECONDS)


def check(address: ServerAddress, role: Role, found: probe.Found, own: OwnTokenizer) -> list[str]:
    """Try every kind of request; return what a user should know, one line each. Raises ValueError with one line."""

    async def ask(connection: Connection) -> list[str]:
        try:
            return await probe.check(connection, found, own.tokenizer, own.tokenizer.num_tokens + PADDED_TOKENS)
        except BadReply as error:
            raise ValueError(str(error)) from None

    try:
        return _run(address, role, ask, CHECK_SECONDS)
    except EngineDied as error:
        raise ValueError(str(error)) from None


def own_tokenizer(role: Role, model: str, root: str | None, named: str | None) -> OwnTokenizer:
    """Return the tokenizer of a served model: the named one, or that of the model that the server calls so.

    `root`: the files that the server says it loaded. Raises ValueError where there is none here.
    """
    reasons = []
    for name in [named] if named is not None else [model, *([root] if root else [])]:
        try:
            folder = models.folder_named(name)  # a folder of a tokenizer alone is none of a model
            path = str(folder.resolve()) if folder else None
            source = models.ModelRef(name, path, None, None) if path else models.resolve(name)
            with hub.quick_failure():
                return OwnTokenizer(source, HFTokenizer(source.path_or_hub_id, source.revision))
        except (OSError, ValueError, models.ModelUnavailable) as error:
            reasons.append(" ".join(str(error).split())[:200])
    if named is not None:
        raise ValueError(
            f"--{role}-tokenizer {named}: no tokenizer of a known model, a hub id or a folder: {reasons[0]}"
        )
    raise ValueError(
        f"the {role}'s server calls its model {model!r}, and no tokenizer of that name is here: "
        f"--{role}-tokenizer with a known name, a hub id or a folder"
    )


def _run(
    address: ServerAddress, role: Role, ask: Callable[[Connection], Coroutine[Any, Any, _T]], limit_seconds: float
) -> _T:
    """Run requests to their end in a thread, because the caller may be in an event loop itself, as in a notebook.

    Raises EngineDied where they have not ended after so many seconds.
    """
    key = api_key(role)

    async def asked() -> _T:
        connection = Connection(
            *(address, role, key),
            attempts=_ATTEMPTS,
            first_wait_seconds=_FIRST_WAIT_SECONDS,
            reply_seconds=limit_seconds / _ATTEMPTS,
        )
        try:
            async with asyncio.timeout(limit_seconds):
                return await ask(connection)
        except TimeoutError:
            raise EngineDied(f"{connection.name} has not answered within {limit_seconds:g} seconds") from None
        finally:
            await connection.close()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(asked())).result()
