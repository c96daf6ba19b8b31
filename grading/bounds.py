"""Limits that reject answers whose parsing or evaluation could take unbounded time or memory.

The limits reject only obvious cases, cheaply and with a reason. All other answers still run in a killable process.
"""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from grading.reading import Match
from grading.reading.notation import depth_at_each

MAX_ANSWER_CHARACTERS = 2_000
MAX_DEPTH = 30
"""Maximum depth of nested brackets and braces; above it, parsing time grows steeply."""
MAX_DIGIT_RUN = 400
MAX_POWER = 10_000
"""Maximum exponent."""
MAX_FACTORIAL = 3_000
"""Maximum number whose factorial may be evaluated."""

ANSWER_SECONDS = 1.2
"""Maximum processor time to compare one answer: several times what the slowest correct answer in the datasets takes."""

_NESTED_SUBSCRIPTS = re.compile(r"(?:_\s?\{[^{}_]{0,20}){4}")
_POWER = re.compile(r"(?:\^|\*\*)\s?(?:\{\s?)?[+-]?(\d[\d,]*)")
_IN_EXPONENT = r"[+-]?\d+|[{(](?:[^{}()^]{0,40}\d[)}]?|[^A-Za-z^})]{0,40})"
_POWER_IN_POWER = re.compile(rf"(?:\^|\*\*)\s?(?:{_IN_EXPONENT})\s?(?:\^|\*\*)\s?[{{(]?\s?\d")
_EXPONENT = r"(?:\^|\*\*)\s?(?=[{(]?\s?[+-]?(\d+))"
_BRACKET_OR_POWER = re.compile(rf"([({{\[])|([)}}\]])(?:\s?{_EXPONENT})?|{_EXPONENT}")
_FACTORIAL = re.compile(r"(?<!\d)(\d{0,500}|[a-zA-Z])\s?!(!?)")
_SMALL_BRACKET = re.compile(r"\((?!.*\d{3})[^()!^]{0,30}[a-zA-Z][^()!^]{0,30}\)$")
_BIG_ITERATION = re.compile(r"\\(?:binom|[dt]binom|sum|prod|Gamma|gamma|zeta|gcd|lcm)(?![a-zA-Z])")
_BIG_NUMBER = re.compile(r"\d{6}|\^\s?\{?\d{2}")


def why_not_parsed(answer: str) -> str | None:
    """Return why an answer must not be parsed, or None if it may be."""
    if len(answer) > MAX_ANSWER_CHARACTERS:
        return f"longer than {MAX_ANSWER_CHARACTERS} characters"
    if max((depth for _, depth in depth_at_each(answer)), default=0) > MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH}"
    if _NESTED_SUBSCRIPTS.search(answer):
        return "subscripts nested four deep"
    if re.search(rf"\d{{{MAX_DIGIT_RUN + 1}}}", answer):
        return f"more than {MAX_DIGIT_RUN} digits in a row"
    if any(int(match.group(1).replace(",", "")) > MAX_POWER for match in _POWER.finditer(answer)):
        return f"an exponent above {MAX_POWER}"
    if _POWER_IN_POWER.search(answer) or _power_of_powers(answer) > MAX_POWER:
        return "a tower of exponents"
    if any(_is_large_factorial(match) for match in _FACTORIAL.finditer(answer)):
        return f"a factorial above {MAX_FACTORIAL}"
    if _BIG_ITERATION.search(answer) and _BIG_NUMBER.search(answer):
        return "a sum, product or special function of large numbers"
    return None


def _power_of_powers(answer: str) -> int:
    """Return the largest product of the exponents of nested brackets: 2·3·4 for `((x^2+1)^3-x)^4+x^5`."""
    products = [1]
    for opening, closing, of_bracket, bare in _BRACKET_OR_POWER.findall(answer):
        if opening:
            products.append(1)
            continue
        inner = products.pop() if closing and len(products) > 1 else 1
        products[-1] = max(products[-1], inner * int(of_bracket or bare or 1))
    return max(products)


def _is_large_factorial(match: re.Match[str]) -> bool:
    operand, double = match.groups()
    if double:
        return True
    if operand == "":
        before = match.string[max(0, match.start() - 60) : match.start()].rstrip()
        # The operand is a bracket or a factorial, whose size is unknown before evaluation.
        return not _SMALL_BRACKET.search(before)
    return operand.isdigit() and int(operand) > MAX_FACTORIAL


def is_balanced(answer: str) -> bool:
    r"""Return whether all braces match, ignoring `\{`, `\}` and other brackets (those of `[0, 1)` never match)."""
    depth = 0
    for brace in re.findall(r"\\.|[{}]", answer, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        if depth < 0:
            return False
    return depth == 0


class _TooLongError(BaseException):
    """The time of `within` is used up. A BaseException, because the symbolic libraries catch every Exception."""


def within(seconds: float, compute: Callable[[], Match]) -> Match | None:
    """Return the result of `compute`, or None if computing it takes more than this processor time.

    Outside the main thread, there is no limit.
    """

    def stop(signum: int, frame: FrameType | None) -> None:
        raise _TooLongError

    if threading.current_thread() is not threading.main_thread():
        return compute()
    previous = signal.signal(signal.SIGVTALRM, stop)

    def end_limit() -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)

    try:
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 0.1)  # repeated: the libraries may swallow a signal
            return compute()
        finally:
            end_limit()
    except _TooLongError:
        end_limit()  # again, because a signal may have interrupted the `finally` block
        return None


@contextlib.contextmanager
def unhurried() -> Iterator[None]:
    """Suspend the time limit of `within` inside the block, because an import must not be interrupted."""
    left, interval = signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, left, interval)
