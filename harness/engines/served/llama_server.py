"""llama.cpp's server: its own completion request, which takes and gives token ids.

It has no log-probabilities of named tokens. The second way is to list the most probable tokens, more of them until
every option of a verdict is among them: they are those of the model, before any sampler. The whole vocabulary of
SmolLM2 (49,152 tokens) is 5 MB of JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.engine import Finish, Sampling
from harness.engines.served import replies
from harness.engines.served.interfaces import Asked, Request, ServerKind
from harness.engines.served.replies import BadReply, Judged, Written

_PATH = "/completion"
_NUM_LISTED = (64, 2048)
_SEEDS = 1 << 32
_OVERRUN = 16
"""Tokens that it may write beyond the limit to complete a character."""


class LlamaServer:
    """See Interface."""

    kind: ServerKind = "llama.cpp"
    salts_caches = False
    version_paths: Sequence[tuple[str, Sequence[str | int]]] = (("/props", ("build_info",)),)
    context_paths: Sequence[tuple[str, Sequence[str | int]]] = (("/props", ("default_generation_settings", "n_ctx")),)

    def context_of(self, card: Mapping[str, Any]) -> Any:
        """See Interface. A request has the context of one slot."""
        return replies.field(card, "meta", "n_ctx")

    def writing(
        self, asked: Asked, prompt: Sequence[int], sampling: Sampling, index: int, *, logprobs: int | None
    ) -> Request:
        """See Interface."""
        body = {
            **_common(prompt),
            "n_predict": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "repeat_penalty": sampling.repetition_penalty,
            # All tokens so far, as for other engines; a value is a buffer at the server, so none without a penalty.
            "repeat_last_n": len(prompt) + sampling.max_tokens if sampling.repetition_penalty != 1 else 0,
            "seed": (sampling.seed + index) % _SEEDS,
            "stop": list(sampling.stop),
        }
        return Request(_PATH, body if logprobs is None else {**body, "n_probs": max(1, logprobs)})

    def written(self, reply: Any, asked: Asked, max_tokens: int, stop: Sequence[str]) -> Written:
        """See Interface."""
        ends: dict[object, Finish] = {"word": "stop", "eos": "eos", "limit": "length"}
        stop_type = replies.field(reply, "stop_type")
        if not isinstance(stop_type, str) or stop_type not in ends:
            raise BadReply(f"the server ended the request with {replies.shown(stop_type)!r}")
        ids = replies.token_ids(replies.field(reply, "tokens"), asked.vocabulary, max_tokens + _OVERRUN)
        finish = ends[stop_type] if len(ids) <= max_tokens else "length"
        ids = ids[:max_tokens]
        listed = replies.field(reply, "completion_probabilities")
        of_tokens = [replies.field(token, "logprob") for token in listed] if isinstance(listed, list) else None
        tops = [_top(token) for token in listed] if isinstance(listed, list) else None
        logprobs = replies.token_logprobs(of_tokens, len(ids))
        return Written(ids, finish, logprobs, _cached(reply), replies.ranked_logprobs(tops, len(ids)))

    def judging(self, asked: Asked, prompt: Sequence[int], options: Sequence[int]) -> Sequence[Request]:
        """See Interface."""
        body = {**_common(prompt), "n_predict": 1, "temperature": 0.0}
        numbers = (*(number for number in _NUM_LISTED if number < asked.vocabulary), asked.vocabulary)
        return [Request(_PATH, {**body, "n_probs": number}) for number in numbers]

    def judged(self, reply: Any, asked: Asked) -> Judged:
        """See Interface."""
        listed = replies.field(reply, "completion_probabilities", 0, "top_logprobs")
        if not isinstance(listed, list):
            raise BadReply("the server sent no log-probabilities")
        logprobs = {}
        for entry in listed:
            (token,) = replies.token_ids([replies.field(entry, "id")], asked.vocabulary, 1)
            if (logprob := replies.logprob(replies.field(entry, "logprob"))) is not None:
                logprobs[token] = logprob
        return Judged(logprobs, _cached(reply))

    def reading(self, asked: Asked, prompt: Sequence[int], continuation: Sequence[int]) -> Request | None:
        """See Interface: there is none, so that each token is asked for behind those before it."""
        return None

    def read(self, reply: Any, ids: Sequence[int], start: int) -> tuple[float, ...]:
        """See Interface."""
        raise BadReply("llama.cpp's server gives no log-probabilities of a prompt")

    def tokenizing(self, model: str, text: str) -> Request:
        """See Interface."""
        return Request("/tokenize", {"content": text, "add_special": False, "parse_special": True})

    def detokenizing(self, model: str, ids: Sequence[int]) -> Request:
        """See Interface."""
        return Request("/detokenize", {"tokens": list(ids)})


def _common(prompt: Sequence[int]) -> dict[str, Any]:
    """Return what every request says; the samplers are in vLLM's order, the temperature before the nucleus."""
    return {
        "prompt": list(prompt),
        "stream": False,
        "cache_prompt": True,
        "return_tokens": True,
        "samplers": ["penalties", "temperature", "min_p", "top_k", "top_p"],
        "top_k": 0,
        "min_p": 0.0,
        "repeat_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "n_indent": 0,
        "t_max_predict_ms": 0,
    }


def _cached(reply: Any) -> int | None:
    return replies.count(replies.field(reply, "timings", "cache_n"), 1 << 40)


def _top(token: Any) -> list[Any]:
    listed = replies.field(token, "top_logprobs")
    return [replies.field(entry, "logprob") for entry in listed] if isinstance(listed, list) else []
