r"""Reader of one mathematical expression, LaTeX or plain text, into a tree. Nothing is computed here.

The reader knows the notation of answers and no more: it refuses everything else (integrals, sums, prose, two numbers
side by side) as a whole and never reads a part of it. Juxtaposition is a product, `i` is the imaginary unit, `e` is
Euler's number, `|x|` is the absolute value, `a/bc` is `(a/b)c`, and an unbracketed argument of a function ends at the
next sum or function. Depth and length are bounded by the caller (`grading.bounds`).
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from grading.reading.scanner import (
    ACCENTS,
    FUNCTIONS,
    GREEK,
    INVERSE,
    PLAIN_NAMES,
    TIMES,
    WORD,
    NotAFormulaError,
    Scanner,
)
from grading.reading.tree import Node, contains, number


@lru_cache(maxsize=4096)
def read_formula(text: str) -> Node | None:
    """Return the tree of a cleaned text, or None where it is not one expression that this reader knows."""
    reader = _Reader(text)
    try:
        node = reader.sum()
        reader.space()
        return node if reader.at == len(text) else None
    except (NotAFormulaError, RecursionError, ZeroDivisionError):
        return None


class _Reader(Scanner):
    """A recursive-descent parser over the characters."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.bars = 0
        """Number of open `|`; while there are any, the next bar closes one."""

    def sum(self) -> Node:
        sign = self._sign()
        first = self.product()
        terms = [Node("-", (first,)) if sign < 0 else first]
        while self.peek() in ("+", "-") and self.peek():
            sign = self._sign()
            term = self.product()
            terms.append(Node("-", (term,)) if sign < 0 else term)
        return terms[0] if len(terms) == 1 else Node("+", tuple(terms))

    def _sign(self) -> int:
        sign = 1
        while self.peek() and self.peek() in "+-":
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
        elif self.peek().isdigit():
            match = re.compile(r"\d+").match(self.text, self.at)
            assert match is not None
            self.at = match.end()
            node = number(Fraction(int(match.group())))
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
                return Node("symbol", name="oo") if name == "infty" else self.name(name)
        if run in ("inf", "infinity", "oo", "Infinity"):
            self.at += len(run)
            return Node("symbol", name="oo")
        self.at += 1
        return self.name(run[0])

    def command_atom(self, name: str) -> Node:
        if name in ("left", "right"):
            raise NotAFormulaError(name)
        self.skip_command(name)
        if name == "frac":
            return Node("/", (self.argument(), self.argument()))
        if name in FUNCTIONS:
            return self.function(name)
        if name in ("binom", "tbinom", "dbinom"):
            return Node("function", (self.argument(), self.argument()), name="binom")
        if name == "pi":
            return self.name("pi")
        if name == "infty":
            return Node("symbol", name="oo")
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
        """Read a letter with an accent or in a font as a symbol of its own, and an upright letter as itself."""
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
        if power is not None and _is_minus_one(power) and name in INVERSE:
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
        return not (match and any(match.group().startswith(name) for name in FUNCTIONS))


def _is_minus_one(node: Node) -> bool:
    inner = node.operands[0] if node.kind == "-" else None
    return inner is not None and inner.kind == "number" and inner.value == 1
