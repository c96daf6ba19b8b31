"""Discover a server's model and features, before any sample depends on them.

`find` and `check` send requests in the caller's event loop. `find_here` and `check_here` are for launches and the
checks before them; they have a separate event loop and a time limit.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from harness.engine import EngineDied, EngineError, Json, RequestRefused, Role, Sampling, Tokenizer
from harness.engines.served.address import ServerAddress, api_key
from harness.engines.served.connection import Connection, NotOffered
from harness.engines.served.interfaces import (
    INTERFACES,
    Asked,
    BadReply,
    Interface,
    Judged,
    NotFinite,
    ServerKind,
    count,
    field,
    shown,
)
from harness.problems import hub
from harness.weights import models
from harness.weights.tokenizer import HFTokenizer

_KNOWN_KINDS = "valid: a server of vLLM, SGLang or llama.cpp, which accept token ids and return log-probabilities"
PADDED_TOKENS = 4096
"""Number of ids accepted above the tokenizer's, for padded vocabularies; higher ids are invalid."""
_MODEL_ID = re.compile(r"[^\x00-\x20\x7f]{1,200}")
_MOST_MODELS_SHOWN = 10
_MOST_CONTEXT = 1 << 30
_TEXTS = (
    "Hello, world! 1234567890",
    "Let x = \\frac{3}{4}; then 2x + 1 >= 2.\n\nStep 2: naïve, 你好, 😀.",
    "  def f(a):\n\treturn [a] * 3",
)
_QUESTION = "What is 1 + 1? Answer with one digit: 0 1 2 3 4 ~ ^"
_TOLERANCE = 0.1
"""Maximum difference in a token's probability between two requests: results vary with the batch."""


class ServerUnfit(ValueError):
    """The server cannot be used as requested; the message is one line with the reason."""


@dataclass(frozen=True, slots=True)
class Found:
    """A server's description of itself."""

    kind: ServerKind
    model: str
    """The model's id for requests."""
    root: str | None
    """The name of the loaded files as reported by the server; None if not reported, or equal to the model's id."""
    context_tokens: int | None
    """Maximum length of prompt plus completion; None if it is not reported."""
    version: str | None

    @property
    def interface(self) -> Interface:
        """The requests and replies of this kind of server."""
        return INTERFACES[self.kind]


async def find(connection: Connection, wanted: str | None = None) -> Found:
    """Identify a server and its model. `wanted`: the model's id; may be None if the server has one model.

    Raises ServerUnfit if the server's kind is unknown or it does not serve the model, EngineDied if it does not
    respond, and BadReply.
    """
    try:
        listed = await connection.get("/v1/models")
    except NotOffered as error:
        raise ServerUnfit(f"{error}; {_KNOWN_KINDS}") from None
    entries = field(listed, "data")
    cards = [card for card in entries if isinstance(card, dict)] if isinstance(entries, list) else []
    model, card = _chosen(connection, cards, wanted)
    interface = await _interface(connection, card.get("owned_by"))
    context = _context(interface.context_of(card))
    if context is None and interface.context_place is not None:
        context = _context(await _told(connection, *interface.context_place))
    told, root = await _told(connection, *interface.version_place), _model_id(card.get("root"))
    version = shown(told)[:50] if isinstance(told, str) else None
    return Found(interface.kind, model, root if root != model else None, context, version)


async def check(connection: Connection, found: Found, tokenizer: HFTokenizer) -> list[str]:
    """Try every kind of request; return notices for the user, one line each.

    Raises ServerUnfit if the server lacks a feature that methods require, and EngineDied if it does not respond.
    """
    asked, interface = Asked(found.model, tokenizer.num_tokens + PADDED_TOKENS, "harness-probe"), found.interface
    notices = await _check_tokenizer(connection, found, tokenizer)
    prompt = [*tokenizer.opening, *tokenizer.encode(_QUESTION)]
    try:
        request = interface.writing(asked, prompt, Sampling(2, 0.5, 0.9, ("\n\n",), 1), logprobs=0)
        written = interface.written(await connection.post(interface.path, request), asked, 2)
        if written.token_ids and not written.logprobs:
            raise BadReply("the server does not return log-probabilities for generated tokens")
        ways = await _check_verdict(connection, found, asked, prompt, tokenizer.encode(_QUESTION))
    except (RequestRefused, NotOffered, BadReply) as error:
        raise ServerUnfit(f"{connection.name} cannot be used: {error}") from None
    if ways > 1:
        notices.append(
            f"{connection.name} returns no log-probabilities for specific tokens; verdicts request the most probable "
            "tokens instead, which is slower"
        )
    return notices


