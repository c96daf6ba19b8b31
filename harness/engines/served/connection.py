"""Requests to a server, with retries and a size limit; no message contains the key."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
import orjson
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)

from harness.engine import EngineDied, EngineError, Json, RequestRefused, Role
from harness.engines.served import interfaces
from harness.engines.served.address import ServerAddress, key_variable

MOST_ATTEMPTS = 8
"""Maximum number of attempts per request. With the waits, this covers about 90 seconds of downtime, such as a restart
behind a proxy."""
_FIRST_WAIT_SECONDS = 1.0
_LONGEST_WAIT_SECONDS = 30.0
_CONNECT_SECONDS = 10.0
_MOST_BYTES = 128 << 20
"""Maximum size of a reply. Log-probabilities of a whole vocabulary of 256,000 tokens take about 30 MiB."""
_REFUSED = (400, 413, 414, 422)
_FORBIDDEN = (401, 403)
_NOT_OFFERED = (404, 405, 501)
_TRY_AGAIN = (408, 425, 429, 500, 502, 503, 504)


class NotOffered(EngineDied):
    """The server does not support this request, or no longer does; the message is one line."""


class _TryAgain(Exception):
    def __init__(self, reason: str, wait_seconds: float = 0.0, status: int | None = None) -> None:
        super().__init__(reason)
        self.wait_seconds, self.status = wait_seconds, status


class Connection:
    """A connection to the server of a role. Retried requests are identical and have the same seed."""

    def __init__(
        self,
        address: ServerAddress,
        role: Role,
        key: str | None = None,
        *,
        attempts: int = MOST_ATTEMPTS,
        first_wait_seconds: float = _FIRST_WAIT_SECONDS,
        reply_seconds: float | None = None,
    ) -> None:
        """`reply_seconds`: maximum time to wait for the next byte of a reply; None for no limit."""
        self.address, self.role = address, role
        self.num_resent = 0
        """Number of requests sent again after a failure."""
        self._attempts, self._first_wait_seconds = attempts, first_wait_seconds
        self._headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        # Ignore the environment: a proxy or a .netrc would change the server and the credentials.
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(reply_seconds, connect=_CONNECT_SECONDS, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            follow_redirects=False,
            trust_env=False,
        )

    @property
    def name(self) -> str:
        """The server's name for messages."""
        return f"the {self.role}'s server at {self.address.shown}"

    async def close(self) -> None:
        """Close all connections. May be called more than once."""
        await self._client.aclose()

    async def get(self, path: str) -> Json:
        """Return the JSON of a GET. Raises EngineDied, NotOffered, RequestRefused and BadReply."""
        return await self._tried("GET", path, None)

    async def post(self, path: str, body: Mapping[str, Json], control: Mapping[str, Json] | None = None) -> Json:
        """Return the JSON of a POST. Raises EngineDied, NotOffered and RequestRefused.

        `control`: a request of the same kind that a working server answers. If a request keeps failing with status 500
        but the control succeeds, the request itself is the cause, and RequestRefused is raised instead of EngineDied.
        """
        try:
            return await self._tried("POST", path, orjson.dumps(body), orjson.dumps(control) if control else None)
        except interfaces.BadReply as error:
            raise EngineDied(str(error)) from error

    async def _tried(self, verb: str, path: str, body: bytes | None, control: bytes | None = None) -> Json:
        try:
            async for attempt in AsyncRetrying(
                stop=stop_after_attempt(self._attempts),
                wait=self._wait,
                retry=retry_if_exception_type(_TryAgain),
                reraise=True,
            ):
                with attempt:
                    self.num_resent += attempt.retry_state.attempt_number > 1
                    return await self._once(verb, path, body)
        except _TryAgain as failure:
            latest = failure
        if latest.status == 500 and control is not None and await self._answers(path, control):
            self.num_resent += 1
            try:  # once more, because the server may have recovered just before the control request
                return await self._once(verb, path, body)
            except _TryAgain as failure:
                if failure.status == 500:
                    raise RequestRefused(f"{self.name} failed on the request: {failure}") from None
                latest = failure
        raise EngineDied(f"{self.name} does not respond: {latest}")

    def _wait(self, state: RetryCallState) -> float:
        first = self._first_wait_seconds
        usual = (wait_exponential(first, _LONGEST_WAIT_SECONDS) + wait_random(0, first))(state)
        failure = state.outcome.exception() if state.outcome else None
        asked = failure.wait_seconds if isinstance(failure, _TryAgain) else 0.0
        return min(max(usual, asked), _LONGEST_WAIT_SECONDS)

    async def _answers(self, path: str, control: bytes) -> bool:
        try:
            await self._once("POST", path, control)
        except (_TryAgain, EngineError):
            return False
        return True

    async def _once(self, verb: str, path: str, body: bytes | None) -> Json:
        url = self.address.root + path
        try:
            async with self._client.stream(verb, url, content=body, headers=self._headers) as response:
                content = await self._content(response, path)
        except httpx.TransportError as error:  # no connection, a reset, a timeout: the message contains no header
            raise _TryAgain(f"{type(error).__name__} {interfaces.shown(error)}".strip()) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EngineDied(f"cannot send requests to {self.name}: {interfaces.shown(error)}") from None
        self._check_status(response, content, path)
        try:
            reply: Json = orjson.loads(content)
        except ValueError:
            raise interfaces.BadReply(f"{self.name} answered {path} with invalid JSON") from None
        return reply

    async def _content(self, response: httpx.Response, path: str) -> bytes:
        if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            raise interfaces.BadReply(f"{self.name} answered {path} with unrequested compression")
        chunks, size = [], 0
        async for chunk in response.aiter_raw():
            size += len(chunk)
            if size > _MOST_BYTES:
                raise interfaces.BadReply(f"{self.name} answered {path} with more than {_MOST_BYTES >> 20} MiB")
            chunks.append(chunk)
        return b"".join(chunks)

    def _check_status(self, response: httpx.Response, content: bytes, path: str) -> None:
        status = response.status_code
        if status == 200:
            return
        said = f"status {status} {_message(content)}".strip()
        if status in _TRY_AGAIN:
            raise _TryAgain(said, _seconds(response.headers.get("retry-after", "")), status)
        if status in _REFUSED:
            raise RequestRefused(f"{self.name} rejected the request: {said}")
        if status in _NOT_OFFERED:
            raise NotOffered(f"{self.name} does not support {path}: {said}")
        if status in _FORBIDDEN:
            raise EngineDied(f"{self.name} rejected the key: status {status}; set {key_variable(self.role)}")
        raise EngineDied(f"{self.name} answered {path} with {said}")


def _message(content: bytes) -> str:
    try:
        parsed = orjson.loads(content[:1_000_000])
    except ValueError:
        return interfaces.shown(content[:1000].decode("utf-8", "replace"))
    for path in (("error", "message"), ("message",), ("detail",), ("error",)):
        if (found := interfaces.field(parsed, *path)) is not None:
            return interfaces.shown(found)
    return interfaces.shown(parsed)


def _seconds(retry_after: str) -> float:
    return float(retry_after) if retry_after.isdecimal() and len(retry_after) < 6 else 0.0
