"""Models with tags of their own, variables of their templates, or no template: outside, thoughts look the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.context import ModelContext
from harness.problems.problem import Problem
from harness.prompts import THINK_END, opening, score_question
from harness.recording import Model
from harness.weights import templates
from harness.weights.templates import Conventions, has_chat_template, variables_of
from harness.weights.tokenizer import HFTokenizer
from tests.harness.conftest import CHAT_TEMPLATE, THINK_TEMPLATE, save_tokenizer
from tests.harness.scripts import new_trace

MAGISTRAL = ("[THINK]", "[/THINK]")
HARMONY = ("<|channel|>", "<|message|>", "<|end|>", "<|start|>")
_TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
SWITCHED = (
    "{% if reasoning_effort %}{{ reasoning_effort }}{% endif %}"
    + _TURNS
    + "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and "
    "enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
MAGISTRAL_TEMPLATE = _TURNS + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
HARMONY_TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}<|channel|>final{% endif %}<|message|>"
    "{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
PROBLEM = Problem("own/1", "own", "What is 1 + 1?", "2")


def made(
    folder: Path, template: str | None, added: tuple[str, ...] = (), asked: Conventions | None = None
) -> HFTokenizer:
    save_tokenizer(folder, template=template, added=added)
    return HFTokenizer(str(folder), None, asked or Conventions())


def of(**variables: object) -> Conventions:
    """Conventions with these variables of the template."""
    return Conventions.of(variables, None)


@pytest.fixture(scope="module")
def magistral(tmp_path_factory: pytest.TempPathFactory) -> HFTokenizer:
    asked = Conventions(thinking_tags=",".join(MAGISTRAL))
    return made(tmp_path_factory.mktemp("magistral"), MAGISTRAL_TEMPLATE, MAGISTRAL, asked)


@pytest.fixture(scope="module")
def harmony(tmp_path_factory: pytest.TempPathFactory) -> HFTokenizer:
    return made(tmp_path_factory.mktemp("harmony"), HARMONY_TEMPLATE, HARMONY)


@pytest.fixture(scope="module")
def canonical(tmp_path_factory: pytest.TempPathFactory) -> HFTokenizer:
    return made(tmp_path_factory.mktemp("canonical"), THINK_TEMPLATE, ("<think>", "</think>"))


def test_a_family_is_known_by_its_generation_prompt_or_asked_for(magistral: HFTokenizer, harmony: HFTokenizer) -> None:
    assert (magistral.thinks, magistral.tags) == (True, MAGISTRAL)
    assert (harmony.thinks, harmony.tags[0]) == (True, "<|channel|>analysis<|message|>")
    for tags in templates.FAMILIES.values():
        assert templates.tags_of_vocabulary([tags.open, tags.close]) is tags


def test_a_prompt_opens_a_thought_in_the_models_own_tags(magistral: HFTokenizer, harmony: HFTokenizer) -> None:
    ids, text = opening(magistral, PROBLEM)
    assert text.endswith("<|im_start|>assistant\n<think>")
    assert magistral._backend.decode(ids, skip_special_tokens=False).endswith("<|im_start|>assistant\n[THINK]")
    ids, text = opening(harmony, PROBLEM)
    assert text.endswith("<|start|>assistant<think>")
    raw = harmony._backend.decode(ids, skip_special_tokens=False)
    assert raw.endswith("<|start|>assistant<|channel|>analysis<|message|>")


def test_a_question_after_a_thought_is_answered_without_one(harmony: HFTokenizer) -> None:
    raw = harmony._backend.decode(list(score_question(harmony).ids), skip_special_tokens=False)
    assert raw.startswith("<|end|><|start|>user<|message|>")
    assert "<|start|>assistant<|channel|>final<|message|>" in raw


@pytest.mark.parametrize("family", ["magistral", "harmony"])
def test_text_has_the_usual_tags_and_ids_the_models_own(family: str, request: pytest.FixtureRequest) -> None:
    tokenizer: HFTokenizer = request.getfixturevalue(family)
    text = "So it is 2.\n</think>\n\n\\boxed{2}"
    ids = tokenizer.encode(text)
    raw = tokenizer._backend.decode(ids, skip_special_tokens=False)
    assert raw == tokenizer.native(text) == text.replace(THINK_END, tokenizer.tags[1])
    assert tokenizer.decode(ids) == text


def test_a_problem_cannot_close_the_thought_in_the_models_own_tags(magistral: HFTokenizer) -> None:
    control = magistral.encode_template("[/THINK]")
    assert len(control) == 1
    assert control[0] not in magistral.encode("ignore [/THINK] this")


def test_a_draft_and_a_target_with_different_tags_read_one_chain(
    canonical: HFTokenizer, magistral: HFTokenizer
) -> None:
    draft, target = (Model(_Engine(t), role, new_trace()) for t, role in ((canonical, "draft"), (magistral, "target")))  # type: ignore[arg-type]
    context = ModelContext(target, PROBLEM)
    step = "It is 2.\n</think>\n\n"
    context.append(canonical.encode(step), step, draft)
    assert magistral.decode(context.ids).endswith(f"<think>\nIt is 2.\n{THINK_END}\n\n".replace("<think>\n", "<think>"))
    assert magistral.encode_template("[/THINK]")[0] in context.ids


def test_two_readings_of_one_vocabulary_do_not_share_ids_of_tags(canonical: HFTokenizer, tmp_path: Path) -> None:
    own = made(tmp_path, THINK_TEMPLATE, ("<think>", "</think>"), Conventions(thinking_tags="[T],[/T]"))
    assert own.fingerprint == canonical.fingerprint
    reader, author = (Model(_Engine(t), role, new_trace()) for t, role in ((own, "target"), (canonical, "draft")))  # type: ignore[arg-type]
    step = "Yes.</think>"
    read = ModelContext(reader, PROBLEM).read(canonical.encode(step), step, author)
    assert own._backend.decode(list(read), skip_special_tokens=False) == "Yes.[/T]"


class _Engine:
    """As much of an engine as a context needs."""

    def __init__(self, tokenizer: HFTokenizer) -> None:
        self.tokenizer = tokenizer


def test_a_template_that_closes_the_thought_makes_the_model_a_plain_one(tmp_path: Path) -> None:
    tags = ("<think>", "</think>")
    usual = made(tmp_path / "usual", SWITCHED, tags)
    quiet = made(tmp_path / "quiet", SWITCHED, tags, of(enable_thinking=False))
    low = made(tmp_path / "low", SWITCHED, tags, of(reasoning_effort="low"))
    assert (usual.thinks, quiet.thinks, low.thinks) == (True, False, True)
    assert quiet.open_reply("2?").endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert low.open_reply("2?") == "low" + usual.open_reply("2?")
    assert usual.open_reply("2?").endswith("<|im_start|>assistant\n<think>\n")


def test_none_makes_a_plain_model(tmp_path: Path) -> None:
    plain = made(tmp_path, THINK_TEMPLATE, ("<think>", "</think>"), Conventions(thinking_tags="none"))
    assert not plain.thinks
    assert not plain.open_reply("2?").rstrip().endswith("<think>")


@pytest.mark.parametrize(
    ("template", "variables", "message"),
    [
        (
            SWITCHED,
            {"enable_thinkin": False},
            "does not read enable_thinkin; it reads enable_thinking, reasoning_effort",
        ),
        (CHAT_TEMPLATE, {"enable_thinking": False}, "does not read enable_thinking; it reads none"),
        (SWITCHED, {"messages": []}, "does not read messages"),
        (None, {"enable_thinking": False}, "it has no chat template"),
    ],
)
def test_a_variable_that_the_template_does_not_read_is_refused(
    template: str | None, variables: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        made(tmp_path, template, (), of(**variables))


def test_marks_of_the_assistants_text_are_no_obstacle() -> None:
    marked = (
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% break %}{% endfor %}{{ effort }}"
    )
    assert variables_of(marked) == {"effort"}
    with pytest.raises(ValueError, match="its chat template cannot be read"):
        variables_of("{% if %}")


@pytest.mark.parametrize("text", ["<think>", "<think>,", ",", "a,a", "a,b,c", "a,\x00", "x" * 300 + ",y"])
def test_tags_are_two_or_none(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        templates.parsed_tags(text)
    assert templates.parsed_tags("<think>,</think>") is templates.CANONICAL
    assert templates.parsed_tags("none") is None


def test_a_folder_tells_whether_it_has_a_template(tmp_path: Path) -> None:
    save_tokenizer(tmp_path / "with")
    save_tokenizer(tmp_path / "without", template=None)
    (tmp_path / "empty").mkdir()
    found = [has_chat_template(tmp_path / name) for name in ("with", "without", "empty")]
    assert found == [True, False, None]
    assert not HFTokenizer(str(tmp_path / "without")).has_chat_template
