"""What the engine needs from a server's interface: requests as plain JSON, and the meaning of the replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from harness.engine import Sampling
from harness.engines.served.replies import Judged, Written

ServerKind = Literal["vllm", "sglang", "llama.cpp"]


@dataclass(frozen=True, slots=True)
class Request:
    """One POST."""

    path: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """What all requests of an engine have in common."""

    model: str
    """The model's id at the server."""
    vocabulary: int
    """Token ids of replies are below this number."""
    cache_salt: str
    """Requests with different salts share no prefix cache, where the server supports it."""


class Interface(Protocol):
    """The requests and replies of one kind of server."""

    kind: ServerKind
    salts_caches: bool
    """Whether `Asked.cache_salt` separates the prefix caches of runs."""
    version_paths: Sequence[tuple[str, Sequence[str | int]]]
    """Where the server tells its version: paths of a GET, and the place in the reply."""
    context_paths: Sequence[tuple[str, Sequence[str | int]]]
    """Where it tells the longest prompt plus completion, beside the list of models."""

    def context_of(self, card: Mapping[str, Any]) -> Any:
        """Return the longest prompt plus completion from an entry of the list of models; None where it is not there."""

    def writing(
        self, asked: Asked, prompt: Sequence[int], sampling: Sampling, index: int, *, logprobs: int | None
    ) -> Request:
        """Return the request for completion `index` of a `generate`.

        `logprobs`: the number of most probable tokens to list beside each token, 0 for its own log-probability alone;
        None for none.
        """

    def written(self, reply: Any, asked: Asked, max_tokens: int, stop: Sequence[str]) -> Written:
        """Return the completion in a reply. Raises BadReply, also where the server broke it off."""

    def judging(self, asked: Asked, prompt: Sequence[int], options: Sequence[int]) -> Sequence[Request]:
        """Return the requests of a `choose` in the order of trying: the next where a reply lacks an option."""

    def judged(self, reply: Any, asked: Asked) -> Judged:
        """Return the log-probabilities in a reply. Raises BadReply."""

    def reading(self, asked: Asked, prompt: Sequence[int], continuation: Sequence[int]) -> Request | None:
        """Return the request of a `log_probabilities`; None where the server has no such request."""

    def read(self, reply: Any, ids: Sequence[int], start: int) -> tuple[float, ...]:
        """Return the log-probabilities of the ids from `start` on. Raises BadReply."""

    def tokenizing(self, model: str, text: str) -> Request:
        """Return the request for the ids of a text, without any that are added around it."""

    def detokenizing(self, model: str, ids: Sequence[int]) -> Request:
        """Return the request for the text of ids."""
