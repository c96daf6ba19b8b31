r"""Relation signs of an answer: `x = 5`, `1 < x \le 3`, `x \in A`, and chains of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from grading.reading.notation import squeezed

_SIGN = re.compile(
    r"\\(?:leqslant|geqslant|leq|geq|le|ge|neq|ne|lt|gt|notin|in)(?![a-zA-Z])|\\not\s?=|\\not\s?\\in(?![a-zA-Z])|"
    r"<=|>=|!=|=<|=>|<|>|="
)
_SPELLINGS = {"leqslant": "<=", "geqslant": ">=", "leq": "<=", "geq": ">=", "le": "<=", "ge": ">=", "lt": "<",
              "gt": ">", "neq": "!=", "ne": "!=", "not=": "!=", "not\\in": "notin", "=<": "<=", "=>": ">="}  # fmt: skip
NAME = re.compile(
    r"[^0-9_+\-*/^=<>]*(?:[_^](?:\w|\{\w{1,3}\})[^0-9_+\-*/^=<>]*)*"
    r"|\\?[A-Za-z]{1,20}(?:_\{?\w{1,3}\}?)?'{0,3}\s?\([^()=]*\)|[A-Za-z]_\{[^{}=]{1,40}\}"
)
"""Left sides that name a value: `x`, `x_1`, `f(x)`, or words."""
_LETTER = re.compile(r"(?:\\[a-z]+ ?)?\{?\\?[A-Za-z]+\}?(?:_\{?\w+\}?)?(?:\([^()=]*\))?")


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain such as `1 < x <= 3`; a text without a relation sign is a chain of one operand."""

    operands: tuple[str, ...]
    """One more than there are signs."""
    signs: tuple[str, ...]
    """`=`, `!=`, `<`, `<=`, `>`, `>=`, `in` or `notin`."""

    @property
    def is_equation(self) -> bool:
        """True if there are signs and all of them are `=`."""
        return set(self.signs) == {"="}

    def ascending(self) -> Relation:
        """Return the same chain, turned around where all its signs are `>` or `>=`."""
        if self.signs and set(self.signs) <= {">", ">="}:
            return Relation(self.operands[::-1], tuple(sign.replace(">", "<") for sign in self.signs[::-1]))
        return self


def read_relation(text: str) -> Relation:
    """Split a text at its relation signs outside brackets."""
    operands, signs, start, depth, at = [], [], 0, 0, 0
    while at < len(text):
        character = text[at]
        if character == "\\" and text[at + 1 : at + 2] in ("{", "}"):
            at += 1
            character = text[at]
        depth += (character in "([{") - (character in ")]}")
        match = _SIGN.match(text, at) if depth == 0 and character in "\\<>=!" else None
        if match:
            operands.append(text[start:at].strip())
            sign = match.group().removeprefix("\\").replace(" ", "")
            signs.append(_SPELLINGS.get(sign, sign))
            at = start = match.end()
        else:
            at += 1 if character != "\\" or text[at + 1 : at + 2] in ("", "{", "}") else 2
    return Relation((*operands, text[start:].strip()), tuple(signs))


def is_equation(text: str) -> bool:
    """Return whether a text has a `=` outside brackets, and no other relation sign."""
    return "=" in text and read_relation(text).is_equation


def without_name(text: str) -> str:
    r"""Drop `x =`, `f(x) =`, `x \in` in front of a value, and the left sides of a chain of equalities."""
    relation = read_relation(text)
    signs = relation.signs
    if not signs or not set(signs) <= {"=", "in"} or (signs[0] == "in" and len(signs) > 1):
        return text
    is_named = NAME.fullmatch(relation.operands[0].strip()) is not None
    return relation.operands[-1] if is_named and relation.operands[-1] else text


def name_of(text: str) -> str:
    """Return the name in front of a value (`x` of `x = 5`, `f(x)` of `f(x) = 2x`), or an empty text."""
    operands = read_relation(text).operands
    return squeezed(operands[0]) if len(operands) == 2 and without_name(text) != text else ""


def named_values(text: str) -> list[tuple[str, str]]:
    """Return the names and the value of `x = y = 4`, or the text as a single value without a name."""
    *names, value = read_relation(text).operands if is_equation(text) else (text,)
    if len(names) < 2 or not all(_LETTER.fullmatch(name) for name in names):
        return [("", text)]
    return [(name, value) for name in names]
