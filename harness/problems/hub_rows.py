"""Converters from the columns of the hub to the records that `harness.problems.benchmarks` describes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]
Record = dict[str, Any]

# MATH solutions with several boxes usually repeat one answer or box an intermediate step. In eight all boxes together
# are the answer and in four any one is right. Named by their texts, as copies differ in row order.
_ALL_BOXES = frozenset(
    {
        "847b92c6a1d55221",
        "0240db7ffa8c3cd8",
        "c9b61debeac1e634",
        "681d4a2604471ef5",
        "7e91dcaf7b7d0512",
        "e6b9ba681655042e",
        "e55543f8451c83a7",
        "6a16dc51efa7d2d7",
    }
)
_ANY_BOX = frozenset({"e42e4259255b85bb", "a7cf9617c20c7514", "29421c88ce2a48cf", "9fe4fe4f46e6a776"})


def gsm8k(row: Row) -> Record:
    """Convert a row; the answer follows `####`, and thousands separators are removed."""
    _, mark, answer = row["answer"].rpartition("####")
    if not mark:
        raise ValueError("no #### in the solution")
    return {"problem": row["question"], "answer": answer.strip().replace(",", "")}


def math(row: Row) -> Record:
    """Convert a row; the answer is the last `\\boxed` of the solution, except in the twelve solutions named above."""
    boxed = boxes(row["solution"])
    if not boxed:
        raise ValueError("no \\boxed in the solution")
    record = {
        "problem": row["problem"],
        "answer": boxed[-1],
        "level": str(row["level"]).removeprefix("Level "),
        "subject": row["type"],
    }
    text_hash = hashlib.sha256(" ".join(row["problem"].split()).encode()).hexdigest()[:16]
    if text_hash in _ALL_BOXES:
        record |= {"answer": ",".join(boxed), "answers": boxed}
    elif text_hash in _ANY_BOX:
        record["alternatives"] = boxed
    return record


def math500(row: Row) -> Record:
    """Convert a row, which has a column for each field."""
    return {field: row[field] for field in ("problem", "answer", "level", "subject")}


def gaokao(row: Row) -> Record:
    """Convert a row and repair known defects: answers inside the problem, and `$145$solution:`."""
    problem, answer = row["question"], str(row["answer"] or "").strip().removesuffix("solution:")
    leak = re.search(r"\s*\banswers?:\s*(\S.*?)\s*$", problem, re.IGNORECASE)
    if not answer and leak:
        problem, answer = problem[: leak.start()], leak[1]
    return {"problem": problem, "answer": answer}


def college_math(row: Row) -> Record:
    """Convert a row; answers are kept unchanged, with their dollar signs."""
    return {"problem": row["question"], "answer": row["answer"], "subject": row.get("data_topic")}


def olympiadbench(row: Row) -> Record:
    """Convert a row; `final_answer` is a list of one text, in which several answers are separated by commas."""
    answer = ",".join(row["final_answer"])
    record = {
        "problem": f"{row['context']}\n{row['question']}" if row.get("context") else row["question"],
        "answer": answer,
        "subject": row.get("subfield"),
        "unit": row.get("unit"),
        "tolerance": row.get("error") or None,
    }
    parts = answer_parts(answer)
    if row.get("is_multiple_answer") and len(parts) > 1:
        record["answers"] = parts
    return record


def integer_answer(row: Row) -> Record:
    """Convert a row of AIME or AMC; 027, 27.0 and 27 are the same answer."""
    text = str(row["answer"]).strip().strip("$").removesuffix("^\\circ")
    if not float(text).is_integer():
        raise ValueError(f"the answer {text!r} is not an integer")
    return {"problem": row["problem"] if "problem" in row else row["question"], "answer": str(int(float(text)))}


def gpqa(row: Row) -> Record:
    """Convert a row with the right option first, as in the source; the loader shuffles the options."""
    columns = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
    return {
        "problem": row["Question"].strip(),
        "choices": [str(row[column]).strip() for column in columns],
        "answer": "A",
        "subject": row.get("High-level domain"),
    }


def boxes(text: str) -> list[str]:
    """Return the contents of all `\\boxed{…}` and `\\fbox{…}`, braces matched; of `\\boxed 2`, the text up to `$`."""
    contents = []
    for match in re.finditer(r"\\(?:boxed|fbox)\s*(\{)?", text):
        rest = text[match.end() :]
        if not match[1]:
            contents.append(re.split(r"[$\n]", rest, maxsplit=1)[0].strip())
            continue
        depth = 1
        for place, character in enumerate(rest):
            depth += (character == "{") - (character == "}")
            if depth == 0:
                contents.append(rest[:place].strip())
                break
    return contents


def answer_parts(answer: str) -> list[str]:
    """Split a text of several answers at commas outside brackets, and remove dollar signs."""
    parts, depth = [""], 0
    for character in answer:
        depth = max(0, depth + (character in "([{") - (character in ")]}"))
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.replace("$", "").strip() for part in parts]
