"""Light cleaning of answers, which changes their notation but never their meaning.

All functions work on strings, in linear time, over text whose length is bounded by the caller.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

SYMBOLS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ",
    "÷": "/", "⁄": "/", "∕": "/", "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ",
    "≠": r"\ne ", "≈": r"\approx ", "±": r"\pm ", "∓": r"\mp ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "∉": r"\notin ", "∖": r"\setminus ", "°": r"^\circ ", "º": r"^\circ ", "∅": r"\emptyset ", "ℝ": r"\mathbb{R}",
    "，": ",", "、": ",", "；": ";", "。": ".", "（": "(", "）": ")", "％": "%", "＝": "=", "．": ".", "：": ":",
    "′": "'", "’": "'", "‘": "'", "“": '"', "”": '"', "∧": r"\wedge ", "∨": r"\vee ", "√": r"\sqrt ",
    "∛": r"\sqrt[3]", "∠": r"\angle ", "…": r"\ldots ", "⋯": r"\ldots ", "⟨": r"\langle ", "⟩": r"\rangle ",
    "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "→": r"\to ", "€": "", "£": "", "¥": "",
    "ϕ": r"\phi ", "ϵ": r"\epsilon ", "µ": r"\mu ",
}  # fmt: skip
_LETTER_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi psi omega "
    "Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega"
)
GREEK = dict(zip("αβγδεζηθικλμνξρστυφχψωΓΔΘΛΞΣΦΨΩ", re.findall(r"\w+", _LETTER_NAMES), strict=True))
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿˣⁱ", "0123456789-+nxi")
SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿˣⁱ]+")
_SUBSCRIPT_RUN = re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
_VULGAR = re.compile("[¼-¾⅐-⅞]")
_UNICODE_ROOT = re.compile(r"([√∛])\s?(?:\(([^()]{1,200})\)|(\d+(?:\.\d+)?|[a-zπ]))")
_SPACING = re.compile(
    r"(?<!\\)\\(?:! ?|[,;:> /]|thinspace(?![a-z]))|\\q?quad(?![a-zA-Z])|~|\\h(?:space|fill)\*?(?:\{[^{}]*\})?"
)
_THIN = re.compile(r"(?<=\d)\s?\\[,;:>!]\s?(?=\d{3}(?!\d))|(?<=\d)\s?\{,\}\s?(?=\d{3})|\\! ?")
_SIZING = re.compile(r"\\(?:left|right|[bB]igg?[lrm]?|middle|displaystyle|textstyle|limits|nolimits)(?![a-zA-Z])\.?")
_FRACTION = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
_SHORT_FRACTION = re.compile(r"\\frac\s?(\d)\s?(\d)")
_SHORT_ROOT = re.compile(r"\\sqrt\s?(\d)")
_TEXT_DIGITS = re.compile(r"\\(?:text|mathrm|mbox)\s?\{\s?(\d[\d.,]{0,30})\s?\}")
_WHOLE_TEXT = re.compile(r"\\(?:text(?:bf|it|rm|normal)?|mbox)\s?\{([^{}]*)\}")
_BARE_COMMAND = re.compile(r"(?<![\\a-zA-Z])[dtc]?(frac|sqrt)(?=\s?[\[{])")
_ESCAPED_TWICE = re.compile(r"\\\\(?=[a-zA-Z]{2,})")
_PLAIN_FENCE = re.compile(r"(?<!\\)\\[()]")
_TEXT_COMMAND = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|mbox|hbox|mathrm|mathbf|mathit|operatorname)\*?\s?\{([^{}]*)\}"
)
_BOLD = re.compile(r"^\\(?:math|text)bf\s?\{(.*)\}$|^\\(?:boldsymbol|bm|displaystyle)\s?\{(.*)\}$", re.DOTALL)
_ALIGNED = re.compile(
    r"\\begin\{((?:align|alignat|gather|equation|eqnarray|split)(?:ed)?)(\*?)\}(?!.*\\begin)(.*?)\\end\{\1\2\}",
    re.DOTALL,
)
_ROW_END = re.compile(
    r"(?<!\\)\\\\(?:\[[^\]]*\])?(?=\s|\\[A-Za-z]|[A-Za-z](?![A-Za-z])|[-\d]|$)|\\q?quad(?![a-zA-Z])|\\newline(?![a-z])|\n"
)
_FRENCH = re.compile(r"([\[\]])([^\[\](),]+,[^\[\](),]+)([\[\]])")
"""An interval whose open ends have reversed brackets: `]0, 1]`."""
_TWO_WORDS = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,} +[A-Za-z]{2,}")
_THOUSANDS = re.compile(r"\d,\d{3}(?!\d)")
_WORD_BETWEEN = re.compile(
    r"\\(?:text|mbox|textrm|mathrm)\s?\{\s*,?\s*(?:and|or)\s*\}|(?<=[\s,])(?:and|or)(?=[\s\\])|\\(?:vee|lor)(?![a-z])"
)


@lru_cache(maxsize=4096)
def clean(answer: str) -> str:
    """Normalize an answer's notation: remove dollar signs, spacing, sizing commands and a final period."""
    text = _ascii_maths(_rows_as_list(answer) if re.search(r"\n|\\\\|\\q?quad|\\begin", answer) else answer)
    text = _clean_latex(text) if "\\" in text else text.replace("$", "").replace("~", " ")
    text = text.replace("**", "^") if re.search(r"[\w)]\s?\*\*\s?[\w(-]", text) else text.replace("**", "")
    text = re.sub(r"(\^|\s|^)\\displaystyle(?![a-zA-Z])|(?<!\\)\\(?=\s|$)", r"", text)
    text = _TEXT_DIGITS.sub(r"\1", text)
    if (whole := _WHOLE_TEXT.fullmatch(text.strip())) and re.search(r"[\d=,]", whole.group(1)):
        text = whole.group(1)
    text = _BARE_COMMAND.sub(r"\\\1", text)
    text = re.sub(r"(?<=\d)\.\.\.+", r"\\ldots", text)
    if re.search(r"^\s*\]|,[^\[\]()]*\[|\\cup\s*\]", text):
        text = _FRENCH.sub(_interval, text)
    text = re.sub(r"\s+", " ", text).strip().rstrip(".,;: ").strip().strip("`").strip()
    if bold := _BOLD.match(text):
        inner = bold.group(1) or bold.group(2) or ""
        text = inner if len(inner) > 1 or inner.isdigit() else text
    return text


