"""The prompt that is sent is the one that the chat template means: the bundled tokenizer under other templates."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness import prompts
from harness.engines.served import probe
from harness.problems.problem import Problem
from harness.prompt_file import BUILT_IN, Prompts
from harness.weights import models
from harness.weights.templates import BadTemplate, Conventions
from harness.weights.tokenizer import HFTokenizer
from tests.harness.weights.chat_templates import (
    DATE,
    GEMMA2,
    GRANITE,
    LLAMA31,
    LLAMA32,
    MISTRAL,
    PLAIN,
    REFUSED,
    REFUSED_TO_FOLLOW,
    SENT,
    SMOLLM3,
    V31,
    Case,
)

_PROBLEM = Problem("own/1", "own", "Q", "2")


def _tokenizer(folder: Path, case: Case, date: str = DATE) -> HFTokenizer:
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copy(Path(models.resolve("demo-target").path_or_hub_id) / name, folder)
    (folder / "chat_template.jinja").write_text(case.template)
    return HFTokenizer(str(folder), None, Conventions.of(case.variables, case.tags, date))


@pytest.mark.parametrize("case", SENT, ids=lambda case: case.name)
def test_the_prompt_that_is_sent_is_the_one_that_the_template_means(case: Case, tmp_path: Path) -> None:
    tokenizer = _tokenizer(tmp_path, case)
    assert tokenizer.thinks == case.thinks
    assert tokenizer.native(tokenizer.open_reply("Q")) == case.opening
    assert tokenizer.native(tokenizer.ask_again("Q")) == case.following
    sent = tokenizer.encode_template(tokenizer.open_reply("Q"))
    assert tokenizer.native(tokenizer.decode(sent)) == case.opening
    ids, recorded = prompts.opening(tokenizer, _PROBLEM)
    assert tokenizer.decode(ids) == recorded


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_a_template_that_means_something_else_is_refused_in_one_line(case: Case, tmp_path: Path) -> None:
    tokenizer = _tokenizer(tmp_path, case)
    with pytest.raises(BadTemplate) as refused:
        tokenizer.open_reply("Q")
    assert case.refusal in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "changed",
    [
        "m.content[:200]",
        "m.content | truncate(300)",
        "m.content | replace('{', '(')",
        "m.content | replace('$', '')",
        "m.content | replace('\n\n\n', '\n')",
        "m.content | wordwrap(200)",
        "m.content | replace('\u00a0', ' ')",
        "m.content.encode('ascii', 'ignore').decode()",
        "('[long]' if m.content | length > 120 else '') ~ m.content",
    ],
)
def test_a_template_that_changes_what_problems_have_is_refused(changed: str, tmp_path: Path) -> None:
    tokenizer = _tokenizer(tmp_path, Case("", PLAIN.replace("m.content", changed, 1)))
    with pytest.raises(BadTemplate, match="changes more than the question"):
        tokenizer.open_reply("Q")


@pytest.mark.parametrize(("template", "sent"), [(GEMMA2, "Q\n 1"), (PLAIN, " \nQ\n 1\n")])
def test_white_space_around_a_question_is_sent_as_the_template_sends_it(
    template: str, sent: str, tmp_path: Path
) -> None:
    tokenizer = _tokenizer(tmp_path, Case("", template))
    wording = Prompts.model_validate(
        BUILT_IN.model_dump()
        | {
            "instruction": {
                kind: {"math": "{problem}", "choice": "{problem} {options}"} for kind in ("thinking", "plain")
            }
        }
    )
    ids, text = prompts.opening(tokenizer, Problem("own/1", "own", " \nQ\n 1\n", "2"), wording)
    assert text == tokenizer.open_reply("Q").replace("Q", sent)
    assert tokenizer.decode(ids) == text
    assert tokenizer.open_reply(" \nQ\n 1\n") == text


@pytest.mark.parametrize("case", REFUSED_TO_FOLLOW, ids=lambda case: case.name)
def test_a_question_behind_a_reply_is_asked_like_the_first_or_refused(case: Case, tmp_path: Path) -> None:
    tokenizer = _tokenizer(tmp_path, case)
    tokenizer.open_reply("Q")
    with pytest.raises(BadTemplate) as refused:
        tokenizer.ask_again("Q")
    assert case.refusal in str(refused.value)


@pytest.mark.parametrize(
    ("template", "system", "message"),
    [
        (PLAIN, "Be brief.", None),
        (MISTRAL, "Be brief.", None),
        (SMOLLM3, "Be brief.", None),
        (SMOLLM3, "Be brief. /no_think", "has no system role"),
        (PLAIN.replace("m.content", "m.content | upper"), "Be brief.", "changes more than the question"),
    ],
)
def test_a_system_prompt_is_sent_as_it_is_or_refused(
    template: str, system: str, message: str | None, tmp_path: Path
) -> None:
    tokenizer = _tokenizer(tmp_path, Case("", template))
    wording = Prompts.model_validate(BUILT_IN.model_dump() | {"system": system})
    if message is None:
        ids, text = prompts.opening(tokenizer, _PROBLEM, wording)
        assert text.count(system) >= 1
        assert tokenizer.decode(ids) == text
    else:
        with pytest.raises(ValueError, match=message):
            prompts.opening(tokenizer, _PROBLEM, wording)


@pytest.mark.parametrize(
    ("variables", "opening", "plain", "closing"),
    [({"thinking": True}, "<think>", "</think>", "</think>"), ({}, "</think>", "</think>", "\n</think>\n\n")],
)
def test_questions_apart_from_the_chain_close_a_thought_in_the_templates_own_form(
    variables: dict[str, object], opening: str, plain: str, closing: str, tmp_path: Path
) -> None:
    tokenizer = _tokenizer(tmp_path, Case("", V31, variables=variables))
    assert prompts.opening(tokenizer, _PROBLEM)[1].endswith(f"<|Assistant|>{opening}")
    apart = prompts.chain_choice_question(tokenizer, _PROBLEM, ["1", "2"], may_reject=True)
    for question in (apart, prompts.equivalence_question(tokenizer, "1", "2"), prompts.score_question(tokenizer)):
        assert f"<|Assistant|>{plain}" in tokenizer.decode(question.ids)
        assert "<think>" not in tokenizer.decode(question.ids)
    assert tokenizer.thought.closing == closing


@pytest.mark.parametrize(
    ("template", "date"), [(SMOLLM3, DATE), (MISTRAL, DATE), (LLAMA32, DATE), (LLAMA31, None), (GRANITE, None)]
)
def test_a_date_in_the_prompt_is_that_of_the_run(template: str, date: str | None, tmp_path: Path) -> None:
    assert _tokenizer(tmp_path, Case("", template)).prompt_date == date
    other = _tokenizer(tmp_path, Case("", template), "2027-12-31")
    assert (other.open_reply("Q") == _tokenizer(tmp_path, Case("", template)).open_reply("Q")) == (date is None)


def test_a_served_model_is_the_same_whatever_its_template_is_asked_on_whatever_day(tmp_path: Path) -> None:
    usual = probe.fingerprint("m", _tokenizer(tmp_path, Case("", V31)))
    assert (
        probe.fingerprint("m", _tokenizer(tmp_path, Case("", V31, variables={"thinking": True}), "2027-12-31")) == usual
    )
    assert probe.fingerprint("m", _tokenizer(tmp_path, Case("", PLAIN))) != usual
