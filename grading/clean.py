"""Light cleaning of answers: notation only, never meaning.

Everything here is string work in linear time over text whose length the caller has bounded.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

SYMBOLS = {
    "−": "-", "–": "-", "—": "-", "×": r"\times ", "·": r"\cdot ", "÷": "/", "π": r"\pi ", "∞": r"\infty ",
    "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "±": r"\pm ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "°": r"^\circ ", "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
    "⅔": r"\frac{2}{3}", "，": ",", "（": "(", "）": ")", "％": "%", "＝": "=", "．": ".", "：": ":",
}  # fmt: skip
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")
_UNICODE_ROOT = re.compile(r"√\s?(?:\(([^()]{1,200})\)|(\d+|[a-z]))")
_PLAIN_ROOT = re.compile(r"(?<![\\a-zA-Z])sqrt\s?\(([^()]{1,200})\)")
_PLAIN_PI = re.compile(r"(?<![\\a-zA-Z])pi(?![a-zA-Z])")
_SPACING = re.compile(r"(?<!\\)\\(?:! ?|[,;:> ])|\\q?quad(?![a-zA-Z])|~")
_SIZING = re.compile(r"\\(?:left|right|[bB]igg?[lr]?)(?![a-zA-Z])")
_FRACTION = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
_PLAIN_FENCE = re.compile(r"(?<!\\)\\[()]")
_TEXT_COMMAND = re.compile(r"\\(?:text(?:bf|it|rm|normal)?|mbox|mathrm|mathbf|operatorname)\s?\{([^{}]*)\}")
_THOUSANDS = re.compile(r"\d,\d{3}(?!\d)")
_MEMBER = re.compile(r"^[a-zA-Z]\s*\\in(?![a-zA-Z])\s*")


def clean(answer: str) -> str:
    """Return the answer with one notation for one thing: no dollar signs, spacing, sizing or final period."""
    text = _ascii_maths(answer)
    text = _FRACTION.sub(r"\\frac", _SIZING.sub("", text.replace("\\\\[", "\\\\ [")))
    text = text.replace(r"\$", "").replace("$", "").replace(r"\%", "%")
    text = _SPACING.sub(lambda m: "" if m.group().startswith((r"\!", r"\,")) else " ", text)
    text = _PLAIN_FENCE.sub("", text)
    if text.startswith(r"\[") and text.endswith(r"\]"):
        text = text[2:-2]
    text = text.replace("**", "^") if re.search(r"[\w)]\*\*[\w(]", text) else text.replace("**", "")
    text = re.sub(r"\\displaystyle(?![a-zA-Z])|(?<!\\)\\(?=\s|$)", "", text)
    text = _PLAIN_PI.sub(r"\\pi ", _PLAIN_ROOT.sub(r"\\sqrt{\1}", text))
    text = text.replace(r"^{\circ}", r"^\circ")
    text = re.sub(r"\s+", " ", text).strip().rstrip(".,;: ").strip()
    return _MEMBER.sub("", text)


def _ascii_maths(answer: str) -> str:
    """Replace typographic mathematics by its LaTeX, other scripts' digits by ASCII ones, and drop invisible marks."""
    if answer.isascii():
        return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", " ", answer)
    answer = _SUPERSCRIPT_RUN.sub(lambda m: "^{" + m.group().translate(SUPERSCRIPTS) + "}", answer)
    answer = _UNICODE_ROOT.sub(lambda m: r"\sqrt{" + (m.group(1) or m.group(2)) + "}", answer)
    return "".join(_plain_character(character) for character in answer)


def _plain_character(character: str) -> str:
    if character in SYMBOLS:
        return SYMBOLS[character]
    category = unicodedata.category(character)
    if category == "Nd":
        return str(unicodedata.digit(character))
    if category in {"Cf", "Cs", "Co", "Cn"}:
        return ""
    return " " if category in {"Cc", "Zs", "Zl", "Zp"} else character


def squeezed(text: str) -> str:
    """Return the text without white space, for comparison as a string; a lone `{5}` group loses its braces."""
    text = re.sub(r"\s+", "", text)
    return re.sub(r"([\^_])\{(\w)\}", r"\1\2", text)


def without_text_commands(text: str) -> str:
    r"""Replace `\text{…}` and its like by their contents."""
    return _TEXT_COMMAND.sub(r" \1 ", text).strip()


def depth_at_each(text: str) -> Iterator[tuple[str, int]]:
    """Yield every character with the bracket depth around it; an unmatched closing bracket does not go below zero."""
    depth = 0
    for character in text:
        if character in ")]}":
            depth = max(0, depth - 1)
        yield character, depth
        if character in "([{":
            depth += 1


def split_list(text: str) -> list[str]:
    r"""Split a list at its top-level commas, semicolons and the words «and» and «or»; an outer `\{…\}` is opened.

    Where some comma is followed by a space, one inside a number such as `1,234` does not separate.
    """
    inner = re.fullmatch(r"\\\{(.*)\\\}", text, re.DOTALL)
    text = inner.group(1) if inner else text
    text = re.sub(r"\\(?:text|mbox|textrm)\s?\{\s*,?\s*(?:and|or)\s*\}|(?<=\s)(?:and|or)(?=\s)", " ; ", text)
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


def outer_brackets(text: str) -> str | None:
    r"""Return `()`, `[]`, `[)`, `(]` or `{}` where one pair encloses a whole list with a comma, else None."""
    body = text.replace(r"\{", "{").replace(r"\}", "}").strip()
    if len(body) < 3 or body[0] not in "([{" or body[-1] not in ")]}" or "," not in body:
        return None
    depths = [depth for _, depth in depth_at_each(body)]
    return body[0] + body[-1] if min(depths[1:-1]) > 0 else None
