r"""Answers in words (names, `even`, `no solution`, whole phrases), compared as text, not as products of letters."""

from __future__ import annotations

import re
from functools import lru_cache

from grading.reading import Compare, Pair
from grading.reading.formula import names
from grading.reading.notation import read_relation, split_top, squeezed, without_text_commands
from grading.reading.quantities import without_unit

_PHRASE = re.compile(r"[A-Za-z][A-Za-z'\-]*(?:[ ,]+[A-Za-z'\-]+)*")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{4,}|(?:max|min) +at ")
_TEXT = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|mbox|hbox)\s?\{([^{}]*)\}")
_FORMULA_WORDS = names(
    "sqrt cbrt frac sinh cosh tanh arcsin arccos arctan arccot asin acos atan arcsinh arccosh arctanh sech "
    "csch coth asinh acosh atanh matrix pmatrix bmatrix vmatrix array cases infty theta alpha beta gamma "
    "delta lambda omega sigma infinity floor ceil log binom circ percent sin cos tan cis exp inf"
)
_ENVIRONMENT = re.compile(
    r"\\(?:begin|end)\{[a-z*]*\}(?:\{[a-z| ]*\})?|\\(?:operatorname|math[a-z]{2,4})\*?\s?\{[A-Za-z]*\}"
)
_SHORT_WORDS = names("no on or in is it so to up at as by if of do go he we us an am my ok id")
_PRODUCTS = (frozenset("abcd"), frozenset("aecd"), frozenset("abxy"), frozenset("axyz"), frozenset("abck"))
_FILLERS = names(
    "the a an is are it its of that this there answer final function value be will must to in one only which "
    "has have for so therefore thus we by set and"
)
_SYNONYMS = {
    "none": r"no (?:real |valid |such |possible |integer )?(?:solution|root|value|answer|number|point)s?"
    r"(?: exists?)?"
    r"|none|null set|empty set|empty|emptyset|varnothing|oslash|(?:no|not) possible|impossible"
    r"|(?:ha(?:s|ve) )?no .{0,20}solutions?",
    "dne": r"dne|(?:limit )?(?:do|does) not exist|(?:do|does)n'?t exist|not exist|non ?existent|undefined|not defined",
    "infinity": r"infinity|infty|infinite",
    "many": r"infinitely many(?: solutions)?|infinite(?:ly many)? solutions",
    "reals": r"(?:all )?(?:the )?real numbers|all reals?(?: numbers)?(?: x)?|(?:any|every) real number|reals|mathbb ?r",
    "yes": r"yes|true|correct",
    "no": r"no|false|incorrect",
}
_CLASSES = tuple((name, re.compile(pattern)) for name, pattern in _SYNONYMS.items())
_NUMBERS = re.findall(
    r"\w+",
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety",
)
_DIGITS = {word: value if value < 20 else 10 * (value - 18) for value, word in enumerate(_NUMBERS)}
_DIGITS |= {f"{ten} {one}": _DIGITS[ten] + _DIGITS[one] for ten in _NUMBERS[20:] for one in _NUMBERS[1:10]}
_TWO_DIGITS = re.compile(rf"(?i)\b({'|'.join(_NUMBERS[20:])}) ({'|'.join(_NUMBERS[1:10])})\b")
_WORDS = re.compile(
    r"\\(?:max|min)(?![a-zA-Z])|(?<![\\A-Za-z])[A-Za-z]{2,}(?:'[a-z]+)?(?:-[A-Za-z]+)*|[A-Za-z]-[A-Za-z]{3,}"
)
"""Matches texts that may be words: with an apostrophe, with hyphens (`x-axis`), or the names of two functions."""
_LEAD = re.compile(
    r"(?i)^(?:therefore,? |so,? |thus,? |hence,? )?(?:the )?(?:final |correct )?(?:answer|result|solution|value)"
    r"(?: is| =|:)\s*:?\s*"
)