def fingerprint(model: str, tokenizer: HFTokenizer) -> str:
    """Return a served model's identity, from its id at the server, the tokenizer and the chat template."""
    own = [tokenizer.fingerprint, tokenizer.template]
    return f"served:{model}:{hashlib.sha256(repr(own).encode()).hexdigest()[:16]}"


def model_of(identity: str) -> str:
    return identity.removeprefix("served:").rpartition(":")[0]


def _chosen(
    connection: Connection, cards: Sequence[Mapping[str, Json]], wanted: str | None
) -> tuple[str, Mapping[str, Json]]:
    named = {model: card for card in cards if (model := _model_id(card.get("id"))) is not None}
    names = ", ".join(list(named)[:_MOST_MODELS_SHOWN]) + (", …" if len(named) > _MOST_MODELS_SHOWN else "")
    if wanted is not None:
        if wanted not in named:
            raise ServerUnfit(f"{connection.name} does not serve {wanted!r}; it serves: {names or 'no model'}")
        return wanted, named[wanted]
    whole = [model for model, card in named.items() if not card.get("parent")]  # the parent of an adapter is its model
    if len(whole) != 1:
        flag = f"--{connection.role}.served-model: {names or 'none listed'}"
        raise ServerUnfit(f"{connection.name} serves {len(whole)} models; choose one with {flag}")
    return whole[0], named[whole[0]]


async def _interface(connection: Connection, owner: Json) -> Interface:
    for interface in INTERFACES.values():
        if interface.owner == owner:
            return interface
    for interface in INTERFACES.values():
        if await _told(connection, interface.own_path) is not None:
            return interface
    raise ServerUnfit(f"{connection.name} is of an unknown kind; {_KNOWN_KINDS}")


async def _told(connection: Connection, path: str, *place: str) -> Json:
    """Return the value at a place in the reply to a GET; None if the server does not return it."""
    try:
        return field(await connection.get(path), *place)
    except EngineError:  # not supported, or not allowed with this key
        return None


def _context(value: Json) -> int | None:
    tokens = count(value)
    return tokens if tokens and tokens <= _MOST_CONTEXT else None


def _model_id(value: Json) -> str | None:
    return value if isinstance(value, str) and _MODEL_ID.fullmatch(value) else None


async def _check_tokenizer(connection: Connection, found: Found, tokenizer: Tokenizer) -> list[str]:
    """Compare how the server and this tokenizer decode the same ids; return notices. Raises ServerUnfit."""
    for text in _TEXTS:
        ids = tokenizer.encode(text)
        try:
            reply = await connection.post("/detokenize", found.interface.detokenizing(found.model, ids))
        except (NotOffered, RequestRefused):
            return [f"{connection.name} does not answer /detokenize, so its tokenizer cannot be checked"]
        there = next(
            (value for name in ("prompt", "content", "text") if (value := field(reply, name)) is not None), None
        )
        if there not in (
            text,
            f" {text}",
            text.removeprefix(" "),
        ):  # some servers add or drop a space before the first word
            differs = f"has a different tokenizer: {ids[:8]} is {text[:24]!r} here and {str(there)[:60]!r} there"
            raise ServerUnfit(f"{connection.name} {differs}; pass its tokenizer with --{connection.role}.tokenizer")
    return []


async def _check_verdict(
    connection: Connection, found: Found, asked: Asked, prompt: Sequence[int], tokens: Sequence[int]
) -> int:
    """Return the number of requests per verdict. Raises an EngineError if the server returns no usable verdict.

    To be usable, an option's log-probability must not depend on the other options.
    """
    options = list(dict.fromkeys(tokens))[:12]
    ways, of_many = await judge(connection, found.interface, asked, prompt, options)
    unlikely = sorted(options, key=lambda option: of_many.logprobs[option])[:2]
    _, of_two = await judge(connection, found.interface, asked, prompt, unlikely)
    for option in unlikely:
        first, second = of_many.logprobs[option], of_two.logprobs[option]
        if abs(math.exp(first) - math.exp(second)) > _TOLERANCE or abs(first - second) > max(1.0, -0.1 * first):
            raise BadReply(
                "a token's log-probability depends on which other tokens are requested; "
                "vLLM needs --logprobs-mode raw_logprobs"
            )
    return ways


