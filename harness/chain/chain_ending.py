"""What a step ends: the thought, the whole chain, or neither; and steps that a limit cuts inside a character.

A character has up to four bytes and often as many tokens, and guidance and step limits cut anywhere. A context that
ends inside a character makes vLLM end the next request after one token (vllm-project/vllm#48853), and the rest of the
character would be lost to a model with another tokenizer. So the tokens of the unfinished character are dropped: they
stay counted as generated, and their author writes them again at the start of the next step. Where nothing else would
remain, the character is finished instead, so that every step is a step forward.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from harness.engine import Completion, Finish, Tokenizer
from harness.prompts import STEP_END, THINK_END
from harness.trace import Step, StepRole

WHOLE_REPLY_ROLES: tuple[StepRole, ...] = ("chain", "rethink", "answer")
"""Roles whose author writes until it ends its reply."""


@dataclass(frozen=True, slots=True)
class Ending:
    chain: bool
    """True where the step holds the final answer."""
    thought: bool
    """True where no reasoning follows the step."""


def ending(step: Step, *, in_thought: bool, at_any_answer: bool = False) -> Ending:
    """Return what a step ends.

    Inside a thought (`in_thought`) a boxed result is an intermediate one, unless the step also closes the thought.
    `at_any_answer`: the chain ends with its first answer, and with nothing else.
    """
    if at_any_answer:
        is_answer = has_any_answer(step.text)
        return Ending(chain=is_answer, thought=is_answer)
    is_whole, closes = step.role in WHOLE_REPLY_ROLES, THINK_END in step.text
    reply = step.text.rpartition(THINK_END)[2]
    ends_reply = step.finish == "eos" and bool(reply.strip() or not in_thought)
    is_last = (closes or not in_thought) and (has_boxed(reply) or ends_reply)
    return Ending(
        chain=is_whole or is_last, thought=closes or step.finish == "eos" or step.role == "closing" or is_whole
    )


def has_any_answer(text: str) -> bool:
    """Return True where a step holds what the SpecReason authors' program takes for an answer, wherever it stands."""
    return any(marker in text for marker in ("boxed", "Answer:", "ANSWER:"))


def kept_open(text: str, finish: Finish, separator: str = STEP_END) -> str:
    """Return a step's text so that the thought continues after it, unless it holds an answer.

    `</think>` is removed, and the step separator also follows a step that its author ended or that reached its limit
    (SpecReason authors' program, which joins all steps with it).
    """
    if has_any_answer(text):
        return text
    text = text.replace(THINK_END, "")
    return text if finish == "stop" or text.endswith(separator) else text + separator


def is_repeat(step: Step, previous: Step) -> bool:
    """Return True where a step's text equals the previous one's, up to surrounding whitespace."""
    return step.text.strip() == previous.text.strip()


def has_boxed(text: str) -> bool:
    """Return True where the last `\\boxed{…}` of the text has balanced braces."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return False
    depth = 0
    for char in text[start + 6 :]:
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return True
    return False


_UNFINISHED = "\ufffd"
"""How decoders show the bytes of an unfinished character, and any others that are none."""
_MOST_MISSING = 3
"""Most bytes, and so tokens, that an unfinished character lacks."""
_MOST_CUT = 8
"""Most tokens that are dropped for it: such a text may also end in the same sign, written by its author."""


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
    count = num_cut(completion, tokenizer)
    for _ in range(_MOST_MISSING):
        if count < len(completion.token_ids) or completion.num_tokens >= most_tokens or not count:
            break
        completion = joined(completion, await next_token(completion.token_ids), tokenizer)
        count = num_cut(completion, tokenizer)
    if not count:
        return completion
    ids = completion.token_ids[: len(completion.token_ids) - count]
    return replace(completion, token_ids=ids, text=tokenizer.decode(ids))


def num_cut(completion: Completion, tokenizer: Tokenizer) -> int:
    """Return how many ids of an unfinished character the completion's limit has left.

    Further bytes that can become no character are the author's own.
    """
    if completion.finish != "length" or not completion.text.endswith(_UNFINISHED):
        return 0
    ids = completion.token_ids
    for count in range(1, min(len(ids), _MOST_CUT) + 1):
        if not tokenizer.decode(ids[: len(ids) - count]).endswith(_UNFINISHED):
            return count
    return 0


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