_CONDITION = re.compile(
    r"(?:, ?| |(?<=[}\)]))(?:\(\s?)?"
    r"(?:\\text\{ ?(?:\(|, ?)?(?:for|where|with|if|when)(?: all| any| every)?(?: integers?)? ?\}|(?:for|where|with) )?"
    r"\s?((?:\\[a-z]+|[A-Za-z])(?:_\{?\w\}?)?)"
    r"\s?(?:\\(?:in|ne|neq|ge|geq|geqslant|le|leq|leqslant)(?![a-z])|[<>])"
    r"\s?(?:\\math[a-z]+\s?\{?\s?[RZNQC]\s?\}?(?:\^\+)?|-?\d+)\s?\)?$"
    r"|,? ?\\text\{,? ?where \}?\s?([A-Za-z])\s?(?:\\text\{)? ?is an? (?:arbitrary |real )*constant\}?$"
)
_NO_VALUE = re.compile(r"[<>]|\\(?:in|ne|neq|ge|geq|le|leq|cup|mid)(?![a-z])|\\\{")
_MODULUS = re.compile(r"\s?\(?\s?\\(?:[bp]?mod)(?![a-z])\s?\{?\s?\d+\s?\}?\s?\)?$")


def without_condition(text: str) -> str:
    r"""Remove a condition on a letter of the preceding value (`2k\pi, k \in \mathbb{Z}`), or a residue's modulus."""
    if match := _CONDITION.search(text):
        head, name = text[: match.start()].rstrip(" ,"), match.group(1) or match.group(2)
        is_used = re.search(rf"(?<![A-Za-z\\]){re.escape(name)}(?![A-Za-z])", head)
        return head if is_used and not _NO_VALUE.search(head) else text
    if "mod" in text and "equiv" not in text:
        return _MODULUS.sub("", text) or text
    return text


def without_lead(text: str) -> str:
    r"""Remove a leading `The answer is`, with or without `\text{…}`."""
    if not text[:1].isalpha() and not text.startswith("\\text"):
        return text
    plain = re.sub(r"^\\text\{([^{}]*)\}", r"\1 ", text)
    return _LEAD.sub("", plain) if _LEAD.match(plain) else text


@lru_cache(maxsize=4096)
def is_text(text: str) -> bool:
    """Return whether an answer is prose or a name, not a formula."""
    has_text = bool(_TEXT.search(text))
    plain = without_text_commands(_ENVIRONMENT.sub(" ", text)).strip("\"'` ")
    if re.fullmatch(r"\(?[A-Za-z]\)?", plain):
        return has_text or plain.startswith("(")
    if _PHRASE.fullmatch(plain) and (has_text or any(_is_word(word) for word in re.split("[ ,]+", plain))):
        return True
    body = without_text_commands(_ENVIRONMENT.sub(" ", without_unit(text)))
    return any(word.lower() not in _FORMULA_WORDS and not _is_joined(word) for word in _WORD.findall(body))


def _is_joined(word: str) -> bool:
    """Return whether letters are a function with its argument (`sqrtx`) or a product without vowels."""
    return bool(re.match(r"(?:arc)?(?:sin|cos|tan|cot|sec|csc|sqrt|log|exp)", word)) or not re.search(
        "[aeiou]", word.lower()
    )


def _is_word(run: str) -> bool:
    """Return whether a text is a word. With hyphens, one part must have at least three letters (unlike `a-b`)."""
    parts = run.split("-")
    return any(_looks_like_a_word(part.replace("'", "")) for part in parts if len(parts) == 1 or len(part) > 2)


def _looks_like_a_word(text: str) -> bool:
    """Return whether letters form a word, as in `no` and `even`, and not a product, as in `xy` and `abc`."""
    lower = text.lower()
    if len(lower) <= 2:
        return lower in _SHORT_WORDS
    if lower in _FORMULA_WORDS or (text.isupper() and len(text) == 3):
        return False
    letters = set(lower)
    if len(lower) == 3 and any(letters <= product for product in _PRODUCTS):
        return False
    return bool(re.search("[aeiouy]", lower)) and bool(re.search("[b-df-hj-np-tv-xz]", lower))


def words_of(text: str) -> str:
    """Return the words, numbers and signs of a prose answer in a normalized spelling."""
    plain = without_text_commands(without_text_commands(text)).casefold().replace("\\%", "%")
    plain = re.sub(r"(?<=[a-z])'(?=[a-z])", "", plain)
    return re.sub(r"\s+", " ", re.sub(r"[^a-z0-9.+\-*/^=<>%]+|(?<![0-9])\.|\.(?![0-9])", " ", plain)).strip()