def _clean_latex(text: str) -> str:
    if r"\begin" not in text:
        text = _ESCAPED_TWICE.sub(r"\\", text)
    text = _FRACTION.sub(r"\\frac", text.replace("\\\\[", "\\\\ ["))
    text = _SHORT_ROOT.sub(r"\\sqrt{\1}", _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", text))
    text = _SIZING.sub("", text)
    text = text.replace(r"\$", "").replace("$", "").replace(r"\%", "%").replace(r"\#", "#")
    text = _SPACING.sub(" ", _THIN.sub("", text))
    text = _PLAIN_FENCE.sub("", text)
    if text.strip().startswith(r"\[") and text.strip().endswith(r"\]"):
        text = text.strip()[2:-2]
    text = re.sub(r"\\(?:lbrace|rbrace)(?![a-z])", lambda m: r"\{" if "lb" in m.group() else r"\}", text)
    text = re.sub(r"(?<=\d)\s?\^\s?(?:\{\s?\\prime\s?\}|\\prime(?![a-z]))", "'", text)  # minutes of an angle
    return re.sub(
        r"\^\s?\{\s?\\circ\s?\}|\\degree(?![a-z])|\\text\{\s?°\s?\}|\\text\{ ?degrees? ?\}(?=\s?\d)", r"^\\circ", text
    )


def _rows_as_list(text: str) -> str:
    """Join equations in separate rows, or separated by wide space, with commas."""
    text = _ALIGNED.sub(lambda match: match.group(3).replace("&", ""), text)
    if r"\begin" in text:
        return text
    equations: list[str] = []
    for row in (row.strip(" ,;\t\n") for row in _ROW_END.split(text)):
        if row.startswith("=") and equations:
            equations[-1] += row
        elif row:
            equations.append(row)
    is_list = all("=" in row[1:-1] and not _TWO_WORDS.search(row) for row in equations)
    return ", ".join(equations) if len(equations) == 1 or is_list else text


def _ascii_maths(answer: str) -> str:
    """Replace typographic mathematics with LaTeX and other scripts' digits with ASCII; remove invisible characters."""
    if answer.isascii():
        return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", " ", answer)
    answer = _SUPERSCRIPT_RUN.sub(lambda m: "^{" + m.group().translate(SUPERSCRIPTS) + "}", answer)
    answer = _SUBSCRIPT_RUN.sub(lambda m: "_{" + m.group().translate(SUBSCRIPTS) + "}", answer)
    answer = _VULGAR.sub(_fraction, answer)
    answer = _UNICODE_ROOT.sub(lambda m: rf"\sqrt{'[3]' * (m[1] == '∛')}{{{m[2] or m[3]}}}", answer)
    return "".join(_plain_character(character) for character in answer)


def _interval(match: re.Match[str]) -> str:
    opening, ends, closing = match.groups()
    return ("(" if opening == "]" else opening) + ends + (")" if closing == "[" else closing)


def _fraction(match: re.Match[str]) -> str:
    top, _, bottom = unicodedata.normalize("NFKC", match.group()).partition("⁄")
    return rf"\frac{{{top}}}{{{bottom}}}" if bottom else match.group()


@lru_cache(maxsize=1024)
def _plain_character(character: str) -> str:
    if character.isascii():
        return _ascii_maths(character)
    if character in SYMBOLS:
        return SYMBOLS[character]
    if character in GREEK:
        return f"\\{GREEK[character]} "
    category = unicodedata.category(character)
    if category == "Nd":
        return str(unicodedata.digit(character))
    if category in {"Cf", "Cs", "Co", "Cn"}:
        return ""
    if category in {"Cc", "Zs", "Zl", "Zp"}:
        return " "
    return unicodedata.normalize("NFKC", character)


def squeezed(text: str) -> str:
    """Return the text for comparison as a string: `x^{2} + 1` as `x^2+1`. A space between two digits is kept."""
    text = re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text)
    return re.sub(r"([\^_])\{(\w)\}", r"\1\2", text)


