"""Characters, numbers and names of an expression, from which `grading.reading.formula` builds its trees."""

from __future__ import annotations

import re
from fractions import Fraction

from grading.reading.tree import Node, number


def names(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


class NotAFormulaError(ValueError):
    """The text is not an expression that this reader knows."""


FUNCTIONS = names(
    "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth sech csch arcsinh "
    "arccosh arctanh cis asin acos atan asinh acosh atanh arsinh arcosh artanh ln log lg exp sqrt cbrt abs floor "
    "ceil"
)
GREEK = names(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho varrho "
    "sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega "
    "ell hbar nabla"
)
ACCENTS = names(
    "vec hat bar overline overrightarrow mathbf boldsymbol bm tilde dot ddot mathcal mathbb underline widehat "
    "widetilde mathrm text textbf textit mathit mathsf operatorname rm"
)
_NUMBER = re.compile(
    r"(?:\d{1,3}(?:,\d{3})+(?![\d])|\d{1,3}(?: \d{3})+(?![\d])|\d+)(?:\.\d*)?|\.\d+"
)  # fmt: skip
_REPEATING = re.compile(r"(\d*)\.(\d*)\s?(?:\\overline\s?(?:\{(\d+)\}|(\d))|\\dot\s?\{?(\d)\}?(?!\d)|\((\d+)\))")
_EXPONENT = re.compile(r"[eE]([+-]?\d{1,4})(?![\w.])")
_MIXED = re.compile(r"(\d+) (\d+)/(\d+)(?![\d.])")
_PROPER = re.compile(r"\s?\\frac\s?(?:\{(\d+)\}|(\d))\s?(?:\{(\d+)\}|(\d))(?!\s?[\^_])")
WORD = re.compile(r"[A-Za-z]+")
_COMMAND = re.compile(r"\\([A-Za-z]+)|\\(.)", re.DOTALL)
_SUBSCRIPT = re.compile(r"_\s?(?:\{([^{}]*(?:\{[^{}]*\})?[^{}]*)\}|(\\[A-Za-z]+|\w))")
PLAIN_NAMES = sorted([*FUNCTIONS, "pi", "theta", "alpha", "beta", "gamma", "lambda", "omega", "phi", "infty"], key=len)[
    ::-1
]
_CONSTANTS = {"e": "e", "i": "i", "pi": "pi"}
TIMES = frozenset({"cdot", "times", "ast", "bullet"})
INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot", "sec": "arcsec", "csc": "arccsc",
            "sinh": "arcsinh", "cosh": "arccosh", "tanh": "arctanh"}  # fmt: skip


class Scanner:
    """A position in a text; `at` is the index of the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def space(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " {" and self._is_blank_group():
            self.at += 1 if self.text[self.at] == " " else 2

    def _is_blank_group(self) -> bool:
        return self.text[self.at] == " " or self.text.startswith("{}", self.at)

    def peek(self) -> str:
        self.space()
        return self.text[self.at] if self.at < len(self.text) else ""

    def command(self) -> str:
        """Return the name of the command that comes next, without moving, or an empty text."""
        if self.peek() != "\\":
            return ""
        match = _COMMAND.match(self.text, self.at)
        return (match.group(1) or match.group(2)) if match else ""

    def skip(self, expected: str) -> bool:
        self.space()
        if not self.text.startswith(expected, self.at):
            return False
        self.at += len(expected)
        return True

    def need(self, expected: str) -> None:
        if not self.skip(expected):
            raise NotAFormulaError(expected)

    def skip_command(self, name: str) -> None:
        self.space()
        self.at += 1 + len(name)

    def number(self) -> Node:
        if match := _REPEATING.match(self.text, self.at):
            self.at = match.end()
            whole, fixed = match.group(1), match.group(2)
            period = next(group for group in match.groups()[2:] if group)
            nines = Fraction(int(period), 10 ** len(period) - 1)
            return number(Fraction(int(whole + fixed or 0) + nines) / 10 ** len(fixed))
        if match := _MIXED.match(self.text, self.at):
            self.at = match.end()
            return number(int(match.group(1)) + Fraction(int(match.group(2)), int(match.group(3))))
        match = _NUMBER.match(self.text, self.at)
        if match is None:
            raise NotAFormulaError("a number")
        self.at = match.end()
        digits = match.group().replace(",", "").replace(" ", "")
        value = Fraction(digits.rstrip(".") or "0")
        significant = len(digits.replace(".", "").lstrip("0")) if "." in digits else None
        if exponent := _EXPONENT.match(self.text, self.at):
            self.at = exponent.end()
            return number(value * Fraction(10) ** max(-400, min(400, int(exponent.group(1)))), significant)
        if "." not in digits and (proper := _PROPER.match(self.text, self.at)):
            top, bottom = (int(proper.group(n) or proper.group(n + 1)) for n in (1, 3))
            if 0 < top < bottom:
                self.at = proper.end()
                value += Fraction(top, bottom)
        return number(value, significant)

    def name(self, name: str) -> Node:
        """Read the subscript and primes after a letter or name, and return its symbol or constant."""
        if match := _SUBSCRIPT.match(self.text, self.at):
            self.at = match.end()
            inner = re.sub(r"\\(?:text|mathrm|rm)|[{}\s\\]", "", match.group(1) or match.group(2))
            return Node("symbol", name=f"{name}_{inner}")
        primes = 0
        while self.text.startswith("'", self.at):
            self.at, primes = self.at + 1, primes + 1
        if primes == 0 and name in _CONSTANTS:
            return Node("constant", name=name)
        return Node("symbol", name=name + "'" * primes)
