"""Requests to the three kinds of servers as plain JSON, and what their replies mean.

A server is another program, and its replies are not trusted: each value is checked before it is used.

vLLM: completions over token ids, with the log-probabilities of named tokens. Requests say every sampling setting: the
server would fill in the model's own defaults.

SGLang: its own `/generate` request, which takes and gives token ids, with named log-probabilities. A seed decides the
text only where the server runs with `--enable-deterministic-inference`; elsewhere it is ignored.

llama.cpp: its own completion request, which takes and gives token ids. It has no log-probabilities of named tokens. The
second way is to list the most probable tokens, more of them until every option of a verdict is among them: they are
those of the model, before any sampler. The whole vocabulary of SmolLM2 (49,152 tokens) is 5 MB of JSON.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from harness.engine import EngineError, Finish, Json, Sampling

LEAST_LOGPROB = -9000.0
"""vLLM writes -9999 for a log-probability of minus infinity, which JSON cannot hold."""
_MOST_CHARACTERS_SHOWN = 200


class BadReply(EngineError):
    """A reply that is not what the server's interface promises; the message is one line."""


class NotFinite(BadReply):
    """A reply with a log-probability that is not finite."""


@dataclass(frozen=True, slots=True)
class Written:
    """One completion, as a server reports it."""

    token_ids: tuple[int, ...]
    """The generated tokens, the end-of-sequence token included."""
    finish: Finish
    logprobs: tuple[float, ...] | None = None
    """Log-probabilities of the generated tokens (nats), of the first ones where the server leaves out the last; None
    where they were not asked for."""
    cached_tokens: int | None = None
    """Prompt tokens from the prefix cache; None where the server does not report them."""
    ranked: tuple[tuple[float, ...], ...] | None = None
    """Those of the most probable tokens at each of the same positions; None where they were not asked for."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The log-probabilities of named tokens as the next one, as a server reports them."""

    logprobs: Mapping[int, float]
    """By token id, in nats; only finite ones."""
    cached_tokens: int | None = None


def shown(text: Json | BaseException) -> str:
    """Return text of a server in one short line without control characters."""
    words = " ".join("".join(c if c.isprintable() else " " for c in str(text)[: 4 * _MOST_CHARACTERS_SHOWN]).split())
    return words if len(words) <= _MOST_CHARACTERS_SHOWN else f"{words[:_MOST_CHARACTERS_SHOWN]}…"


def field(record: Json, *path: str | int) -> Json:
    """Return what lies at a path of keys and positions in a reply; None where nothing does."""
    for key in path:
        if isinstance(key, str) and isinstance(record, dict):
            record = record.get(key)
        elif isinstance(key, int) and isinstance(record, list) and len(record) > key:
            record = record[key]
        else:
            return None
    return record


def token_ids(values: Json, vocabulary: int, most: int) -> tuple[int, ...]:
    """Return ids, at most so many and each below `vocabulary`. Raises BadReply."""
    if not isinstance(values, list) or len(values) > most:
        what = f"{len(values)} token ids instead of at most {most}" if isinstance(values, list) else "no token ids"
        raise BadReply(f"the server sent {what}")
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < vocabulary:
            raise BadReply(f"the server sent {shown(value)!r} as a token id, of {vocabulary} tokens")
    return tuple(values)


