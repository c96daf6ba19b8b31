"""vLLM's server: completions over token ids, with the log-probabilities of named tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.engine import Finish, Sampling
from harness.engines.served import replies
from harness.engines.served.interfaces import Asked, Request, ServerKind
from harness.engines.served.replies import BadReply, Judged, Written

_PATH = "/v1/completions"
_NUM_LISTED = (20, 1000, -1)
"""Numbers of most probable tokens to request, one after the other, where the server does not take named tokens: one
before 0.11, or one with token-level speculation. More than 20 need `--max-logprobs`; -1 are all."""
_ID_PREFIX = "token_id:"


class VllmServer:
    """See Interface. Requests say every sampling setting: the server would fill in the model's own defaults."""

    kind: ServerKind = "vllm"
    salts_caches = True
    version_paths: Sequence[tuple[str, Sequence[str | int]]] = (("/version", ("version",)),)
    context_paths: Sequence[tuple[str, Sequence[str | int]]] = ()

    def context_of(self, card: Mapping[str, Any]) -> Any:
        """See Interface."""
        return card.get("max_model_len")

    def writing(
        self, asked: Asked, prompt: Sequence[int], sampling: Sampling, index: int, *, logprobs: int | None
    ) -> Request:
        """See Interface."""
        body = {
            **_common(asked, prompt),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
            "seed": sampling.seed + index,
            "stop": list(sampling.stop),
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,  # a stop string such as </think> may be one
            "spaces_between_special_tokens": False,
        }
        return Request(_PATH, body if logprobs is None else {**body, "logprobs": logprobs})

    def written(self, reply: Any, asked: Asked, max_tokens: int, stop: Sequence[str]) -> Written:
        """See Interface."""
        choice = replies.field(reply, "choices", 0)
        reason, stopped = replies.field(choice, "finish_reason"), replies.field(choice, "stop_reason")
        if reason not in ("stop", "length"):
            raise BadReply(f"the server ended the request with {replies.shown(reason)!r}")
        finish: Finish = "length" if reason == "length" else "stop" if isinstance(stopped, str) else "eos"
        ids = replies.token_ids(replies.field(choice, "token_ids"), asked.vocabulary, max_tokens)
        logprobs = replies.token_logprobs(replies.field(choice, "logprobs", "token_logprobs"), len(ids))
        listed = replies.field(choice, "logprobs", "top_logprobs")
        of_tokens = (
            [list(top.values()) for top in listed if isinstance(top, dict)] if isinstance(listed, list) else None
        )
        return Written(ids, finish, logprobs, _cached(reply), replies.ranked_logprobs(of_tokens, len(ids)))

    def judging(self, asked: Asked, prompt: Sequence[int], options: Sequence[int]) -> Sequence[Request]:
        """See Interface."""
        body = {
            **_common(asked, prompt),
            "max_tokens": 1,
            "temperature": 0.0,
            "allowed_token_ids": list(options),
            "return_tokens_as_token_ids": True,
        }
        named = Request(_PATH, {**body, "logprobs": 0, "logprob_token_ids": list(options)})
        return [named, *(Request(_PATH, {**body, "logprobs": number}) for number in _NUM_LISTED)]

    def judged(self, reply: Any, asked: Asked) -> Judged:
        """See Interface."""
        listed = replies.field(reply, "choices", 0, "logprobs", "top_logprobs", 0)
        logprobs = {}
        for name, value in listed.items() if isinstance(listed, dict) else ():
            number = name.removeprefix(_ID_PREFIX)
            if number == name or not (number.isdecimal() and number.isascii() and len(number) < 10):
                raise BadReply(f"the server names a token {replies.shown(name)!r} instead of by its id")
            if (logprob := replies.logprob(value)) is not None:
                logprobs[int(number)] = logprob
        return Judged(logprobs, _cached(reply))

    def reading(self, asked: Asked, prompt: Sequence[int], continuation: Sequence[int]) -> Request | None:
        """See Interface. vLLM computes such a prompt anew, without its prefix cache."""
        body = {**_common(asked, [*prompt, *continuation]), "max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
        return Request(_PATH, body)

    def read(self, reply: Any, ids: Sequence[int], start: int) -> tuple[float, ...]:
        """See Interface."""
        listed = replies.field(reply, "choices", 0, "prompt_logprobs")
        if not isinstance(listed, list) or len(listed) != len(ids):
            raise BadReply("the server sent no log-probabilities of a prompt")
        values = [replies.field(listed, place, str(ids[place]), "logprob") for place in range(start, len(ids))]
        return _all(values)

    def tokenizing(self, model: str, text: str) -> Request:
        """See Interface."""
        return Request("/tokenize", {"model": model, "prompt": text, "add_special_tokens": False})

    def detokenizing(self, model: str, ids: Sequence[int]) -> Request:
        """See Interface."""
        return Request("/detokenize", {"model": model, "tokens": list(ids)})


def _common(asked: Asked, prompt: Sequence[int]) -> dict[str, Any]:
    return {
        "model": asked.model,
        "prompt": list(prompt),
        "add_special_tokens": False,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "return_token_ids": True,
        "cache_salt": asked.cache_salt,
    }


def _cached(reply: Any) -> int | None:
    """Return the cached prompt tokens, which the server reports with `--enable-prompt-tokens-details`."""
    prompt_tokens = replies.count(replies.field(reply, "usage", "prompt_tokens"), 1 << 40)
    cached = replies.field(reply, "usage", "prompt_tokens_details", "cached_tokens")
    return replies.count(cached, prompt_tokens or 0)


def _all(values: list[Any]) -> tuple[float, ...]:
    logprobs = replies.token_logprobs(values, len(values))
    assert logprobs is not None
    return logprobs