async def judge(
    connection: Connection, interface: Interface, asked: Asked, prompt: Sequence[int], options: Sequence[int]
) -> tuple[int, Judged]:
    """Return the number of requests that were needed, and the log-probabilities of the options.

    Raises EngineDied, RequestRefused, BadReply, and NotFinite if none of the alternative requests returns all options.
    """
    missing: list[int] = list(options)
    requests, controls = (interface.judging(asked, ids, options) for ids in (prompt, prompt[:1]))
    for number, (request, control) in enumerate(zip(requests, controls, strict=True), 1):
        try:
            judged = interface.judged(await connection.post(interface.path, request, control), asked)
        except RequestRefused as refusal:
            if number == 1:
                raise
            lacks = f"the server does not return log-probabilities for the tokens {missing[:5]}"
            raise BadReply(f"{lacks}; vLLM needs --max-logprobs -1: {refusal}") from None
        missing = [option for option in options if option not in judged.logprobs]
        if not missing:
            return number, judged
    raise NotFinite(f"the server returned no finite log-probabilities for the tokens {missing[:5]}")


_ATTEMPTS, _FIRST_WAIT_SECONDS = 2, 0.2
FIND_SECONDS = 30.0
"""Time limit for identifying a server, which needs no computation by a model."""
CHECK_SECONDS = 240.0
"""Time limit for trying requests, which may wait for other users' requests."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class OwnTokenizer:
    """The local tokenizer of a served model, with its source."""

    source: models.ModelRef
    tokenizer: HFTokenizer


def find_here(address: ServerAddress, role: Role, wanted: str | None) -> Found:
    """Identify the server of a role. Raises ValueError with one line, and EngineDied if the server does not respond."""
    return _run(address, role, lambda connection: find(connection, wanted), FIND_SECONDS)


def check_here(address: ServerAddress, role: Role, found: Found, own: OwnTokenizer) -> list[str]:
    """Try every kind of request; return notices for the user, one line each. Raises ValueError with one line."""
    try:
        return _run(address, role, lambda connection: check(connection, found, own.tokenizer), CHECK_SECONDS)
    except EngineDied as error:
        raise ValueError(str(error)) from None


def own_tokenizer(role: Role, model: str, root: str | None, named: str | None) -> OwnTokenizer:
    """Return the tokenizer of a served model: `named`, otherwise the one with the name of the model or its files.

    `model`, `root`: ids of the model and of its files at the server. Raises ValueError if there is no such tokenizer.
    """
    reasons = []
    for name in [named] if named is not None else [model, *([root] if root else [])]:
        try:
            folder = models.folder_named(name)  # a folder with only a tokenizer is not a model folder
            path = str(folder.resolve()) if folder else None
            source = models.ModelRef(name, path, None, None) if path else models.resolve(name)
            with hub.quick_failure():
                return OwnTokenizer(source, HFTokenizer(source.path_or_hub_id, source.revision))
        except (OSError, ValueError, models.ModelUnavailable) as error:
            reasons.append(" ".join(str(error).split())[:200])
    if named is not None:
        raise ValueError(
            f"--{role}.tokenizer {named}: expected a known model, a hub id or a folder with a tokenizer: {reasons[0]}"
        )
    lacks = f"the {role}'s server calls its model {model!r}, and no tokenizer has that name"
    raise ValueError(f"{lacks}; set --{role}.tokenizer to a known name, a hub id or a folder")


def _run(
    address: ServerAddress, role: Role, ask: Callable[[Connection], Coroutine[Any, Any, _T]], limit_seconds: float
) -> _T:
    """Run requests in a thread, because the caller may already be in an event loop, as in a notebook.

    Raises EngineDied after the time limit, and ValueError for a bad reply.
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
        except BadReply as error:
            raise ValueError(str(error)) from None
        except TimeoutError:
            raise EngineDied(f"{connection.name} did not respond within {limit_seconds:g} seconds") from None
        finally:
            await connection.close()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(asked())).result()
