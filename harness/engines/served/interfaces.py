"""Requests to the three kinds of servers in JSON, and the interpretation of their replies.

Replies come from another program and are not trusted: each value is checked before use.

vLLM: completions over token ids, with log-probabilities of specific tokens. Requests set every sampling parameter, to
override the model's defaults on the server.

SGLang: its own `/generate` request, with token ids and log-probabilities of specific tokens. Seeds only determine the
text if the server runs with `--enable-deterministic-inference`; otherwise they are ignored.

llama.cpp: its own completion request, with token ids but no log-probabilities of specific tokens. Instead, successive
requests ask for more and more of the most probable tokens, until a reply contains every option of a verdict. The
log-probabilities are the model's own, before any sampler. The whole vocabulary of SmolLM2 (49,152 tokens) takes 5 MB of
JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from harness.engine import EngineError, Finish, Json, Sampling

LEAST_LOGPROB = -9000.0
"""Log-probability (nats) up to which a value means minus infinity: vLLM sends -9999, as JSON has no infinity."""
_MOST_CHARACTERS_SHOWN = 200


class BadReply(EngineError):
    """A reply that violates the server's interface; the message is one line."""


class NotFinite(BadReply):
    """A reply in which a log-probability is missing or not finite."""


@dataclass(frozen=True, slots=True)
class Written:
    """One completion as reported by a server."""

    token_ids: tuple[int, ...]
    """The generated tokens, including the end-of-sequence token."""
    finish: Finish
    logprobs: tuple[float, ...] | None = None
    """Log-probabilities of the generated tokens (nats); the server may omit the last ones. None if not requested."""
    cached_tokens: int | None = None
    """Prompt tokens from the prefix cache; None if the server does not report them."""
    ranked: tuple[tuple[float, ...], ...] | None = None
    """Log-probabilities of the most probable tokens at each position (nats); None if not requested."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Log-probabilities of specific next tokens as reported by a server."""

    logprobs: Mapping[int, float]
    """By token id, in nats; only finite values."""
    cached_tokens: int | None = None


def shown(text: Json | BaseException) -> str:
    """Return a server's text in one short line without control characters."""
    words = " ".join("".join(c if c.isprintable() else " " for c in str(text)[: 4 * _MOST_CHARACTERS_SHOWN]).split())
    return words if len(words) <= _MOST_CHARACTERS_SHOWN else f"{words[:_MOST_CHARACTERS_SHOWN]}…"


def field(record: Json, *path: str | int) -> Json:
    """Return the value at a path of keys and positions in a reply; None if there is none."""
    for key in path:
        if isinstance(key, str) and isinstance(record, dict):
            record = record.get(key)
        elif isinstance(key, int) and isinstance(record, list) and len(record) > key:
            record = record[key]
        else:
            return None
    return record


def token_ids(values: Json, vocabulary: int, most: int) -> tuple[int, ...]:
    """Check and return token ids: at most `most`, each below `vocabulary`. Raises BadReply."""
    if not isinstance(values, list) or len(values) > most:
        what = f"{len(values)} token ids instead of at most {most}" if isinstance(values, list) else "no token ids"
        raise BadReply(f"the server sent {what}")
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < vocabulary:
            raise BadReply(f"the server sent the invalid token id {shown(value)!r} for a vocabulary of {vocabulary}")
    return tuple(values)


