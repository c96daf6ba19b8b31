"""Ends of the thought and the chain, and steps truncated inside a character.

A character has up to four bytes and often as many tokens, so the token limit of guidance or a step may fall inside one.
If a context ends inside a character, vLLM ends the next request after one token (vllm-project/vllm#48853), and another
tokenizer would lose the rest of the character. The tokens of an unfinished character are therefore dropped. They still
count as generated, and the character is written again at the start of the next step. If nothing else would remain, the
character is completed instead, so every step makes progress.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from harness.engine import Completion, Finish, Tokenizer
from harness.prompts import STEP_END, THINK_END
from harness.trace import Step, StepRole

WHOLE_REPLY_ROLES: tuple[StepRole, ...] = ("chain", "rethink", "answer")
"""Roles of steps that extend to the end of the author's reply."""


@dataclass(frozen=True, slots=True)
class Ending:
    chain: bool
    """True if the step contains the final answer."""
    thought: bool
    """True if no reasoning follows the step."""


def ending(step: Step, *, in_thought: bool, at_any_answer: bool = False) -> Ending:
    """Return whether a step ends the chain, and whether it ends the thought.

    Inside a thought (`in_thought`) a boxed result is intermediate, unless the step also closes the thought.
    `at_any_answer`: a step that contains an answer ends both, and any other step ends neither.
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
    """Return whether a text contains an answer, as defined by the SpecReason authors' code."""
    return any(marker in text for marker in ("boxed", "Answer:", "ANSWER:"))


def kept_open(text: str, finish: Finish, separator: str = STEP_END) -> str:
    """Return a step's text without `</think>` and with the step separator at its end; unchanged if it has an answer.

    As in the SpecReason authors' code, which joins all steps with the separator, the separator is added even after an
    end of sequence or a truncation.
    """
    if has_any_answer(text):
        return text
    text = text.replace(THINK_END, "")
    return text if finish == "stop" or text.endswith(separator) else text + separator


def is_repeat(step: Step, previous: Step) -> bool:
    """Return whether a step's text equals the previous one's, ignoring surrounding whitespace."""
    return step.text.strip() == previous.text.strip()


def has_boxed(text: str) -> bool:
    """Return whether the last `\\boxed{…}` of the text has balanced braces."""
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
"""Character that replaces unfinished and invalid characters in decoded text."""
_MOST_MISSING = 3
"""Maximum number of tokens that can be missing from an unfinished character, each with at least one byte."""
_MOST_CUT = 8
"""Maximum number of tokens dropped for an unfinished character. A longer sequence is kept: the model itself wrote
replacement characters or invalid bytes."""


async def whole_completion(
    completion: Completion,
    tokenizer: Tokenizer,
    next_token: Callable[[Sequence[int]], Awaitable[Completion]],
    most_tokens: int,
) -> Completion:
    """Return a completion without the unfinished character that the token limit left at its end.

    If nothing else would remain, the character is completed with `next_token`, which generates one token after the
    given ids, unless the completion already has `most_tokens` tokens.
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
    """Return the number of ids of the unfinished character at the end of a truncated completion; 0 if there is none.

    A longer sequence of invalid bytes is kept: the model wrote it, and it cannot become a character.
    """
    if completion.finish != "length" or not completion.text.endswith(_UNFINISHED):
        return 0
    ids = completion.token_ids
    for count in range(1, min(len(ids), _MOST_CUT) + 1):
        if not tokenizer.decode(ids[: len(ids) - count]).endswith(_UNFINISHED):
            return count
    return 0


def joined(begun: Completion, more: Completion, tokenizer: Tokenizer) -> Completion:
    """Join a completion with its continuation; log-probabilities and entropies are kept if both parts have them."""
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
        accepted_tokens=_sum(begun.accepted_tokens, more.accepted_tokens),
        token_logprobs=_chained(begun.token_logprobs, more.token_logprobs),
        entropies=_chained(begun.entropies, more.entropies),
    )


def _chained(begun: tuple[float, ...] | None, rest: tuple[float, ...] | None) -> tuple[float, ...] | None:
    return None if begun is None or rest is None else (*begun, *rest)


def _sum(begun: int | None, rest: int | None) -> int | None:
    return begun if rest is None else rest + (begun or 0)
