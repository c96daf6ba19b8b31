"""SGLang's server: its own `/generate` request, which takes and gives token ids, with named log-probabilities.

A seed decides the text only where the server runs with `--enable-deterministic-inference`; elsewhere it is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.engine import Finish, Sampling
from harness.engines.served import replies
from harness.engines.served.interfaces import Asked, Request, ServerKind
from harness.engines.served.replies import BadReply, Judged, Written

_PATH = "/generate"


class SglangServer:
    """See Interface."""

    kind: ServerKind = "sglang"
    salts_caches = True
    version_paths: Sequence[tuple[str, Sequence[str | int]]] = (
        ("/server_info", ("version",)),
        ("/get_server_info", ("version",)),
    )
    context_paths: Sequence[tuple[str, Sequence[str | int]]] = (
        ("/server_info", ("context_length",)),
        ("/get_server_info", ("context_length",)),
    )

    def context_of(self, card: Mapping[str, Any]) -> Any:
        """See Interface."""
        return card.get("max_model_len")

    def writing(
        self, asked: Asked, prompt: Sequence[int], sampling: Sampling, index: int, *, logprobs: int | None
    ) -> Request:
        """See Interface."""
        settings = {
            **_SAMPLING,
            "max_new_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
            "sampling_seed": sampling.seed + index,
            "stop": list(sampling.stop),
            "no_stop_trim": True,
        }
        body = {**_common(asked, prompt), "sampling_params": settings, "return_logprob": logprobs is not None}
        return Request(_PATH, {**body, "top_logprobs_num": logprobs} if logprobs else body)

    def written(self, reply: Any, asked: Asked, max_tokens: int, stop: Sequence[str]) -> Written:
        """See Interface."""
        ended = replies.field(reply, "meta_info", "finish_reason")
        kind, matched = replies.field(ended, "type"), replies.field(ended, "matched")
        if kind not in ("stop", "length"):
            raise BadReply(f"the server ended the request with {replies.shown(ended)!r}")
        finish: Finish = "length" if kind == "length" else "stop" if isinstance(matched, str) else "eos"
        ids = replies.token_ids(replies.field(reply, "output_ids"), asked.vocabulary, max_tokens)
        listed = replies.field(reply, "meta_info", "output_token_logprobs")
        of_tokens = [replies.field(entry, 0) for entry in listed] if isinstance(listed, list) else None
        top = replies.field(reply, "meta_info", "output_top_logprobs")
        tops = [[replies.field(entry, 0) for entry in one or ()] for one in top] if isinstance(top, list) else None
        logprobs = replies.token_logprobs(of_tokens, len(ids))
        return Written(ids, finish, logprobs, _cached(reply), replies.ranked_logprobs(tops, len(ids)))

    def judging(self, asked: Asked, prompt: Sequence[int], options: Sequence[int]) -> Sequence[Request]:
        """See Interface."""
        body = {
            **_common(asked, prompt),
            "sampling_params": {**_SAMPLING, "max_new_tokens": 1, "temperature": 0.0},
            "return_logprob": True,
            "token_ids_logprob": list(options),
        }
        return [Request(_PATH, body)]

    def judged(self, reply: Any, asked: Asked) -> Judged:
        """See Interface."""
        listed = replies.field(reply, "meta_info", "output_token_ids_logprobs", 0)
        if not isinstance(listed, list):
            raise BadReply("the server sent no log-probabilities of named tokens")
        logprobs = {}
        for entry in listed:
            (token,) = replies.token_ids([replies.field(entry, 1)], asked.vocabulary, 1)
            if (logprob := replies.logprob(replies.field(entry, 0))) is not None:
                logprobs[token] = logprob
        return Judged(logprobs, _cached(reply))

    def reading(self, asked: Asked, prompt: Sequence[int], continuation: Sequence[int]) -> Request | None:
        """See Interface."""
        body = {
            **_common(asked, [*prompt, *continuation]),
            "sampling_params": {**_SAMPLING, "max_new_tokens": 1, "temperature": 0.0},
            "return_logprob": True,
            "logprob_start_len": max(0, len(prompt) - 1),
        }
        return Request(_PATH, body)

    def read(self, reply: Any, ids: Sequence[int], start: int) -> tuple[float, ...]:
        """See Interface."""
        listed, number = replies.field(reply, "meta_info", "input_token_logprobs"), len(ids) - start
        last = listed[-number:] if isinstance(listed, list) else []
        if [replies.field(entry, 1) for entry in last] != list(ids[start:]):
            raise BadReply("the server sent no log-probabilities of a prompt")
        logprobs = replies.token_logprobs([replies.field(entry, 0) for entry in last], number)
        assert logprobs is not None
        return logprobs

    def tokenizing(self, model: str, text: str) -> Request:
        """See Interface."""
        return Request("/tokenize", {"model": model, "prompt": text, "add_special_tokens": False})

    def detokenizing(self, model: str, ids: Sequence[int]) -> Request:
        """See Interface."""
        body = {"model": model, "tokens": list(ids), "skip_special_tokens": False}
        return Request("/detokenize", body)


_SAMPLING: Mapping[str, Any] = {
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
}


def _common(asked: Asked, prompt: Sequence[int]) -> dict[str, Any]:
    return {"input_ids": list(prompt), "stream": False, "extra_key": asked.cache_salt, "logprob_start_len": -1}


def _cached(reply: Any) -> int | None:
    return replies.count(replies.field(reply, "meta_info", "cached_tokens"), 1 << 40)