def count(value: Json) -> int | None:
    """Return a number of tokens; None if the server sent none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def column(listed: Json, *path: str | int) -> list[Json] | None:
    """Return, for each entry of a list, the value at a path; None if `listed` is not a list."""
    return [field(entry, *path) for entry in listed] if isinstance(listed, list) else None


def logprob(value: Json) -> float | None:
    """Return a log-probability in nats; None if it is missing or minus infinity.

    Raises BadReply if it is not a number, or exceeds 0 by more than a rounding error.
    """
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value) or value > 1e-3:
        raise BadReply(f"the server sent the invalid log-probability {shown(value)!r}")
    return None if value <= LEAST_LOGPROB else min(0.0, float(value))


def token_logprobs(values: Sequence[Json] | None, most: int) -> tuple[float, ...] | None:
    """Return the log-probabilities of at most the first `most` tokens; None if the server did not send them.

    Raises BadReply for an invalid log-probability, and NotFinite for a missing or non-finite one.
    """
    if values is None:
        return None
    numbers = [logprob(value) for value in values[:most]]
    finite = tuple(x for x in numbers if x is not None)
    if len(finite) != len(numbers):
        raise NotFinite("the server sent no finite log-probability for a token")
    return finite


def finish_of(reason: Json, matched: Json, told: Json) -> Finish:
    """Return why a completion ended. Raises BadReply for an unknown reason; its message shows `told`.

    `reason`: the server's reason; `matched`: the stop string, if any; `told`: the server's whole answer.
    """
    if reason not in ("stop", "length"):
        raise BadReply(f"the server ended the request with {shown(told)!r}")
    return "length" if reason == "length" else "stop" if isinstance(matched, str) else "eos"


Ids = Sequence[int]
ServerKind = Literal["vllm", "sglang", "llama.cpp"]
Body = dict[str, Json]
Place = tuple[str, str, *tuple[str, ...]]
"""The path of a GET, followed by the keys of a value in the reply."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The common parts of an engine's requests."""

    model: str
    """The model's id at the server."""
    vocabulary: int
    """Exclusive upper limit of the token ids in replies."""
    cache_salt: str
    """Requests with different salts share no prefix-cache entries, if the server supports this."""


class Reply(NamedTuple):
    """The parts of a completion in a server's reply, not checked yet."""

    finish: Finish
    token_ids: Json
    logprobs: Sequence[Json] | None
    ranked: Sequence[Sequence[Json]] | None


class Interface(Protocol):
    """The requests and replies of one kind of server. A request is the body of a POST to `path`."""

    kind: ServerKind
    owner: str
    """Value of `owned_by` in the list of models."""
    own_path: str
    """A path that identifies this kind of server, even if a proxy changes the list of models."""
    path: str
    version_place: Place
    context_place: Place | None = None
    """Place of the maximum length of prompt plus completion, if it is not in the list of models."""
    salts_caches: bool = True
    """Whether `Asked.cache_salt` separates the prefix caches of runs."""
    overrun: int = 0
    """Maximum number of tokens that the server may send beyond `max_tokens`."""

    def writing(self, asked: Asked, prompt: Ids, sampling: Sampling, *, logprobs: int | None) -> Body:
        """Return the request for one completion of a `generate` call.

        `logprobs`: number of most probable tokens to list at each position. 0: only the generated token's
        log-probability; None: no log-probabilities.
        """

    def reply(self, reply: Json) -> Reply:
        """Return the parts of a completion in a reply. Raises BadReply if the server aborted the completion."""

    def judging(self, asked: Asked, prompt: Ids, options: Ids) -> Sequence[Body]:
        """Return requests for a `choose` call, to be tried in order until a reply contains all options."""

    def named(self, reply: Json, asked: Asked) -> Iterable[tuple[Json, Json]] | None:
        """Return pairs of token id and log-probability from the reply to a `choose` request; None if there are none."""

    def cached(self, reply: Json) -> Json:
        """Return the number of cached prompt tokens in a reply."""

    def context_of(self, card: Mapping[str, Json]) -> Json:
        """Return the maximum length of prompt plus completion from an entry of the list of models, if present."""
        return card.get("max_model_len")

    def reading(self, asked: Asked, prompt: Ids, continuation: Ids) -> Body | None:
        """Return the request for a `log_probabilities` call; None if each token needs a separate request."""
        return None

    def given(self, reply: Json, ids: Ids, start: int) -> Sequence[Json]:
        """Return the log-probabilities of a prompt's ids from `start` on; empty if the server did not send them."""
        return ()

    def detokenizing(self, model: str, ids: Ids) -> Body:
        """Return the request to `/detokenize` that decodes ids."""
        return {"model": model, "tokens": list(ids)}

    def written(self, reply: Json, asked: Asked, max_tokens: int) -> Written:
        """Return the completion in a reply. Raises BadReply, including for an aborted completion."""
        finish, values, logprobs, ranked = self.reply(reply)
        ids = token_ids(values, asked.vocabulary, max_tokens + self.overrun)
        if len(ids) > max_tokens:
            ids, finish = ids[:max_tokens], "length"
        lists = [[logprob(value) for value in of_token] for of_token in ranked[: len(ids)]] if ranked else None
        return Written(
            *(ids, finish, token_logprobs(logprobs, len(ids)), count(self.cached(reply))),
            None if lists is None else tuple(tuple(x for x in of_token if x is not None) for of_token in lists),
        )

    def judged(self, reply: Json, asked: Asked) -> Judged:
        """Return the log-probabilities in the reply to a `choose` request. Raises BadReply."""
        found = self.named(reply, asked)
        if found is None:
            raise BadReply("the server sent no log-probabilities for specific tokens")
        logprobs = {}
        for token, value in found:
            (known,) = token_ids([token], asked.vocabulary, 1)
            if (number := logprob(value)) is not None:
                logprobs[known] = number
        return Judged(logprobs, count(self.cached(reply)))

    def read(self, reply: Json, ids: Ids, start: int) -> tuple[float, ...]:
        """Return the log-probabilities of the ids from `start` on, in nats. Raises BadReply."""
        logprobs = token_logprobs(self.given(reply, ids, start), len(ids))
        if logprobs is None or len(logprobs) != len(ids) - start:
            raise BadReply("the server sent no log-probabilities of the prompt's tokens")
        return logprobs


