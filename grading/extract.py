"""Extract the answer from a text, with rules from the most to the least explicit.

The answer is the last match of the first rule that applies. All rules run in linear time over capped input. From
truncated text, only explicit answers are extracted, because the last number in such text is an intermediate result.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass

from grading.bounds import MAX_ANSWER_CHARACTERS
from grading.reading.notation import clean, squeezed, without_text_commands

MAX_TEXT_CHARACTERS = 50_000
"""Only this many characters at the end of a text are searched."""

_BOX_TOKEN = re.compile(r"\\(?:boxed|fbox)\s{0,3}\{|\\[\\{}]|[{}]")
_OPENED = re.compile(r"^[ \t]*<think>", re.MULTILINE)
"""Start of a chain of thought; a tag in the middle of a line is only a mention."""
_HASHES = re.compile(r"^[ \t]{0,8}####[ \t]{0,8}", re.MULTILINE)
_NO_HEADING = re.compile(r"[-+−]?[\d.$\\(\[]|\S{1,12}$")
"""Start of the text after `####` if that text is an answer and not a Markdown heading."""
_BARE_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,3}(\\?[^\s{}$\\]{1,40})")
_TAG = re.compile(r"(?i)<answer>\s{0,8}")
_FINAL = re.compile(r"(?i)final answer[*_]{0,3}\s{0,3}(?:is|:|=|[*_#]{0,3}\n)[*_:]{0,4}\s{0,3}")
_PHRASE = re.compile(
    r"(?i)(?:\b(?:correct |right )?(?:answer|option|choice)(?: to (?:the|this) (?:question|problem))?\s{1,3}(?:is|="
    r"|would be|should be|must be)|\banswers?[*_]{0,3}\s{0,3}:|答案(?:是|为|：|:))[*_:]{0,4}\s{0,3}"
)
_LETTER_LABEL = re.compile(r"(?i:answer|option|choice)(?i:\s{1,3}is|:)[*\s]{0,4}\(?([A-Z])\)?(?=[\s.,:*)]|$)")
_NAMES_LETTER = re.compile(
    r"(?:\\(?:text|math)\w*\{)?[\s(]{0,2}(?:(?i:option|choice|answer)\s)?[A-Za-z](?![A-Za-z]|\s?[=+^_*/])"
)
_FILLER = re.compile(
    r"(?i)(?:(?:therefore|thus|then|hence|simply|just|exactly|indeed|clearly|approximately|about|equal to|given by"
    r"|option|choice|the number|the value|the letter)[,:]? |: ?)+"
)
_SENTENCE_END = re.compile(r"\.(?=\s|$)|,? (?:because|since|which|so|as) |\*\*")
_AFTERTHOUGHT = re.compile(r"(?:, ?(?!and\b|or\b)(?=[a-z]{2,} )| \((?=[a-z]{2,} )| [—–](?= |$)).*|,? not .*", re.DOTALL)
"""Text after a number in a sentence: `72, in total`, `42 (see above)`, `42, not 41`."""
_BOUND = re.compile(
    r"(?i)\b(?:not|no|never|at (?:least|most)|(?:more|less|fewer)(?: \w+)? than|about|between|or|twice|double|half"
    r"|times|percent of|if|unless)\b|n't"
    r"|\d(?:[A-Za-z](?![A-Za-z])|\^|%?(?: ?[+*×·÷] ?| [-−] )[\w$\\(])|[A-Za-z)](?: ?[+*/^×·÷] ?|[-−]| [-−] )\d"
)
_NO_AFTERTHOUGHT = re.compile(r"(?i)\b(?:if|unless|when|or|respectively|mod|equality|even|odd)\b|[—–] ?-?[\d$\\]")
"""Text that changes the preceding number: `12, if n is even`, `7 (mod 12)`."""
_MATH = re.compile(
    r"\$\$?((?:[^$\\]|\\.){1,2000})\$|\\\(((?:(?!\\\)).){1,2000})\\\)|\\\[((?:(?!\\\]).){1,2000})\\\]"
    r"|(\\begin\{(align|equation|gather)\*?\}(?:(?!\\end\{).){1,2000}\\end\{(?:align|equation|gather)\*?\})",
    re.DOTALL,
)
_NEXT_FORMULA = re.compile(r"\s{0,3}(?:,|and|or|, and|, or)\s{0,3}(?=\$|\\[(\[])")
_LAST_NUMBER = re.compile(r"(?<![\w.,/^_])[-−]?\$?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+(?![\w.]))?%?")
_BOLD_LETTER = re.compile(r"\*\*\s?\(?([A-Z])\)?[.):]?\s?\*\*|\*\*\s?\(?([A-Z])[.):]\s[^*\n]{0,300}\*\*")
_PAREN_LETTER = re.compile(r"\(([A-Z])\)")
_LETTER_LINE = re.compile(r"^\s{0,8}\(?([A-Z])[.):]?\s{0,8}$", re.MULTILINE)

_BOLD = re.compile(r"\*\*([^*\n]{1,80})\*\*")
_PROSE = re.compile(
    r"(?i)\b(?:is|are|was|so|we|thus|therefore|get|gets|then|equals?|because|have|hence|since|know|need|find|let|this|that"
    r"|it|gives?|must|now|total|answer|would|can|will|he|she|they|you|his|her|their|your|has|needs?|arrives?|takes?|costs?)\b"
)
_LATEX_TEXT = re.compile(r"\\(?:text|mbox|mathrm|operatorname)\w{0,6}\s?\{[^{}]*\}|\\[A-Za-z]+")
MAX_WHOLE_CHARACTERS = 300
"""Maximum length of a reply that consists only of an answer."""

CHOICE_GUESSES = (("bold_letter", _BOLD_LETTER), ("letter_line", _LETTER_LINE), ("paren_letter", _PAREN_LETTER))


@dataclass(frozen=True, slots=True)
class Extraction:
    """An answer as it occurs in the text."""

    text: str
    rule: str
    """`boxed`, `answer_tag`, `hashes`, `final_answer`, `answer_is`, `whole` (the reply is only an answer), `last_bold`,
    `last_formula`, `last_number`; for choices also `bold_letter`, `letter_line`, `paren_letter`.
    """
    boxes: tuple[str, ...] = ()
    """All boxes of the text in order if the rule is `boxed`; parts of an answer may be in separate boxes."""


def final_part(text: str, thinks: bool) -> str | None:
    """Return the text after the chain of thought, or None if the chain never ends."""
    _, closed, rest = text.rpartition("</think>")
    rest = rest if closed else text
    if opened := _OPENED.search(rest):
        return rest[: opened.start()] if closed else None
    return None if thinks and not closed else rest


def extract(text: str, is_choice: bool, is_finished: bool) -> Extraction | None:
    """Return the answer in a text, or None. Answers in unfinished text are not guessed."""
    text = text[-MAX_TEXT_CHARACTERS:]
    boxes, unclosed = find_boxes(text)
    filled = tuple(box.strip()[: MAX_ANSWER_CHARACTERS + 1] for box in boxes if box.strip())
    if unclosed or (boxes and not boxes[-1].strip()):
        return None  # the box should contain the answer: any other number would be a guess
    if filled:
        later = text[text.rfind(r"\boxed") :]
        letter = _LETTER_LABEL.search(later) if is_choice and not _NAMES_LETTER.match(filled[-1]) else None
        return Extraction(letter.group(1), "answer_is") if letter else Extraction(filled[-1], "boxed", filled)
    if bare := _last(_BARE_BOX, text):
        return Extraction(bare.rstrip(".,;"), "boxed", (bare.rstrip(".,;"),))
    for rule, pattern in (("answer_tag", _TAG), ("hashes", _HASHES), ("final_answer", _FINAL), ("answer_is", _PHRASE)):
        candidate = _phrase(_rest_of_line(pattern, text).partition("</")[0], is_choice)
        if candidate and (rule != "hashes" or _NO_HEADING.match(candidate)):
            return Extraction(candidate[: MAX_ANSWER_CHARACTERS + 1], rule)
    return _guess(text, is_choice) if is_finished else None


def find_boxes(text: str) -> tuple[list[str], bool]:
    r"""Return the contents of all outermost balanced boxes, and whether the last box is never closed."""
    openings: list[int | None] = []
    spans: list[tuple[int, int]] = []
    for token in _BOX_TOKEN.finditer(text):
        word = token.group()
        if word == "{":
            openings.append(None)
        elif word == "}":
            start = openings.pop() if openings else None
            if start is not None:
                while spans and spans[-1][0] > start:
                    spans.pop()
                spans.append((start, token.start()))
        elif word.endswith("{") and len(word) > 2:
            openings.append(token.end())
    last_closed = spans[-1][1] if spans else -1
    unclosed = any(start is not None and start > last_closed for start in openings)
    return [text[start:end] for start, end in spans], unclosed


def _last(pattern: re.Pattern[str], text: str) -> str | None:
    *_, last = [None, *pattern.finditer(text)]
    return last and _first_group(last)


def _first_group(match: re.Match[str]) -> str | None:
    return next((group for group in match.groups() if group), None)


def _rest_of_line(pattern: re.Pattern[str], text: str) -> str:
    """Return the text after the last label, up to the end of the line or of a formula that starts on it."""
    *_, last = [None, *pattern.finditer(text)]
    if last is None:
        return ""
    rest = text[last.end() : last.end() + 2 * MAX_ANSWER_CHARACTERS].lstrip()
    formula = _MATH.search(rest)
    line_end = rest.find("\n")
    if formula and formula.start() < line_end < formula.end() and "\n\n" not in formula.group():
        is_display = formula.group().startswith(("$$", "\\"))
        line_end = formula.end() if is_display or formula.start() == 0 else line_end
    return rest if line_end < 0 else rest[:line_end]


def _phrase(line: str, is_choice: bool) -> str:
    """Reduce the rest of a line to the answer: its leading formulas, or the text up to the end of the sentence."""
    line = line.strip().lstrip("*_: ").strip()
    line = _FILLER.sub("", line, count=1) if _FILLER.match(line) else line
    formulas, position = [], 0
    while math := _MATH.match(line, position):
        formulas.append((_first_group(math) or "").strip())
        joint = _NEXT_FORMULA.match(line, math.end())
        position = joint.end() if joint else len(line)
    if formulas:
        return ", ".join(formulas)
    end = _SENTENCE_END.search(line, 1) if line else None
    if is_choice:
        return (line[: end.start()] if end else line).strip().strip("*_`\"' ")
    is_bold = bool(end) and "**" in line
    sentence = (line[: end.start()] if end else line).strip().strip("*_`\"' ")
    if re.match(r"[-$\\]?\d", sentence):
        after = _AFTERTHOUGHT.search(sentence)
        return sentence[: after.start()] if after and not _NO_AFTERTHOUGHT.search(after.group()) else sentence
    if (len(sentence.split()) > 2 and _PROSE.search(sentence)) or is_bold:
        numbers = _BOLD.findall(line) if is_bold else _LAST_NUMBER.findall(sentence)
        if len(numbers) == 1 and not _BOUND.search(sentence):
            return str(numbers[0]).strip()
    inside = _MATH.findall(sentence) if len(sentence.split()) > 3 and not sentence[:1].isdigit() else []
    return next(group for group in inside[0] if group).strip() if len(inside) == 1 else sentence


def _guess(text: str, is_choice: bool) -> Extraction | None:
    if is_choice:
        for rule, pattern in CHOICE_GUESSES:
            letter = _last(pattern, text)
            if letter:
                return Extraction(letter, rule)
        return Extraction(text.strip(), "whole") if _is_answer_only(text) else None
    if _is_answer_only(text):
        return Extraction(_whole(text.strip()), "whole")
    tail = text[-MAX_ANSWER_CHARACTERS:]
    guesses = [
        (match.start(), rule, (_first_group(match) or match.group()).strip())
        for rule, pattern in (("last_bold", _BOLD), ("last_formula", _MATH), ("last_number", _LAST_NUMBER))
        for match in list(pattern.finditer(tail))[-1:]
    ]
    guesses = [guess for guess in guesses if guess[1] != "last_bold" or _is_answer_only(guess[2])]
    return _outermost_last(guesses, tail) if guesses else None


def _outermost_last(guesses: list[tuple[int, str, str]], tail: str) -> Extraction:
    """Return the last guess (start, rule, answer), or the formula or bold text around it."""
    last_start, last_rule, last_answer = max(guesses)
    for start, rule, answer in sorted(guesses):
        if start <= last_start < start + len(answer) + 6 and answer in tail[start:]:
            return Extraction(answer, rule)
    return Extraction(last_answer, last_rule)


def _whole(line: str) -> str:
    """Remove the math delimiters from a reply that is only an answer."""
    line = line.strip("`").removesuffix(".").strip()
    formula = _MATH.fullmatch(line)
    if formula:
        return (_first_group(formula) or "").strip()
    return re.sub(r"\\[()\[\]](?!.*\\right)", " ", line) if re.match(r"\\[(\[]", line) else line


def _is_answer_only(text: str) -> bool:
    """Return whether a reply is one short line without a sentence."""
    line = text.strip()
    if not line or len(line) > MAX_WHOLE_CHARACTERS or "\n" in line or r"\boxed" in line:
        return False
    plain = _LATEX_TEXT.sub(" ", _MATH.sub(" ", line))
    if plain == line and len(plain.split()) <= 8 and not re.search(r"\d|\b(?:I|we)\b", plain):
        return True  # a few words, such as "There is no solution"
    if re.match(r"[A-Za-z]{2}", plain) and "=" in plain and len(re.findall(r"[A-Za-z]{3,}", plain)) > 2:
        return False  # a calculation within a sentence
    return not _PROSE.search(plain) or len(plain.split()) <= 1


_LETTER = re.compile(r"(?:(?i:option|choice|answer)\s{0,3}:?\s{0,3})?[\[(]?\s?([A-Za-z])\s?[\])]?\s?[.:,]?")
_LETTER_AND_TEXT = re.compile(
    r"(?:(?i:option|choice|answer)\s{0,3}:?\s{0,3})?(?:\(([A-Za-z])\)|([A-Za-z])[.):,])\s*(\S.*)", re.DOTALL
)
_LETTER_IS_TEXT = re.compile(
    r"([A-Z])(?: is (?:the )?(?:correct|right|answer|best)\b.*| \(.*|, not\b.*)|[^\n]*\boption \(?([A-Z])\)?[.]?"
    r"|(?:(?i:option|choice)\s{1,3})\(?([A-Z])\)?\b.*|([A-Z])\s+[-–—=]\s+\S.*",
    re.DOTALL,
)


def letters(choices: tuple[str, ...]) -> str:
    """Return the letters of the options, or the whole alphabet if the options are unknown."""
    return string.ascii_uppercase[: len(choices)] if choices else string.ascii_uppercase


def chosen_letter(answer: str, choices: tuple[str, ...]) -> str | None:
    """Return the letter of the option in an answer, or None if there is none or more than one.

    An answer may be a letter, a letter with text, or the text of exactly one option. If letter and text disagree, the
    letter counts, because the prompt asks for it.
    """
    plain = without_text_commands(answer.strip().strip("$*` ")).strip("*` ")
    plain = plain.removeprefix(r"\(").removesuffix(r"\)").strip().rstrip("\\ ")
    match = _LETTER.fullmatch(plain) or _LETTER_AND_TEXT.fullmatch(plain) or _LETTER_IS_TEXT.fullmatch(plain)
    if match:
        letter = next((group for group in match.groups() if group), "").upper()
        if letter in letters(choices):
            return letter
    text = _comparable(plain)
    matching = [
        letter for letter, choice in zip(letters(choices), choices, strict=False) if _comparable(choice) == text
    ]
    return matching[0] if len(matching) == 1 and text else None


def _comparable(text: str) -> str:
    return squeezed(without_text_commands(clean(text))).casefold()
