"""Parser of the second grader: a fixed list of constructs, built as sympy expressions; all others are Unreadable.

Nothing is evaluated by name and nothing is passed to a parser of sympy. Numbers, exponents and factorials are bounded
before sympy gets them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

MAX_CHARACTERS = 1_000
MAX_DEPTH = 25
MAX_DIGITS = 60
"""Digits of the longest number."""
MAX_POWER_DIGITS = 2_000
"""Digits of the largest power of a number."""
MAX_FACTORIAL = 200

_TOKEN = re.compile(
    r"(?P<number>\d+(?:\.\d+)?|\.\d+)|(?P<command>\\[a-zA-Z]+)"
    r"|(?P<word>(?:arcsin|arccos|arctan|sqrt|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|log|ln|exp|pi|infty)(?![a-zA-Z]))"
    r"|(?P<letter>[a-zA-Z])|(?P<sign>[-+*/^_(){}\[\]|!%])"
)
_FUNCTIONS = {
    "sin": "sin", "cos": "cos", "tan": "tan", "cot": "cot", "sec": "sec", "csc": "csc", "sinh": "sinh", "cosh": "cosh",
    "tanh": "tanh", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "ln": "log", "log": "log", "exp": "exp",
}  # fmt: skip
_GREEK = frozenset(
    (
        "alpha", "beta", "gamma", "delta", "epsilon", "theta", "lambda", "mu", "nu", "rho", "sigma", "tau", "phi",
        "varphi", "omega", "xi", "eta", "psi", "kappa", "zeta",
    )
)  # fmt: skip
_CLOSING = {"(": ")", "[": "]", "{": "}", "|": "|"}
_TIMES = {"*", r"\cdot", r"\times"}
_DIVIDED_BY = {"/", r"\div"}


class Unreadable(ValueError):
    """The text has a construct that is not on the list, or one that is too large."""


@lru_cache(maxsize=1)
def symbolic() -> Any:
    """Return sympy, which is imported by the first call."""
    import sympy

    return sympy


def read_expression(text: str) -> Any:
    """Return the sympy expression of a text, or raise Unreadable."""
    if len(text) > MAX_CHARACTERS:
        raise Unreadable("too long")
    reader = _Reader(_tokens(text))
    value = reader.sum()
    if reader.peek() is not None:
        raise Unreadable(f"{reader.peek()} where the end should be")
    return value


def _tokens(text: str) -> list[str]:
    tokens, position, depth = [], 0, 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        match = _TOKEN.match(text, position)
        if match is None:
            raise Unreadable(f"the character {text[position]!r}")
        tokens.append(match.group())
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(match.group(), 0)
        if depth > MAX_DEPTH:
            raise Unreadable("nested too deep")
        position = match.end()
    return tokens


class _Reader:
    """A recursive-descent parser over tokens."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens, self._at = tokens, 0
        self._sympy = symbolic()

    def peek(self) -> str | None:
        """Return the next token, or None at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> str:
        token = self.peek()
        if token is None:
            raise Unreadable("the end where a value should be")
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        next_token = self._next()
        if next_token != token:
            raise Unreadable(f"{next_token} where {token} should be")

    def sum(self) -> Any:
        """Read terms with signs between them."""
        value = self._sympy.Integer(0)
        sign = 1
        while True:
            while self.peek() in ("+", "-"):
                sign *= -1 if self._next() == "-" else 1
            value += sign * self._product()
            if self.peek() not in ("+", "-"):
                return value
            sign = 1

    def _product(self) -> Any:
        value = self._power()
        while (token := self.peek()) is not None:
            if token in _TIMES:
                self._next()
                value *= self._signed_power()
            elif token in _DIVIDED_BY:
                self._next()
                value = self._quotient(value, self._signed_power())
            elif token == r"\frac" and value.is_Integer and value >= 0 and self._is_mixed():
                value += self._power()  # a mixed number
            elif token in ("(", "{", "[") or (token[0] in "\\abcdefghijklmnopqrstuvwxyz" or token[0].isalpha()):
                value *= self._power()
            else:
                return value
        return value

    def _is_mixed(self) -> bool:
        """Return whether a whole number comes directly before a fraction of numbers."""
        before = self._tokens[self._at - 1]
        rest = "".join(self._tokens[self._at : self._at + 7])
        return before.isdigit() and re.match(r"\\frac(?:\{\d+\}\{\d+\}|\d\d)", rest) is not None

    def _signed_power(self) -> Any:
        if self.peek() == "-":
            self._next()
            return -self._power()
        return self._power()

    def _power(self) -> Any:
        value = self._atom()
        while (token := self.peek()) in ("!", "%", "^"):
            self._next()
            if token == "!":
                value = self._factorial(value)
            elif token == "^" and self.peek() == r"\circ":
                self._next()
            elif token == "^":
                value = self._raised(value, self._group())
        return value

    def _atom(self) -> Any:
        token = self._next()
        if token[0].isdigit() or token[0] == ".":
            return self._number(token)
        if token in _CLOSING:
            value = self.sum()
            self._expect(_CLOSING[token])
            return abs(value) if token == "|" else value
        name = token.removeprefix("\\")
        if token == r"\frac":
            return self._quotient(self._group(), self._group())
        if name == "sqrt":
            return self._root()
        if name in _FUNCTIONS:
            return self._function(name)
        if token == r"\binom":
            return self._binomial(self._group(), self._group())
        return self._constant_or_symbol(token, name)

    def _constant_or_symbol(self, token: str, name: str) -> Any:
        sympy = self._sympy
        constants = {"pi": sympy.pi, "infty": sympy.oo, "e": sympy.E, "i": sympy.I}
        if name in constants:
            return constants[name]
        if not (len(token) == 1 and token.isalpha()) and name not in _GREEK:
            raise Unreadable(token)
        if self.peek() == "_":
            self._next()
            index = self._next()
            if index == "{":
                index = self._next()
                self._expect("}")
            if not index.isalnum():
                raise Unreadable(f"the subscript {index}")
            name = f"{name}_{index}"
        return sympy.Symbol(name)

    def _group(self) -> Any:
        """Read one argument: in braces, or one digit, letter or command."""
        token = self.peek()
        if token is not None and token[0].isdigit() and len(token) > 1 and "." not in token:
            self._tokens[self._at : self._at + 1] = [token[0], token[1:]]
        if token == "-":
            return self._signed_power()
        return self._atom()

    def _number(self, token: str) -> Any:
        if len(token) > MAX_DIGITS:
            raise Unreadable("a number too long")
        if self.peek() == "_":
            raise Unreadable("digits with a base")
        return self._sympy.Rational(token)

    def _root(self) -> Any:
        degree = self._sympy.Integer(2)
        if self.peek() == "[":
            self._next()
            degree = self.sum()
            self._expect("]")
        return self._raised(self._group(), self._quotient(self._sympy.Integer(1), degree))

    def _function(self, name: str) -> Any:
        base = exponent = None
        for _ in range(2):
            if self.peek() == "_":
                self._next()
                base = self._group()
            elif self.peek() == "^":
                self._next()
                exponent = self._group()
        argument = self._power()
        function = getattr(self._sympy, _FUNCTIONS[name])
        if exponent == -1:
            raise Unreadable("an inverse function")
        if name == "log":
            value = function(argument) / function(self._sympy.Integer(10) if base is None else base)
        else:
            value = function(argument)
        return value if exponent is None else self._raised(value, exponent)

    def _quotient(self, top: Any, bottom: Any) -> Any:
        if bottom == 0:
            raise Unreadable("a division by zero")
        return top / bottom

    def _raised(self, base: Any, exponent: Any) -> Any:
        if base == 0 and not exponent.is_positive:
            raise Unreadable("zero to a power that is not positive")
        if exponent.is_number and not exponent.is_infinite:
            digits = len(str(abs(base))) if base.is_Rational else 10
            if abs(exponent.evalf(8)) * digits > MAX_POWER_DIGITS:
                raise Unreadable("a power too large")
        return base**exponent

    def _factorial(self, value: Any) -> Any:
        if not value.is_Integer or not 0 <= value <= MAX_FACTORIAL:
            raise Unreadable("a factorial of no small number")
        return self._sympy.factorial(value)

    def _binomial(self, top: Any, bottom: Any) -> Any:
        if not (top.is_Integer and bottom.is_Integer and 0 <= bottom <= top <= MAX_FACTORIAL):
            raise Unreadable("a binomial coefficient of no small numbers")
        return self._sympy.binomial(top, bottom)