_VLLM_NUM_LISTED = (20, 1000, -1)
"""Numbers of most probable tokens to request, in order, if the server does not support specific tokens (versions before
0.11, or token-level speculation). More than 20 require `--max-logprobs`; -1 means all."""
_ID_PREFIX = "token_id:"
_DEFAULTS: Mapping[str, Json] = {
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


class VllmServer(Interface):
    """vLLM's server. It reports cached tokens with `--enable-prompt-tokens-details`."""

    kind = "vllm"
    owner = "vllm"
    own_path = "/version"
    path = "/v1/completions"
    version_place = ("/version", "version")

    def writing(self, asked: Asked, prompt: Ids, sampling: Sampling, *, logprobs: int | None) -> Body:
        body = self._body(
            *(asked, prompt, sampling.max_tokens, sampling.temperature),
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            repetition_penalty=sampling.repetition_penalty,
            seed=sampling.seed,
            stop=list(sampling.stop),
            include_stop_str_in_output=True,
            skip_special_tokens=False,  # a stop string such as </think> may be special
            spaces_between_special_tokens=False,
        )
        # Identify tokens by id, because two tokens may have the same text.
        return body if logprobs is None else {**body, "logprobs": logprobs, "return_tokens_as_token_ids": True}

    def reply(self, reply: Json) -> Reply:
        choice = field(reply, "choices", 0)
        ranked = field(choice, "logprobs", "top_logprobs")
        rows = ranked if isinstance(ranked, list) else []
        tops = [list(top.values()) if isinstance(top, dict) else [] for top in rows]
        logprobs = column(field(choice, "logprobs", "token_logprobs"))
        reason = field(choice, "finish_reason")
        finish = finish_of(reason, field(choice, "stop_reason"), reason)
        return Reply(finish, field(choice, "token_ids"), logprobs, tops)

    def judging(self, asked: Asked, prompt: Ids, options: Ids) -> Sequence[Body]:
        ids = list(options)
        body = self._body(asked, prompt, 1, 0.0, allowed_token_ids=ids, return_tokens_as_token_ids=True)
        named: Body = {**body, "logprobs": 0, "logprob_token_ids": ids}
        return [named, *({**body, "logprobs": number} for number in _VLLM_NUM_LISTED)]

    def named(self, reply: Json, asked: Asked) -> Iterable[tuple[Json, Json]] | None:
        """Return the pairs without ids beyond the vocabulary: a list of all tokens also contains padding."""
        listed = field(reply, "choices", 0, "logprobs", "top_logprobs", 0)
        by_id = [(_id_in(name), value) for name, value in listed.items()] if isinstance(listed, dict) else []
        return [(token, value) for token, value in by_id if token < asked.vocabulary]

    def cached(self, reply: Json) -> Json:
        return field(reply, "usage", "prompt_tokens_details", "cached_tokens")

    def reading(self, asked: Asked, prompt: Ids, continuation: Ids) -> Body:
        """Return the request for the whole text as a prompt, which vLLM recomputes without its prefix cache."""
        return self._body(asked, [*prompt, *continuation], 1, 0.0, prompt_logprobs=0)

    def given(self, reply: Json, ids: Ids, start: int) -> Sequence[Json]:
        listed = field(reply, "choices", 0, "prompt_logprobs")
        if not isinstance(listed, list) or len(listed) != len(ids):
            return ()
        return [field(listed[place], str(ids[place]), "logprob") for place in range(start, len(ids))]

    def _body(self, asked: Asked, prompt: Ids, max_tokens: int, temperature: float, **more: Json) -> Body:
        return {
            "model": asked.model,
            "prompt": list(prompt),
            "add_special_tokens": False,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_k": 0,
            "return_token_ids": True,
            "cache_salt": asked.cache_salt,
            **_DEFAULTS,
            **more,
        }


def _id_in(name: str) -> int:
    number = name.removeprefix(_ID_PREFIX)
    if number == name or not (number.isdecimal() and number.isascii() and len(number) < 10):
        raise BadReply(f"the server identifies a token by {shown(name)!r} instead of an id")
    return int(number)


_ONE_TOKEN: Body = {"max_new_tokens": 1, "temperature": 0.0}


class SglangServer(Interface):
    """SGLang's server."""

    kind = "sglang"
    owner = "sglang"
    own_path = "/get_model_info"
    path = "/generate"
    version_place = ("/server_info", "version")
    context_place = ("/server_info", "context_length")

    def writing(self, asked: Asked, prompt: Ids, sampling: Sampling, *, logprobs: int | None) -> Body:
        settings: Body = {
            "max_new_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
            "sampling_seed": sampling.seed,
            "stop": list(sampling.stop),
            "no_stop_trim": True,
        }
        more: Body = {"top_logprobs_num": logprobs} if logprobs else {}
        return self._body(asked, prompt, settings, return_logprob=logprobs is not None, **more)

    def reply(self, reply: Json) -> Reply:
        meta = field(reply, "meta_info")
        ended, ranked = field(meta, "finish_reason"), field(meta, "output_top_logprobs")
        tops = [column(one, 0) or [] for one in ranked] if isinstance(ranked, list) else None
        finish = finish_of(field(ended, "type"), field(ended, "matched"), ended)
        return Reply(finish, field(reply, "output_ids"), column(field(meta, "output_token_logprobs"), 0), tops)

    def judging(self, asked: Asked, prompt: Ids, options: Ids) -> Sequence[Body]:
        return [self._body(asked, prompt, _ONE_TOKEN, return_logprob=True, token_ids_logprob=list(options))]

    def named(self, reply: Json, asked: Asked) -> Iterable[tuple[Json, Json]] | None:
        listed = field(reply, "meta_info", "output_token_ids_logprobs", 0)
        return [(field(one, 1), field(one, 0)) for one in listed] if isinstance(listed, list) else None

    def cached(self, reply: Json) -> Json:
        return field(reply, "meta_info", "cached_tokens")

    def reading(self, asked: Asked, prompt: Ids, continuation: Ids) -> Body:
        start = max(0, len(prompt) - 1)
        return self._body(asked, [*prompt, *continuation], _ONE_TOKEN, return_logprob=True, logprob_start_len=start)

    def given(self, reply: Json, ids: Ids, start: int) -> Sequence[Json]:
        listed = field(reply, "meta_info", "input_token_logprobs")
        last = listed[start - len(ids) :] if isinstance(listed, list) else []
        return column(last, 0) or () if column(last, 1) == list(ids[start:]) else ()

    def detokenizing(self, model: str, ids: Ids) -> Body:
        return {**super().detokenizing(model, ids), "skip_special_tokens": False}

    def _body(self, asked: Asked, prompt: Ids, settings: Body, **more: Json) -> Body:
        texts: Body = {"skip_special_tokens": False, "spaces_between_special_tokens": False}
        return {
            "input_ids": list(prompt),
            "stream": False,
            "extra_key": asked.cache_salt,
            "logprob_start_len": -1,
            "sampling_params": {"top_k": -1, **_DEFAULTS, **texts, **settings},
            **more,
        }


_LLAMA_NUM_LISTED = (64, 2048)
_SEEDS = 1 << 32


class LlamaServer(Interface):
    """llama.cpp's server."""

    kind = "llama.cpp"
    owner = "llamacpp"
    own_path = "/props"
    path = "/completion"
    salts_caches = False
    version_place = ("/props", "build_info")
    context_place = ("/props", "default_generation_settings", "n_ctx")
    overrun = 16  # to complete a character

    def context_of(self, card: Mapping[str, Json]) -> Json:
        """Return the context of one slot of the server; a slot serves one request."""
        return field(card, "meta", "n_ctx")

    def writing(self, asked: Asked, prompt: Ids, sampling: Sampling, *, logprobs: int | None) -> Body:
        body = self._body(
            *(prompt, sampling.max_tokens, sampling.temperature),
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            repeat_penalty=sampling.repetition_penalty,
            # All previous tokens, as in other engines. The server allocates a buffer of this size: 0 without a penalty.
            repeat_last_n=len(prompt) + sampling.max_tokens if sampling.repetition_penalty != 1 else 0,
            seed=sampling.seed % _SEEDS,
            stop=list(sampling.stop),
        )
        return body if logprobs is None else {**body, "n_probs": max(1, logprobs)}

    def reply(self, reply: Json) -> Reply:
        listed, why = field(reply, "completion_probabilities"), field(reply, "stop_type")
        ends: dict[Json, tuple[Json, Json]] = {"word": ("stop", ""), "eos": ("stop", None), "limit": ("length", None)}
        finish = finish_of(*ends.get(why if isinstance(why, str) else None, (None, None)), why)
        tops = [column(top, "logprob") or [] for top in column(listed, "top_logprobs") or ()]
        return Reply(finish, field(reply, "tokens"), column(listed, "logprob"), tops)

    def judging(self, asked: Asked, prompt: Ids, options: Ids) -> Sequence[Body]:
        numbers = (*(number for number in _LLAMA_NUM_LISTED if number < asked.vocabulary), asked.vocabulary)
        return [self._body(prompt, 1, 0.0, n_probs=number) for number in numbers]

    def named(self, reply: Json, asked: Asked) -> Iterable[tuple[Json, Json]] | None:
        listed = field(reply, "completion_probabilities", 0, "top_logprobs")
        return [(field(one, "id"), field(one, "logprob")) for one in listed] if isinstance(listed, list) else None

    def cached(self, reply: Json) -> Json:
        return field(reply, "timings", "cache_n")

    def _body(self, prompt: Ids, max_tokens: int, temperature: float, **more: Json) -> Body:
        """Return the common part of requests; samplers are in vLLM's order, with temperature before top-p."""
        return {
            "prompt": list(prompt),
            "stream": False,
            "cache_prompt": True,
            "return_tokens": True,
            "samplers": ["penalties", "temperature", "min_p", "top_k", "top_p"],
            "n_predict": max_tokens,
            "temperature": temperature,
            "top_k": 0,
            "min_p": 0.0,
            "repeat_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "n_indent": 0,
            "t_max_predict_ms": 0,
            **more,
        }


INTERFACES: Mapping[ServerKind, Interface] = {
    interface.kind: interface for interface in (SglangServer(), VllmServer(), LlamaServer())
}
"""Interfaces by kind, in the order in which `own_path` is tried: other servers may also have vLLM's path."""
