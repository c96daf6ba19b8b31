"""Tokenizers load, their chat templates work, and one token tells the options of a verdict apart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness.checks.check import Check, Question, failure, ok, warning
from harness.checks.packages import SLOW
from harness.checks.probe import probe
from harness.engine import Role

_PROGRAM = "import sys; from harness.checks.tokenizers import answer; answer(*sys.argv[1:])"


def check_tokenizers(folders: Mapping[Role, Path], question: Question) -> Iterator[Check]:
    """One line per model, and one on whether the two share their vocabulary."""
    if not folders:
        return
    params = dict(question.params or {})
    asked = json.dumps([{role: str(path) for role, path in folders.items()}, question.method, params])
    found = probe(_PROGRAM, asked, seconds=question.probe_seconds)
    if found.timed_out:
        yield warning("tokenizer", f"not loaded within {question.probe_seconds:.0f} s: {SLOW}")
        return
    if found.problem is not None:
        yield failure("tokenizer", f"the tokenizers cannot be tried: {found.problem}")
        return
    for role in folders:
        yield _check(role, found.answer[role])
    prints = {found.answer[role].get("fingerprint") for role in folders}
    if len(folders) == 2 and None not in prints:
        yield ok(
            "vocabularies",
            "draft and target share theirs"
            if len(prints) == 1
            else "draft and target have different ones: steps go from one to the other as text",
        )


def _check(role: Role, answer: Mapping[str, Any]) -> Check:
    if "problem" in answer:
        return failure(f"{role} tokenizer", f"{answer['problem']}: take another model, or fetch its tokenizer again")
    kind = "reasoning model" if answer["thinks"] else "plain model"
    return ok(f"{role} tokenizer", f"{kind}; {answer['labels']}")


def answer(asked: str) -> None:
    """Try the tokenizers in this process and print what became of each as JSON."""
    folders, method, params = json.loads(asked)
    print(json.dumps({role: _tried(role, folder, method, params) for role, folder in folders.items()}))


def _tried(role: str, folder: str, method: str | None, params: dict[str, Any]) -> dict[str, Any]:
    # tokenizers raises its errors as bare Exception, which a future hands over without a blind except
    with ThreadPoolExecutor(1) as pool:
        trial = pool.submit(_loaded, role, folder, method, params)
    problem = trial.exception()
    return {"problem": f"{type(problem).__name__}: {problem}"[:300]} if problem else trial.result()


def _loaded(role: str, folder: str, method: str | None, params: dict[str, Any]) -> dict[str, Any]:
    from harness import prompts
    from harness.problem import Problem
    from harness.tokenizer import HFTokenizer

    tokenizer = HFTokenizer(folder)
    prompts.opening(tokenizer, Problem("demo/0", "demo", "1 + 1?", "2"))
    labels = _verdict(tokenizer, method, params) if role == "target" else "no verdict is asked of it"
    return {"fingerprint": tokenizer.fingerprint, "thinks": tokenizer.thinks, "labels": labels}


def _verdict(tokenizer: Any, method: str | None, params: dict[str, Any]) -> str:
    """Ask for the verdicts of a method, or of every method; raises ValueError where one token cannot tell."""
    from harness import prompts
    from harness.problem import Problem

    candidates = [str(i) for i in range(int(params.get("drafts", 5)))]
    asked = []
    if method in {None, "specreason"}:
        asked.append(prompts.score_question(tokenizer))
    if method in {None, "speccot"}:
        asked.append(prompts.step_choice_question(tokenizer, candidates))
    if method in {None, "scot"}:
        problem = Problem("demo/0", "demo", "1 + 1?", "2")
        reject = bool(params.get("error_correction", True))
        asked.append(prompts.chain_choice_question(tokenizer, problem, candidates, may_reject=reject))
    options = sorted({label for question in asked for label in question.labels})
    return f"one token for each of {' '.join(options)}" if options else "no verdict is asked of it"
