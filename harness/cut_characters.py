"""Steps that a limit cuts inside a character, which has up to four bytes and often as many tokens.

Guidance and step limits cut anywhere. A context that ends inside a character makes vLLM end the next request after one
token (vllm-project/vllm#48853), and the rest of the character would be lost to a model with another tokenizer. So the
tokens of the unfinished character are dropped: they stay counted as generated, and their author writes them again at
the start of the next step. Where nothing else would remain, the character is finished instead, so that every step is a
step forward.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from harness.engine import Completion, Tokenizer
from harness.trace import Step

_UNFINISHED = "\ufffd"
"""How decoders show the bytes of an unfinished character, and any others that are none."""
_MOST_MISSING = 3
"""Most bytes, and so tokens, that an unfinished character lacks."""


def is_cut(completion: Completion, tokenizer: Tokenizer) -> bool:
    """Return True where the completion's limit has cut it inside a character."""
    return _num_cut(completion, tokenizer) > 0


async def whole_completion(
    completion: Completion,
    tokenizer: Tokenizer,
    next_token: Callable[[Sequence[int]], Awaitable[Completion]],
    most_tokens: int,
) -> Completion:
    """Return a completion without the unfinished character that its limit left at its end.

    `next_token` draws one token behind these ids of the completion. It is called, up to `most_tokens` of the whole
    completion, only where all of it is one unfinished character.
    """
    count = _num_cut(completion, tokenizer)
    for _ in range(_MOST_MISSING):
        if count < len(completion.token_ids) or completion.num_tokens >= most_tokens or not count:
            break
        completion = joined(completion, await next_token(completion.token_ids), tokenizer)
        count = _num_cut(completion, tokenizer)
    if not count:
        return completion
    ids = completion.token_ids[: len(completion.token_ids) - count]
    return replace(completion, token_ids=ids, text=tokenizer.decode(ids))


def whole_step(step: Step, tokenizer: Tokenizer) -> Step:
    """Return the last step of a trace as the chain continues after it.

    Earlier versions recorded steps that end inside a character.
    """
    if step.finish != "length" or not step.text.endswith(_UNFINISHED):
        return step
    ids = step.token_ids[: len(step.token_ids) - tokenizer.num_unfinished(step.token_ids)]
    return step if ids == step.token_ids else replace(step, token_ids=ids, text=tokenizer.decode(ids))


def _num_cut(completion: Completion, tokenizer: Tokenizer) -> int:
    """Return how many ids of an unfinished character the completion's limit has left."""
    if completion.finish != "length" or not completion.text.endswith(_UNFINISHED):
        return 0
    return tokenizer.num_unfinished(completion.token_ids)


def joined(begun: Completion, more: Completion, tokenizer: Tokenizer) -> Completion:
    """Return a completion with what was drawn behind it; what only one of them says of its tokens is left out."""
    ids = (*begun.token_ids, *more.token_ids)
    num_tokens, mean = begun.num_tokens + more.num_tokens, None
    if begun.mean_logprob is not None and more.mean_logprob is not None:
        mean = (begun.mean_logprob * begun.num_tokens + more.mean_logprob * more.num_tokens) / num_tokens
    return replace(
        begun,
        token_ids=ids,
        text=tokenizer.decode(ids),
        finish=more.finish,
        num_tokens=num_tokens,
        mean_logprob=mean,
        proposed_tokens=_sum(begun.proposed_tokens, more.proposed_tokens),
        confirmed_tokens=_sum(begun.confirmed_tokens, more.confirmed_tokens),
        token_logprobs=_chained(begun.token_logprobs, more.token_logprobs),
        entropies=_chained(begun.entropies, more.entropies),
    )


def _chained(begun: tuple[float, ...] | None, rest: tuple[float, ...] | None) -> tuple[float, ...] | None:
    return None if begun is None or rest is None else (*begun, *rest)


def _sum(begun: int | None, rest: int | None) -> int | None:
    return begun if rest is None else rest + (begun or 0)