def count(value: Json, most: int) -> int | None:
    """Return a number of tokens between 0 and `most`; None where the server sent none."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        return None
    return min(value, most)


def logprob(value: Json) -> float | None:
    """Return a log-probability in nats; None where it is missing or stands for minus infinity.

    Raises BadReply where it is no number, or above 0 by more than a rounding error.
    """
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value) or value > 1e-3:
        raise BadReply(f"the server sent {shown(value)!r} as a log-probability")
    return None if value <= LEAST_LOGPROB else min(0.0, float(value))


def token_logprobs(values: Json, most: int) -> tuple[float, ...] | None:
    """Return the log-probabilities of the first tokens, at most so many; None where the server did not send them.

    Raises BadReply where one of them is no log-probability, and NotFinite where it is not finite.
    """
    if not isinstance(values, list):
        return None
    numbers = [logprob(value) for value in values[:most]]
    finite = tuple(x for x in numbers if x is not None)
    if len(finite) != len(numbers):
        raise NotFinite("the server sent no finite log-probability for a token")
    return finite


def ranked_logprobs(values: Json, most: int) -> tuple[tuple[float, ...], ...] | None:
    """Return the log-probabilities of the most probable tokens at the first positions; None where none were sent.

    Raises BadReply where one of them is no log-probability.
    """
    if not isinstance(values, list):
        return None
    lists = (value if isinstance(value, list) else [] for value in values[:most])
    return tuple(tuple(x for x in map(logprob, of_token) if x is not None) for of_token in lists)


ServerKind = Literal["vllm", "sglang", "llama.cpp"]


@dataclass(frozen=True, slots=True)
class Request:
    """One POST."""

    path: str
    body: Mapping[str, Json]


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

    def context_of(self, card: Mapping[str, Json]) -> Json:
        """Return the longest prompt plus completion from an entry of the list of models; None where it is not there."""

    def writing(
        self, asked: Asked, prompt: Sequence[int], sampling: Sampling, index: int, *, logprobs: int | None
    ) -> Request:
        """Return the request for completion `index` of a `generate`.

        `logprobs`: the number of most probable tokens to list beside each token, 0 for its own log-probability alone;
        None for none.
        """

    def written(self, reply: Json, asked: Asked, max_tokens: int, stop: Sequence[str]) -> Written:
        """Return the completion in a reply. Raises BadReply, also where the server broke it off."""

    def judging(self, asked: Asked, prompt: Sequence[int], options: Sequence[int]) -> Sequence[Request]:
        """Return the requests of a `choose` in the order of trying: the next where a reply lacks an option."""

    def judged(self, reply: Json, asked: Asked) -> Judged:
        """Return the log-probabilities in a reply. Raises BadReply."""

    def reading(self, asked: Asked, prompt: Sequence[int], continuation: Sequence[int]) -> Request | None:
        """Return the request of a `log_probabilities`; None where the server has no such request."""

    def read(self, reply: Json, ids: Sequence[int], start: int) -> tuple[float, ...]:
        """Return the log-probabilities of the ids from `start` on. Raises BadReply."""

    def tokenizing(self, model: str, text: str) -> Request:
        """Return the request for the ids of a text, without any that are added around it."""

    def detokenizing(self, model: str, ids: Sequence[int]) -> Request:
        """Return the request for the text of ids."""


_VLLM_PATH = "/v1/completions"
_VLLM_NUM_LISTED = (20, 1000, -1)
"""Numbers of most probable tokens to request, one after the other, where the server does not take named tokens: one
before 0.11, or one with token-level speculation. More than 20 need `--max-logprobs`; -1 are all."""
_ID_PREFIX = "token_id:"


class VllmServer:
    """vLLM's server."""

    kind: ServerKind = "vllm"
    salts_caches = True
    version_paths: Sequence[tuple[str, Sequence[str | int]]] = (("/version", ("version",)),)
    context_paths: Sequence[tuple[str, Sequence[str | int]]] = ()

    def context_of(self, card: Mapping[str, Json]) -> Json:
        return card.get("max_model_len")

    def writing(
        self, asked: Asked, prompt: Sequence[int], sampling: Sampling, index: int, *, logprobs: int | None
    ) -> Request:
        body = {
            **_vllm_common(asked, prompt),
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
        return Request(_VLLM_PATH, body if logprobs is None else {**body, "logprobs": logprobs})

    def written(self, reply: Json, asked: Asked, max_tokens: int, stop: Sequence[str]) -> Written:
        choice = field(reply, "choices", 0)
        reason, stopped = field(choice, "finish_reason"), field(choice, "stop_reason")
        if reason not in ("stop", "length"):
            raise BadReply(f"the server ended the request with {shown(reason)!r}")
        finish: Finish = "length" if reason == "length" else "stop" if isinstance(stopped, str) else "eos"
        ids = token_ids(field(choice, "token_ids"), asked.vocabulary, max_tokens)
        logprobs = token_logprobs(field(choice, "logprobs", "token_logprobs"), len(ids))
        listed = field(choice, "logprobs", "top_logprobs")
        of_tokens = (
            [list(top.values()) for top in listed if isinstance(top, dict)] if isinstance(listed, list) else None
        )
        return Written(ids, finish, logprobs, _vllm_cached(reply), ranked_logprobs(of_tokens, len(ids)))

    def judging(self, asked: Asked, prompt: Sequence[int], options: Sequence[int]) -> Sequence[Request]:
        body = {
            **_vllm_common(asked, prompt),
            "max_tokens": 1,
            "temperature": 0.0,
            "allowed_token_ids": list(options),
            "return_tokens_as_token_ids": True,
        }
        named = Request(_VLLM_PATH, {**body, "logprobs": 0, "logprob_token_ids": list(options)})
        return [named, *(Request(_VLLM_PATH, {**body, "logprobs": number}) for number in _VLLM_NUM_LISTED)]

    def judged(self, reply: Json, asked: Asked) -> Judged:
        listed = field(reply, "choices", 0, "logprobs", "top_logprobs", 0)
        logprobs = {}
        for name, value in listed.items() if isinstance(listed, dict) else ():
            number = name.removeprefix(_ID_PREFIX)
            if number == name or not (number.isdecimal() and number.isascii() and len(number) < 10):
                raise BadReply(f"the server names a token {shown(name)!r} instead of by its id")
            if (given := logprob(value)) is not None:
                logprobs[int(number)] = given
        return Judged(logprobs, _vllm_cached(reply))

    def reading(self, asked: Asked, prompt: Sequence[int], continuation: Sequence[int]) -> Request | None:
        """vLLM computes such a prompt anew, without its prefix cache."""
        body = {
            **_vllm_common(asked, [*prompt, *continuation]),
            "max_tokens": 1,
            "temperature": 0.0,
            "prompt_logprobs": 0,
        }
        return Request(_VLLM_PATH, body)

    def read(self, reply: Json, ids: Sequence[int], start: int) -> tuple[float, ...]:
        listed = field(reply, "choices", 0, "prompt_logprobs")
        if not isinstance(listed, list) or len(listed) != len(ids):
            raise BadReply("the server sent no log-probabilities of a prompt")
        values = [field(listed, place, str(ids[place]), "logprob") for place in range(start, len(ids))]
        return _all(values)

    def tokenizing(self, model: str, text: str) -> Request:
        return Request("/tokenize", {"model": model, "prompt": text, "add_special_tokens": False})

    def detokenizing(self, model: str, ids: Sequence[int]) -> Request:
        return Request("/detokenize", {"model": model, "tokens": list(ids)})


def _vllm_common(asked: Asked, prompt: Sequence[int]) -> dict[str, Json]:
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


def _vllm_cached(reply: Json) -> int | None:
    """Return the cached prompt tokens, which the server reports with `--enable-prompt-tokens-details`."""
    prompt_tokens = count(field(reply, "usage", "prompt_tokens"), 1 << 40)
    cached = field(reply, "usage", "prompt_tokens_details", "cached_tokens")
    return count(cached, prompt_tokens or 0)


def _all(values: Sequence[Json]) -> tuple[float, ...]:
    logprobs = token_logprobs(values, len(values))
    assert logprobs is not None
    return logprobs


_SGLANG_PATH = "/generate"


class SglangServer:
    """SGLang's server."""

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

    def context_of(self, card: Mapping[str, Json]) -> Json:
        return card.get("max_model_len")

    def writing(
        self, asked: Asked, prompt: Sequence[int], sampling: Sampling, index: int, *, logprobs: int | None
    ) -> Request:
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
        body = {**_sglang_common(asked, prompt), "sampling_params": settings, "return_logprob": logprobs is not None}
        return Request(_SGLANG_PATH, {**body, "top_logprobs_num": logprobs} if logprobs else body)

    def written(self, reply: Json, asked: Asked, max_tokens: int, stop: Sequence[str]) -> Written:
        ended = field(reply, "meta_info", "finish_reason")
        kind, matched = field(ended, "type"), field(ended, "matched")
        if kind not in ("stop", "length"):
            raise BadReply(f"the server ended the request with {shown(ended)!r}")
        finish: Finish = "length" if kind == "length" else "stop" if isinstance(matched, str) else "eos"
        ids = token_ids(field(reply, "output_ids"), asked.vocabulary, max_tokens)
        listed = field(reply, "meta_info", "output_token_logprobs")
        of_tokens = [field(entry, 0) for entry in listed] if isinstance(listed, list) else None
        top = field(reply, "meta_info", "output_top_logprobs")
        tops = [[field(entry, 0) for entry in one or ()] for one in top] if isinstance(top, list) else None
        logprobs = token_logprobs(of_tokens, len(ids))
        return Written(ids, finish, logprobs, _sglang_cached(reply), ranked_logprobs(tops, len(ids)))

    def judging(self, asked: Asked, prompt: Sequence[int], options: Sequence[int]) -> Sequence[Request]:
        body = {
            **_sglang_common(asked, prompt),
            "sampling_params": {**_SAMPLING, "max_new_tokens": 1, "temperature": 0.0},
            "return_logprob": True,
            "token_ids_logprob": list(options),
        }
        return [Request(_SGLANG_PATH, body)]

    def judged(self, reply: Json, asked: Asked) -> Judged:
        listed = field(reply, "meta_info", "output_token_ids_logprobs", 0)
        if not isinstance(listed, list):
            raise BadReply("the server sent no log-probabilities of named tokens")
        logprobs = {}
        for entry in listed:
            (token,) = token_ids([field(entry, 1)], asked.vocabulary, 1)
            if (given := logprob(field(entry, 0))) is not None:
                logprobs[token] = given
        return Judged(logprobs, _sglang_cached(reply))

    def reading(self, asked: Asked, prompt: Sequence[int], continuation: Sequence[int]) -> Request | None:
        body = {
            **_sglang_common(asked, [*prompt, *continuation]),
            "sampling_params": {**_SAMPLING, "max_new_tokens": 1, "temperature": 0.0},
            "return_logprob": True,
            "logprob_start_len": max(0, len(prompt) - 1),
        }
        return Request(_SGLANG_PATH, body)

    def read(self, reply: Json, ids: Sequence[int], start: int) -> tuple[float, ...]:
        listed, number = field(reply, "meta_info", "input_token_logprobs"), len(ids) - start
        last = listed[-number:] if isinstance(listed, list) else []
        if [field(entry, 1) for entry in last] != list(ids[start:]):
            raise BadReply("the server sent no log-probabilities of a prompt")
        logprobs = token_logprobs([field(entry, 0) for entry in last], number)
        assert logprobs is not None
        return logprobs

    def tokenizing(self, model: str, text: str) -> Request:
        return Request("/tokenize", {"model": model, "prompt": text, "add_special_tokens": False})

    def detokenizing(self, model: str, ids: Sequence[int]) -> Request:
        return Request("/detokenize", {"model": model, "tokens": list(ids), "skip_special_tokens": False})


_SAMPLING: Mapping[str, Json] = {
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
}


def _sglang_common(asked: Asked, prompt: Sequence[int]) -> dict[str, Json]:
    return {"input_ids": list(prompt), "stream": False, "extra_key": asked.cache_salt, "logprob_start_len": -1}


def _sglang_cached(reply: Json) -> int | None:
    return count(field(reply, "meta_info", "cached_tokens"), 1 << 40)


_LLAMA_PATH = "/completion"
_LLAMA_NUM_LISTED = (64, 2048)
_SEEDS = 1 << 32
_OVERRUN = 16
"""Tokens that it may write beyond the limit to complete a character."""


class LlamaServer:
    """llama.cpp's server."""

    kind: ServerKind = "llama.cpp"
    salts_caches = False
    version_paths: Sequence[tuple[str, Sequence[str | int]]] = (("/props", ("build_info",)),)
    context_paths: Sequence[tuple[str, Sequence[str | int]]] = (("/props", ("default_generation_settings", "n_ctx")),)

    def context_of(self, card: Mapping[str, Json]) -> Json:
        """A request has the context of one slot."""
        return field(card, "meta", "n_ctx")

    def writing(
        self, asked: Asked, prompt: Sequence[int], sampling: Sampling, index: int, *, logprobs: int | None
    ) -> Request:
        body = {
            **_llama_common(prompt),
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
        return Request(_LLAMA_PATH, body if logprobs is None else {**body, "n_probs": max(1, logprobs)})

    def written(self, reply: Json, asked: Asked, max_tokens: int, stop: Sequence[str]) -> Written:
        ends: dict[object, Finish] = {"word": "stop", "eos": "eos", "limit": "length"}
        stop_type = field(reply, "stop_type")
        if not isinstance(stop_type, str) or stop_type not in ends:
            raise BadReply(f"the server ended the request with {shown(stop_type)!r}")
        ids = token_ids(field(reply, "tokens"), asked.vocabulary, max_tokens + _OVERRUN)
        finish = ends[stop_type] if len(ids) <= max_tokens else "length"
        ids = ids[:max_tokens]
        listed = field(reply, "completion_probabilities")
        of_tokens = [field(token, "logprob") for token in listed] if isinstance(listed, list) else None
        tops = [_top(token) for token in listed] if isinstance(listed, list) else None
        logprobs = token_logprobs(of_tokens, len(ids))
        return Written(ids, finish, logprobs, _llama_cached(reply), ranked_logprobs(tops, len(ids)))

    def judging(self, asked: Asked, prompt: Sequence[int], options: Sequence[int]) -> Sequence[Request]:
        body = {**_llama_common(prompt), "n_predict": 1, "temperature": 0.0}
        numbers = (*(number for number in _LLAMA_NUM_LISTED if number < asked.vocabulary), asked.vocabulary)
        return [Request(_LLAMA_PATH, {**body, "n_probs": number}) for number in numbers]

    def judged(self, reply: Json, asked: Asked) -> Judged:
        listed = field(reply, "completion_probabilities", 0, "top_logprobs")
        if not isinstance(listed, list):
            raise BadReply("the server sent no log-probabilities")
        logprobs = {}
        for entry in listed:
            (token,) = token_ids([field(entry, "id")], asked.vocabulary, 1)
            if (given := logprob(field(entry, "logprob"))) is not None:
                logprobs[token] = given
        return Judged(logprobs, _llama_cached(reply))

    def reading(self, asked: Asked, prompt: Sequence[int], continuation: Sequence[int]) -> Request | None:
        """See Interface: there is none, so that each token is asked for behind those before it."""
        return None

    def read(self, reply: Json, ids: Sequence[int], start: int) -> tuple[float, ...]:
        raise BadReply("llama.cpp's server gives no log-probabilities of a prompt")

    def tokenizing(self, model: str, text: str) -> Request:
        return Request("/tokenize", {"content": text, "add_special": False, "parse_special": True})

    def detokenizing(self, model: str, ids: Sequence[int]) -> Request:
        return Request("/detokenize", {"tokens": list(ids)})


def _llama_common(prompt: Sequence[int]) -> dict[str, Json]:
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


def _llama_cached(reply: Json) -> int | None:
    return count(field(reply, "timings", "cache_n"), 1 << 40)


def _top(token: Json) -> Sequence[Json]:
    listed = field(token, "top_logprobs")
    return [field(entry, "logprob") for entry in listed] if isinstance(listed, list) else []
