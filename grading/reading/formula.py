r"""Parse one mathematical expression, LaTeX or plain text, into a tree. Nothing is computed here.

The reader covers only the notation of answers. It rejects everything else (integrals, sums, prose, two adjacent
numbers) as a whole and never reads a part. Juxtaposition is a product, `i` is the imaginary unit, `e` is Euler's
number, `|x|` is the absolute value, and `a/bc` is `(a/b)c`. An unbracketed argument of a function ends at the next sum
or function. Depth and length are bounded by the caller (`grading.bounds`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Node:
    """One operation: kind, operands, and a number's value or a symbol's or function's name."""

    kind: str
    """`number`, `symbol`, `+`, `*`, `/`, `^`, `-` (of one operand), `!`, `function`, or `constant` (e, i, pi)."""
    operands: tuple[Node, ...] = ()
    value: Fraction = Fraction(0)
    name: str = ""
    digits: int | None = None
    """Significant digits of a decimal."""


def number(value: Fraction, digits: int | None = None) -> Node:
    return Node("number", value=value, digits=digits)


def symbols(node: Node) -> frozenset[str]:
    """Return the names of the variables."""
    own = frozenset((node.name,)) if node.kind == "symbol" else frozenset()
    return own.union(*(symbols(operand) for operand in node.operands))


def contains(node: Node, test: Callable[[Node], bool]) -> bool:
    """Return whether any part of the expression passes the test."""
    return test(node) or any(contains(operand, test) for operand in node.operands)


def with_symbol_renamed(node: Node, old: str, new: str) -> Node:
    if node.kind == "symbol" and node.name == old:
        return Node("symbol", name=new)
    if not node.operands:
        return node
    operands = tuple(with_symbol_renamed(operand, old, new) for operand in node.operands)
    return Node(node.kind, operands, node.value, node.name, node.digits)


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


INFINITY = Node("symbol", name="oo")
MINUS_ONE = Node("-", (number(Fraction(1)),))


class NotAFormulaError(ValueError):
    """The text is not an expression in the supported notation."""


FUNCTIONS = names(
    "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth sech csch arcsinh "
    "arccosh arctanh cis asin acos atan asinh acosh atanh arsinh arcosh artanh ln log lg exp sqrt cbrt abs floor "
    "ceil"
)
GREEK = names(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi pi rho varrho "
    "sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega "
    "ell hbar nabla"
)
ACCENTS = names(
    "vec hat bar overline overrightarrow mathbf boldsymbol bm tilde dot ddot mathcal mathbb underline widehat "
    "widetilde mathrm text textbf textit mathit mathsf operatorname rm"
)
MAX_EXPONENT = 400
"""Maximum power of ten in scientific notation."""
_NUMBER = re.compile(r"(?:\d{1,3}(?:,\d{3})+(?![\d])|\d{1,3}(?: \d{3})+(?![\d])|\d+)(?:\.\d*)?|\.\d+")
_REPEATING = re.compile(r"(\d*)\.(\d*)\s?(?:\\overline\s?(?:\{(\d+)\}|(\d))|\\dot\s?\{?(\d)\}?(?!\d)|\((\d+)\))")
_EXPONENT = re.compile(r"[eE]([+-]?\d{1,4})(?![\w.])")
_MIXED = re.compile(r"(\d+) (\d+)/(\d+)(?![\d.])")
_PROPER = re.compile(r"\s?\\frac\s?(?:\{(\d+)\}|(\d))\s?(?:\{(\d+)\}|(\d))(?!\s?[\^_])")
WORD = re.compile(r"[A-Za-z]+")
_COMMAND = re.compile(r"\\([A-Za-z]+)|\\(.)", re.DOTALL)
_SUBSCRIPT = re.compile(r"_\s?(?:\{([^{}]*(?:\{[^{}]*\})?[^{}]*)\}|(\\[A-Za-z]+|\w))")
PLAIN_NAMES = sorted(FUNCTIONS | names("pi theta alpha beta gamma lambda omega phi infty"), key=len, reverse=True)
TIMES = frozenset({"cdot", "times", "ast", "bullet"})
INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot", "sec": "arcsec", "csc": "arccsc",
            "sinh": "arcsinh", "cosh": "arccosh", "tanh": "arctanh"}  # fmt: skip


