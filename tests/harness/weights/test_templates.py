"""The prompt that is sent is the one that the chat template means, and outside a tokenizer thoughts look the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness import prompts
from harness.chain.chain import ModelContext
from harness.problems.problem import Problem
from harness.prompts import BUILT_IN, Prompts
from harness.weights import models, templates
from harness.weights.templates import BadTemplate, Conventions, variables_of
from harness.weights.tokenizer import HFTokenizer
from tests.harness.conftest import THINK_TEMPLATE, save_tokenizer
from tests.harness.weights.chat_templates import (
    CHATML,
    DATE,
    GEMMA2,
    MISTRAL,
    PLAIN,
    REFUSED,
    REFUSED_TO_FOLLOW,
    SENT,
    SMOLLM3,
    V31,
    Case,
)

PROBLEM = Problem("own/1", "own", "Q", "2")


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
    ids, recorded = prompts.opening(tokenizer, PROBLEM)
    assert tokenizer.decode(ids) == recorded


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_a_template_that_means_something_else_is_refused_in_one_line(case: Case, tmp_path: Path) -> None:
    tokenizer = _tokenizer(tmp_path, case)
    with pytest.raises(BadTemplate) as refused:
        tokenizer.open_reply("Q")
    assert case.refusal in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("template", "sent"), [(GEMMA2, "Q\n 1"), (PLAIN, " \nQ\n 1\n")])
def test_white_space_around_a_question_is_sent_as_the_template_sends_it(
    template: str, sent: str, tmp_path: Path
) -> None:
    tokenizer = _tokenizer(tmp_path, Case("", template))
    bare = {"math": "{problem}", "choice": "{problem} {options}"}
    wording = Prompts.model_validate(BUILT_IN.model_dump() | {"instruction": {"thinking": bare, "plain": bare}})
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
        (SMOLLM3, "Be brief.", None),
        (SMOLLM3, "Be brief. /no_think", "has no system role"),
        (
            PLAIN.replace("m.content", "m.content | upper"),
            "Be brief.",
            "adds around the question depends on the question",
        ),
    ],
)
def test_a_system_prompt_is_sent_as_it_is_or_refused(
    template: str, system: str, message: str | None, tmp_path: Path
) -> None:
    tokenizer = _tokenizer(tmp_path, Case("", template))
    wording = Prompts.model_validate(BUILT_IN.model_dump() | {"system": system})
    if message is None:
        ids, text = prompts.opening(tokenizer, PROBLEM, wording)
        assert text.count(system) >= 1
        assert tokenizer.decode(ids) == text
    else:
        with pytest.raises(ValueError, match=message):
            prompts.opening(tokenizer, PROBLEM, wording)


@pytest.mark.parametrize(
    ("variables", "opening", "plain", "closing"),
    [({"thinking": True}, "<think>", "</think>", "</think>"), ({}, "</think>", "</think>", "\n</think>\n\n")],
)
def test_questions_apart_from_the_chain_close_a_thought_in_the_templates_own_form(
    variables: dict[str, object], opening: str, plain: str, closing: str, tmp_path: Path
) -> None:
    tokenizer = _tokenizer(tmp_path, Case("", V31, variables=variables))
    assert prompts.opening(tokenizer, PROBLEM)[1].endswith(f"<|Assistant|>{opening}")
    apart = prompts.chain_choice_question(tokenizer, PROBLEM, ["1", "2"], may_reject=True)
    for question in (apart, prompts.equivalence_question(tokenizer, "1", "2"), prompts.score_question(tokenizer)):
        assert f"<|Assistant|>{plain}" in tokenizer.decode(question.ids)
        assert "<think>" not in tokenizer.decode(question.ids)
    assert tokenizer.thought.closing == closing


@pytest.mark.parametrize(("template", "date"), [(SMOLLM3, DATE), (MISTRAL, DATE), (PLAIN, None)])
def test_a_date_in_the_prompt_is_that_of_the_run(template: str, date: str | None, tmp_path: Path) -> None:
    assert _tokenizer(tmp_path, Case("", template)).prompt_date == date
    other = _tokenizer(tmp_path, Case("", template), "2027-12-31")
    assert (other.open_reply("Q") == _tokenizer(tmp_path, Case("", template)).open_reply("Q")) == (date is None)


SWITCHED = (
    "{% if reasoning_effort %}{{ reasoning_effort }}{% endif %}"
    + CHATML
    + "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and "
    "enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


def made(
    folder: Path, template: str | None, added: tuple[str, ...] = (), asked: Conventions | None = None
) -> HFTokenizer:
    save_tokenizer(folder, template=template, added=added)
    return HFTokenizer(str(folder), None, asked or Conventions())


def test_text_has_the_usual_tags_and_ids_the_models_own_so_that_two_models_read_one_chain(tmp_path: Path) -> None:
    canonical = made(tmp_path / "canonical", THINK_TEMPLATE, ("<think>", "</think>"))
    tags = Conventions(thinking_tags="[THINK],[/THINK]")
    magistral = made(tmp_path / "magistral", PLAIN, ("[THINK]", "[/THINK]"), tags)
    [control] = magistral.encode_template("[/THINK]")
    assert control not in magistral.encode("ignore [/THINK] this"), "a problem cannot close the thought"
    text = "So it is 2.\n</think>\n\n\\boxed{2}"
    ids = magistral.encode(text)
    raw = magistral._backend.decode(ids, skip_special_tokens=False)
    assert raw == magistral.native(text) == text.replace("</think>", "[/THINK]")
    assert magistral.decode(ids) == text
    context = ModelContext(magistral, PROBLEM)
    context.append(canonical.encode(text), text, canonical)
    assert magistral.decode(context.ids).endswith(f"<think>{text}")
    assert control in context.ids
    other = made(tmp_path / "other", THINK_TEMPLATE, ("<think>", "</think>"), Conventions(thinking_tags="[T],[/T]"))
    assert other.fingerprint == canonical.fingerprint
    read = ModelContext(other, PROBLEM).read(canonical.encode("Yes.</think>"), "Yes.</think>", canonical)
    assert other._backend.decode(list(read), skip_special_tokens=False) == "Yes.[/T]"


def test_a_template_that_closes_the_thought_makes_the_model_a_plain_one(tmp_path: Path) -> None:
    tags = ("<think>", "</think>")
    usual = made(tmp_path / "usual", SWITCHED, tags)
    quiet = made(tmp_path / "quiet", SWITCHED, tags, Conventions.of({"enable_thinking": False}, None))
    low = made(tmp_path / "low", SWITCHED, tags, Conventions.of({"reasoning_effort": "low"}, None))
    assert (usual.thinks, quiet.thinks, low.thinks) == (True, False, True)
    assert quiet.open_reply("2?").endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert low.open_reply("2?") == "low" + usual.open_reply("2?")
    assert usual.open_reply("2?").endswith("<|im_start|>assistant\n<think>\n")


@pytest.mark.parametrize(
    ("template", "variables", "message"),
    [
        (SWITCHED, {"enable_thinkin": False}, "enable_thinkin; valid: enable_thinking, reasoning_effort"),
        (SWITCHED, {"messages": []}, "does not use messages"),
        (None, {"enable_thinking": False}, "the tokenizer has no chat template"),
    ],
)
def test_a_variable_that_the_template_does_not_read_is_refused(
    template: str | None, variables: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        made(tmp_path, template, (), Conventions.of(variables, None))


def test_marks_of_the_assistants_text_are_no_obstacle() -> None:
    marked = (
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% break %}{% endfor %}{{ effort }}"
    )
    assert variables_of(marked) == {"effort"}
    with pytest.raises(ValueError, match="invalid chat template"):
        variables_of("{% if %}")


@pytest.mark.parametrize("text", ["<think>", "a,a", "a,b,c", "a,\x00", "x" * 300 + ",y"])
def test_tags_are_two_or_none(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        templates.parsed_tags(text)
    assert templates.parsed_tags("<think>,</think>") is templates.CANONICAL
    assert templates.parsed_tags("none") is None