def without_text_commands(text: str) -> str:
    r"""Replace `\text{…}` and similar commands with their contents."""
    return _TEXT_COMMAND.sub(r" \1 ", text).strip()


def depth_at_each(text: str) -> Iterator[tuple[str, int]]:
    """Yield every character with the bracket depth around it; an unmatched closing bracket leaves the depth 0."""
    depth = 0
    for character in text:
        if character in ")]}":
            depth = max(0, depth - 1)
        yield character, depth
        if character in "([{":
            depth += 1


def split_list(text: str) -> list[str]:
    r"""Split a list at its top-level commas, semicolons and the words `and` and `or`; an outer `\{…\}` is removed.

    If any comma is followed by a space, a comma inside a number such as `1,234` does not separate.
    """
    inner = re.fullmatch(r"\\\{(.*)\\\}", text, re.DOTALL)
    text = inner.group(1) if inner else text
    text = _WORD_BETWEEN.sub(" ; ", text)
    spaced = any(c == "," and d == 0 and text[i + 1 : i + 2] == " " for i, (c, d) in enumerate(depth_at_each(text)))
    parts, current = [], ""
    for index, (character, depth) in enumerate(depth_at_each(text)):
        comma = character == "," and not (spaced and _THOUSANDS.match(text, max(0, index - 1)))
        if depth == 0 and (comma or character == ";"):
            parts.append(current)
            current = ""
        else:
            current += character
    return [part for part in (p.strip().strip(".") for p in [*parts, current]) if part]


def split_top(text: str, pattern: str) -> list[str]:
    """Split at every match of a pattern outside brackets; brackets of any kind close each other, as in `[0, 1)`."""
    if not re.search(pattern, text):
        return [text]
    depths = [depth for _, depth in depth_at_each(text)]
    parts, start = [], 0
    for match in re.finditer(pattern, text):
        if depths[match.start()] == 0:
            parts.append(text[start : match.start()].strip())
            start = match.end()
    return [*parts, text[start:].strip()]


def is_enclosed(text: str) -> bool:
    """Return whether the last character of a text closes the bracket with which the text begins."""
    body = text.replace(r"\{", "{").replace(r"\}", "}").strip()
    if len(body) < 2 or body[0] not in "([{" or body[-1] not in ")]}":
        return False
    depths = [depth for _, depth in depth_at_each(body)]
    return len(body) == 2 or min(depths[1:-1]) > 0


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
    """One more operand than signs."""
    signs: tuple[str, ...]
    """`=`, `!=`, `<`, `<=`, `>`, `>=`, `in` or `notin`."""

    def ascending(self) -> Relation:
        """Return the same chain, reversed if all its signs are `>` or `>=`."""
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
    """Return whether a text has an `=` outside brackets, and no other relation sign."""
    return "=" in text and set(read_relation(text).signs) == {"="}


def without_name(text: str) -> str:
    r"""Remove `x =`, `f(x) =` or `x \in` before a value, and the left sides of a chain of equalities."""
    relation = read_relation(text)
    signs = relation.signs
    if not signs or not set(signs) <= {"=", "in"} or (signs[0] == "in" and len(signs) > 1):
        return text
    is_named = NAME.fullmatch(relation.operands[0].strip()) is not None
    return relation.operands[-1] if is_named and relation.operands[-1] else text


def name_of(text: str) -> str:
    """Return the name before a value (`x` of `x = 5`, `f(x)` of `f(x) = 2x`), or an empty string."""
    operands = read_relation(text).operands
    return squeezed(operands[0]) if len(operands) == 2 and without_name(text) != text else ""


def with_one_name(text: str) -> list[str]:
    """Return `x = y = 4` as `x = 4` and `y = 4`, and any other text unchanged."""
    *names, value = read_relation(text).operands if is_equation(text) else (text,)
    is_chain = len(names) > 1 and all(_LETTER.fullmatch(name) for name in names)
    return [f"{name} = {value}" for name in names] if is_chain else [text]