class Reader:
    """A recursive-descent parser over the characters of a text; `at` is the index of the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.bars = 0
        """Number of open `|`; if there are any, the next bar closes one."""

    def space(self) -> None:
        while self.text.startswith((" ", "{}"), self.at):
            self.at += 1 if self.text[self.at] == " " else 2

    def peek(self) -> str:
        self.space()
        return self.text[self.at] if self.at < len(self.text) else ""

    def command(self) -> str:
        """Return the name of the next command, without moving, or an empty string."""
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
            if abs(int(exponent.group(1))) > MAX_EXPONENT:
                raise NotAFormulaError("a number of this size")
            return number(value * Fraction(10) ** int(exponent.group(1)), significant)
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
        if primes == 0 and name in ("e", "i", "pi"):
            return Node("constant", name=name)
        return Node("symbol", name=name + "'" * primes)

    def sum(self) -> Node:
        sign = self._sign()
        first = self.product()
        terms = [Node("-", (first,)) if sign < 0 else first]
        while self.peek() in ("+", "-"):
            sign = self._sign()
            term = self.product()
            terms.append(Node("-", (term,)) if sign < 0 else term)
        return terms[0] if len(terms) == 1 else Node("+", tuple(terms))

    def _sign(self) -> int:
        sign = 1
        while self.peek() in ("+", "-"):
            sign = -sign if self.peek() == "-" else sign
            self.at += 1
        return sign

    def product(self) -> Node:
        node = self.power()
        while True:
            command = self.command()
            if command in TIMES or self.peek() == "*":
                self.at += 1 + (len(command) if command else 0)
                node = Node("*", (node, self._signed_power()))
            elif command == "div" or self.peek() == "/":
                self.at += 1 + (len(command) if command else 0)
                node = Node("/", (node, self._signed_power()))
            elif self._starts_factor(after=node):
                node = Node("*", (node, self.power()))
            else:
                return node

    def _signed_power(self) -> Node:
        if self._sign() < 0:
            return Node("-", (self.power(),))
        return self.power()

    def _starts_factor(self, after: Node) -> bool:
        character = self.peek()
        if not character or character in "+-*/^_=<>,;:)]}!&'\"":
            return False
        if character == "|":
            return self.bars == 0
        if character.isdigit() or character == ".":
            return after.kind != "number"
        command = self.command()
        return command not in ("}", "rvert", "rfloor", "rceil", "right", "\\") if command else True

    def power(self) -> Node:
        base = self.atom()
        while True:
            character = self.peek()
            if character == "!":
                self.at += 1
                base = Node("!", (base,))
            elif character == "^":
                self.at += 1
                if self.command() == "circ" or self.text.startswith(r"{\circ}", self.at):
                    self.at = self.text.index(r"\circ", self.at) + 5
                    self.skip("}")
                    base = Node("*", (base, Node("/", (Node("constant", name="pi"), number(Fraction(180))))))
                else:
                    base = Node("^", (base, self.exponent()))
            elif character == "%" or self.command() == "%":
                self.at += 1 + (self.command() == "%")
                base = Node("/", (base, number(Fraction(100))))
            else:
                return base

    def exponent(self) -> Node:
        sign = self._sign()
        if self.peek() == "{":
            node = self.group()
        elif match := re.compile(r"\d+").match(self.text, self.at):
            self.at = match.end()
            node = number(Fraction(match.group()))
        elif self.peek() == "*":
            raise NotAFormulaError("a star")
        else:
            node = self.atom()
        if self.peek() == "^" and not self.text.startswith((r"^\circ", r"^{\circ}"), self.at):
            self.at += 1
            node = Node("^", (node, self.exponent()))
        return Node("-", (node,)) if sign < 0 else node

    def group(self) -> Node:
        return self.bracketed("{", "}")

    def argument(self) -> Node:
        r"""Read the argument of `\frac` or `\sqrt`: a group, or one digit, letter or command."""
        if self.peek() == "{":
            return self.group()
        if self.peek().isdigit():
            self.at += 1
            return number(Fraction(int(self.text[self.at - 1])))
        if self.peek().isalpha():
            self.at += 1
            return self.name(self.text[self.at - 1])
        return self.atom()

    def atom(self) -> Node:
        character = self.peek()
        if character.isdigit() or character == ".":
            return self.number()
        if character in ("(", "["):
            return self.bracketed(character, ")" if character == "(" else "]")
        if character == "{":
            return self.group()
        if character == "|":
            return self.absolute("|", "|")
        if character == "\\":
            return self.command_atom(self.command())
        if character.isascii() and character.isalpha():
            return self.word()
        raise NotAFormulaError(character)

    def bracketed(self, opening: str, closing: str) -> Node:
        self.need(opening)
        bars, self.bars = self.bars, 0
        node = self.sum()
        self.need(closing)
        self.bars = bars
        return node

    def absolute(self, opening: str, closing: str) -> Node:
        self.need(opening)
        self.bars += 1
        node = self.sum()
        self.need(closing)
        self.bars -= 1
        return Node("function", (node,), name="abs")

    def word(self) -> Node:
        match = WORD.match(self.text, self.at)
        assert match is not None
        run = match.group()
        for name in PLAIN_NAMES:
            if run.startswith(name) and (name in FUNCTIONS or len(run) == len(name) or name == "pi"):
                self.at += len(name)
                if name in FUNCTIONS:
                    return self.function(name)
                return INFINITY if name == "infty" else self.name(name)
        if run in ("inf", "infinity", "oo", "Infinity"):
            self.at += len(run)
            return INFINITY
        self.at += 1
        return self.name(run[0])

    def command_atom(self, name: str) -> Node:
        self.skip_command(name)
        if name == "frac":
            return Node("/", (self.argument(), self.argument()))
        if name in FUNCTIONS:
            return self.function(name)
        if name in ("binom", "tbinom", "dbinom"):
            return Node("function", (self.argument(), self.argument()), name="binom")
        if name == "infty":
            return INFINITY
        if name in ("imath", "jmath"):
            return Node("constant", name="i") if name == "imath" else Node("symbol", name="j")
        if name in GREEK:
            return self.name(name.removeprefix("var"))
        if name in ("lvert", "lfloor", "lceil"):
            inner = self.absolute("", "\\r" + name[1:])
            return Node("function", inner.operands, name={"v": "abs", "f": "floor", "c": "ceil"}[name[1]])
        if name in ACCENTS:
            return self.accented(name)
        raise NotAFormulaError(name)

    def accented(self, accent: str) -> Node:
        """Read a letter with an accent or in a special font as a separate symbol, but an upright letter as itself."""
        match = re.compile(r"\s?(?:\{\s?~?(\\?[A-Za-z]{1,10}\d?(?:_\{?\w+\}?)?)\s?\}|(\\?[A-Za-z]))").match(
            self.text, self.at
        )
        if match is None:
            raise NotAFormulaError(accent)
        self.at = match.end()
        inner = (match.group(1) or match.group(2)).lstrip("\\")
        if accent in ("mathrm", "text", "operatorname", "rm", "mathit", "textit"):
            if inner in FUNCTIONS:
                return self.function(inner)
            if len(inner) == 1:
                return self.name(inner)
            if inner not in ("Re", "Im"):
                raise NotAFormulaError(inner)
        style = "vec" if accent in ("vec", "hat", "mathbf", "boldsymbol", "bm", "overrightarrow", "widehat") else accent
        return self.name(f"{style}:{inner}")

    def function(self, name: str) -> Node:
        if name in ("sqrt", "cbrt"):
            return self.root(name)
        base: Node | None = None
        power: Node | None = None
        for _ in range(2):
            if self.skip("_"):
                base = self.argument()
            if self.peek() == "^":
                self.at += 1
                power = self.exponent()
        if power == MINUS_ONE and name in INVERSE:
            name, power = INVERSE[name], None
        argument = self.function_argument()
        operands = (argument, base) if base is not None else (argument,)
        node = Node("function", operands, name=name)
        return Node("^", (node, power)) if power is not None else node

    def root(self, name: str) -> Node:
        degree = number(Fraction(3 if name == "cbrt" else 2))
        if name == "sqrt" and self.peek() == "[":
            degree = self.bracketed("[", "]")
        argument = self.bracketed("(", ")") if self.peek() == "(" else self.argument()
        return Node("function", (argument, degree), name="root")

    def function_argument(self) -> Node:
        if self.peek() == "(":
            return self.bracketed("(", ")")
        if self.peek() == "[":
            return self.bracketed("[", "]")
        if self.peek() == "|":
            return self.absolute("|", "|")
        if self._sign() < 0:
            return Node("-", (self.function_argument(),))
        node = self.power()
        while self._continues_argument(node):
            node = Node("*", (node, self.power()))
        divisor = re.compile(r"\s?/\s?(\d+)").match(self.text, self.at)
        if divisor and contains(node, lambda part: part.name == "pi"):
            self.at = divisor.end()
            node = Node("/", (node, number(Fraction(int(divisor.group(1))))))
        return node

    def _continues_argument(self, node: Node) -> bool:
        if not self._starts_factor(node) or self.peek() == "(":
            return False
        command = self.command()
        if command in FUNCTIONS - {"sqrt"} or command in TIMES or command in ("div", "operatorname"):
            return False
        match = WORD.match(self.text, self.at)
        return not (match and match.group().startswith(tuple(FUNCTIONS)))


@lru_cache(maxsize=4096)
def read_formula(text: str) -> Node | None:
    """Return the tree of a cleaned text, or None if it is not a single supported expression."""
    reader = Reader(text)
    try:
        node = reader.sum()
        reader.space()
        return node if reader.at == len(text) else None
    except (NotAFormulaError, RecursionError, ZeroDivisionError):
        return None