def meaning(text: str) -> str | None:
    """Return the meaning of a phrase with many wordings (`none`, `dne`, `reals`, `yes` …), or None."""
    stripped = re.sub(r"(?<=[a-z])-(?=[a-z])", " ", words_of(text))
    if re.sub(r"\s", "", text) in (r"\{\}", "∅"):
        return "none"
    words = [word for word in stripped.split() if word not in _FILLERS - {"one", "set"}]
    for candidate in (stripped, " ".join(words)):
        for name, pattern in _CLASSES:
            if pattern.fullmatch(candidate):
                return name
    return None


def is_same_words(pair: Pair, compare: Compare) -> bool:
    """Return whether two prose answers have equal words, ignoring case, punctuation and fillers, and equal formulas."""
    gold_meaning, prediction_meaning = meaning(pair.gold), meaning(pair.prediction)
    if gold_meaning is not None or prediction_meaning is not None:
        is_yes_or_no = gold_meaning in ("yes", "no")
        return gold_meaning == prediction_meaning or (
            is_yes_or_no and words_of(pair.prediction).partition(" ")[0] == gold_meaning
        )
    golds, predictions = _pieces(pair.gold), _pieces(pair.prediction)
    if not golds or [is_word for is_word, _ in golds] != [is_word for is_word, _ in predictions]:
        return False
    return all(
        gold == prediction if is_word else _is_same_formula(pair.with_texts(gold, prediction), pair, compare)
        for (is_word, gold), (_, prediction) in zip(golds, predictions, strict=True)
    )


def _is_same_formula(part: Pair, whole: Pair, compare: Compare) -> bool:
    """Compare two formulas, or two chains of relations operand by operand."""
    if squeezed(part.gold) == squeezed(part.prediction):
        return True
    gold, prediction = (read_relation(text) for text in part.texts)
    if gold.signs != prediction.signs:
        return False
    if gold.signs:
        pairs = zip(gold.operands, prediction.operands, strict=True)
        return all(_is_same_formula(part.with_texts(*texts), whole, compare) for texts in pairs)
    if part == whole or "=" in part.gold + part.prediction or any(is_text(text) for text in part.texts):
        return False
    return bool(compare(part).is_equal)


def _pieces(text: str) -> list[tuple[bool, str]]:
    """Split prose into words (True) and formulas (False), in order and without fillers."""
    plain = without_text_commands(without_text_commands(text)).replace("\\%", "%")
    plain = _TWO_DIGITS.sub(r"\1-\2", plain)
    pieces, start = [], 0
    for match in _WORDS.finditer(plain):
        run = match.group().lower()
        is_alone = not plain[: match.start()].endswith(("^", "_", "{")) and (
            len(run) > 2 or re.match(r"[\s,;.:)]|$", plain[match.end() :]) is not None
        )
        if is_alone and (run[0] == "\\" or _is_word(run)):
            pieces += _formulas(plain[start : match.start()])
            whole = _DIGITS.get(run.replace("-", " "))
            parts = [str(whole)] if whole is not None else run.strip("\\").replace("'", "").split("-")
            digits = [str(_DIGITS.get(part, part)) for part in parts]
            pieces += [(len(part) > 1 and part.isalpha(), _singular(part)) for part in digits]
            start = match.end()
    pieces += _formulas(plain[start:])
    return [piece for piece in pieces if piece[1].lower() not in _FILLERS] if len(pieces) > 1 else pieces


def _formulas(text: str) -> list[tuple[bool, str]]:
    parts = (
        re.sub(r"(?<=[\w}]) ?-$", "", part.strip()).strip(" ,;:.'\"")
        for part in split_top(text, r"[,;](?!\d{3}(?!\d))")
    )
    return [(False, part) for part in parts if part]


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 4 and word.endswith("s") else word


def digits_of_word(text: str) -> str | None:
    """Return `7` for the word "seven" (up to ninety-nine), with or without a text command; otherwise None."""
    value = _DIGITS.get(words_of(text).replace("-", " "))
    return None if value is None else str(value)
