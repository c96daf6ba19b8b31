"""Checks that tokenizers load, that their chat templates work, and that each option of a verdict is a single token."""

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
from harness.weights.templates import BadTemplate, Conventions

_PROGRAM = "import sys; from harness.checks.tokenizers import answer; answer(*sys.argv[1:])"


def check_tokenizers(folders: Mapping[Role, Path], question: Question) -> Iterator[Check]:
    """Check the tokenizer of each model, and whether the two share their vocabulary."""
    if not folders:
        return
    params = dict(question.params or {})
    paths = {role: str(path) for role, path in folders.items()}
    asked = {role: [question.templates.get(role), question.thinking_tags.get(role)] for role in folders}
    request = json.dumps([paths, question.method, params, question.prompts, asked])
    result = probe(_PROGRAM, request, seconds=question.probe_seconds)
    if result.timed_out:
        yield warning("tokenizer", f"not loaded within {question.probe_seconds:.0f} s: {SLOW}")
        return
    if result.problem is not None:
        yield failure("tokenizer", f"the tokenizers cannot be checked: {result.problem}")
        return
    for role in folders:
        yield _check(role, result.answer[role], has_variables=bool(question.templates.get(role)))
    pair = [role for role in folders if role != "reward"]
    fingerprints = {result.answer[role].get("fingerprint") for role in pair}
    if len(pair) == 2 and None not in fingerprints:
        is_shared = len(fingerprints) == 1
        shared, different = "draft and target share one", "draft and target have different ones: steps pass as text"
        yield ok("vocabularies", shared if is_shared else different)


def _check(role: Role, answer: Mapping[str, Any], *, has_variables: bool) -> Check:
    if "problem" in answer:
        own = f"change --{role}-template, " if has_variables else ""
        remedy = f"{own}use another model, or download its tokenizer again"
        return failure(f"{role} tokenizer", f"{answer['problem']}: {remedy}")
    kind = "reasoning model" if answer["thinks"] else "plain model"
    if tags := answer["unopened_tags"]:
        kind += f", or it thinks unasked: --{role}-thinking-tags '{','.join(tags)}'"
    text = f"{kind}; {answer['labels']}"
    if not answer["has_template"]:
        remedy = "add its chat_template.jinja if it was trained with another format"
        return warning(f"{role} tokenizer", f"{text}; no chat template, so it reads a plain dialogue: {remedy}")
    return ok(f"{role} tokenizer", text)


def answer(request: str) -> None:
    """Try the tokenizers in this process and print the result of each as JSON."""
    folders, method, params, prompts, asked = json.loads(request)
    tried = {
        role: _try_tokenizer(role, folder, method, params, prompts, asked[role]) for role, folder in folders.items()
    }
    print(json.dumps(tried))


def _try_tokenizer(
    role: Role, folder: str, method: str | None, params: dict[str, Any], stored_prompts: str | None, asked: list[Any]
) -> dict[str, Any]:
    # The library raises bare Exceptions; a future carries them without a blind except.
    with ThreadPoolExecutor(1) as pool:
        trial = pool.submit(_properties, role, folder, method, params, stored_prompts, asked)
    problem = trial.exception()
    if problem is None:
        return trial.result()
    kind = "" if isinstance(problem, BadTemplate) else f"{type(problem).__name__}: "
    return {"problem": f"{kind}{problem}"[:600]}


def _properties(
    role: Role, folder: str, method: str | None, params: dict[str, Any], stored_prompts: str | None, asked: list[Any]
) -> dict[str, Any]:
    from harness import prompt_file
    from harness.weights.prompt_trial import check_prompts
    from harness.weights.tokenizer import HFTokenizer

    tokenizer = HFTokenizer(folder, None, Conventions.of(*asked))
    options = check_prompts(tokenizer, role, method, params, prompt_file.of_stored(stored_prompts))
    labels = f"one token for each of {' '.join(options)}" if options else "it gives no verdicts"
    return {
        "fingerprint": tokenizer.fingerprint,
        "thinks": tokenizer.thinks,
        "unopened_tags": tokenizer.unopened_tags,
        "labels": labels,
        "has_template": tokenizer.has_chat_template,
    }
