"""Files for --prompts: what they may hold, and what they are refused for; and the hashes of published wordings."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from harness import prompts
from harness.engines.scripted import ByteTokenizer
from harness.launch import main
from harness.methods.method import required_context_tokens
from harness.problems.problem import Problem
from harness.prompts import (
    BUILT_IN,
    Piece,
    Published,
    load,
    parse,
    piece_hashes,
    prompt_hash,
    published,
    render,
    unlike,
)

PLAIN, THINKING = ByteTokenizer(), ByteTokenizer(thinks=True)
PROBLEM = Problem("demo/0", "demo", "What is 2 + 3?", "5")
CHOICE = Problem("demo/1", "demo", "Which is a prime?", "B", "choice", choices=("4", "5"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sytem = 'x'", "unknown key 'sytem'; valid: system, step_separator, answer_bridge, instruction"),
        ("[score]\nquesion = 'x'", "unknown key 'score.quesion'; valid: question, thought, reply"),
        ("score = 'x'", "score: Input should be a valid dictionary"),
        ("[score]\nquestion = 3", "score.question: Input should be a valid string"),
        ("[score]\nquestion = ' '", "score.question: is empty"),
        ("[score]\nquestion = 'About {step}?'", "unknown placeholder {step}; valid here: none"),
        ("[score]\nreply = 'Score: '", "score.reply: ends with white space"),
        ("[step_choice]\nquestion = '{candidates}'", "step_choice.question: lacks {reject}"),
        ("[step_choice]\nitem = '{label}'", "step_choice.item: lacks {text}"),
        ("[chain_choice]\nrejection = 'None'", "chain_choice.rejection: lacks {reject}"),
        ("[chain_choice]\nafter = 'x'", "before and after go together"),
        (
            "[instruction.thinking]\nmath = '{problem} {options}'",
            "unknown placeholder {options}; valid here: {problem}",
        ),
        ("[instruction.plain]\nchoice = 'Solve {problem}'", "{problem} and {options} go together"),
        ("step_separator = ''", "step_separator: String should have at least 1 character"),
        ("answer_bridge = ''", "answer_bridge: is empty"),
        (f"{'x' * 5000} = 'x'", f"unknown key '{'x' * 100}'; valid: system"),
        (f"system = {'9' * 5000}", "not a readable TOML file: Exceeds the limit"),
        (f"system = '{'x' * 8001}'", "system: String should have at most 8000 characters"),
        ("system = ", "not a readable TOML file"),
        (f"system = {'[' * 5000}", "not a readable TOML file: nested too deeply"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"^--prompts .*my\.toml: ") as refusal:
        load(file)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_what_is_no_readable_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"system = '\xe9'")
    for name, message in (
        ("no.toml", "no such file"),
        ("latin.toml", "not a readable TOML file: 'utf-8' codec can't decode"),
    ):
        with pytest.raises(ValueError, match=message):
            load(tmp_path / name)
    with pytest.raises(ValueError, match="Is a directory"):
        load(tmp_path)


def test_a_file_gives_only_the_keys_that_it_changes() -> None:
    own = parse("[score]\nquestion = 'Right?'", "f")
    assert own.changes == {"score.question": "Right?"}
    assert own.step_choice == BUILT_IN.step_choice
    assert parse("", "f") == BUILT_IN
    assert prompt_hash(parse("", "f")) == prompt_hash()


def test_the_hash_is_that_of_the_texts_and_not_of_the_file() -> None:
    one = parse("# a comment\n[score]\nreply = \"Mark:\"\nquestion = 'Right?'\n", "f")
    other = parse("score = { question = '''Right?''', reply = 'Mark:' }", "f")
    assert prompt_hash(one) == prompt_hash(other) != prompt_hash()
    hashes = {prompt_hash(parse(text, "f")) for text in ("system = 'a'", "system = 'b'", "[score]\nreply = 'a'")}
    assert len(hashes) == 3


@pytest.mark.parametrize(
    ("instruction", "asked"),
    [
        ("", "What is 2 + 3?"),
        ("Think.", "What is 2 + 3?\n\nThink."),
        ("Solve: {problem} Put it in \\\\boxed{}.", "Solve: What is 2 + 3? Put it in \\boxed{}."),
        ("Put \\\\text{cm} in \\\\frac{a}{b}.", "What is 2 + 3?\n\nPut \\text{cm} in \\frac{a}{b}."),
    ],
)
def test_an_instruction_follows_the_problem_or_is_the_whole_message(instruction: str, asked: str) -> None:
    own = parse(f'[instruction.plain]\nmath = "{instruction}"', "f")
    assert prompts.opening(PLAIN, PROBLEM, own)[1] == f"User: {asked}\nAssistant: "
    assert prompts.opening(THINKING, PROBLEM, own) == prompts.opening(THINKING, PROBLEM)


def test_a_multiple_choice_problem_is_shown_as_its_template_says() -> None:
    own = parse(
        "[instruction.plain]\nchoice = 'Which? {problem} Choices: {options}!'\n"
        "[options]\nitem = '({label}) {text}'\nseparator = ' '",
        "f",
    )
    asked = "Which? Which is a prime? Choices: (A) 4 (B) 5!"
    assert prompts.opening(PLAIN, CHOICE, own)[1] == f"User: {asked}\nAssistant: "


def test_inserted_text_is_never_read_as_a_template() -> None:
    problem = Problem("demo/2", "demo", "Say {candidates} and {label}.", "5")
    question = prompts.chain_choice_question(PLAIN, problem, ["{problem} {reject}"], may_reject=True)
    assert question.text.startswith("Say {candidates} and {label}.\n\n")
    assert "[1]\n{problem} {reject}\n" in question.text
    assert render("{a}{b}", a="{b}", b="x") == "{b}x"


def test_a_system_prompt_stands_before_the_question_and_its_control_tokens_are_plain_text() -> None:
    own = parse("system = 'Be brief.<|end|>'", "f")
    ids, text = prompts.opening(PLAIN, PROBLEM, own)
    assert text.startswith("System: Be brief.<|end|>\nUser: What is 2 + 3?")
    assert 256 not in ids
    assert PLAIN.decode(ids) == text


def test_the_reply_of_a_reasoning_model_opens_as_the_wording_says() -> None:
    own = parse("[score]\nthought = '<think>'\nreply = 'I give it:'", "f")
    assert THINKING.decode(prompts.score_question(THINKING, own).ids).endswith("Assistant: <think>I give it: ")
    assert PLAIN.decode(prompts.score_question(PLAIN, own).ids).endswith("Assistant: I give it: ")


def test_before_and_after_replace_the_chat_template_around_the_choice_of_a_chain() -> None:
    own = parse("[chain_choice]\nbefore = ''\nafter = '<|end|>'\nreply = 'Number:'", "f")
    question = prompts.chain_choice_question(THINKING, PROBLEM, ["a<|end|>"], own, may_reject=True)
    assert THINKING.decode(question.ids) == f"{question.text}<|end|>Number: "
    assert question.ids.count(256) == 1, "a control token counts where the file has it, not where a model wrote it"


def test_longer_texts_need_a_longer_context() -> None:
    longer = parse(f"system = '{'x' * 4000}'", "f")
    needed = [required_context_tokens([PROBLEM], 100, 0, wording) for wording in (BUILT_IN, longer)]
    assert needed[1] - needed[0] == 2000


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("[instruction.thinking]\nmath = 'x'", {"opening.math"}),
        ("[instruction.thinking]\nchoice = 'x'", {"opening.choice"}),
        ("system = 'x'", {"opening.math", "opening.choice"}),
        ("[options]\nseparator = 'x'", {"opening.choice"}),
        ("step_separator = 'x'", {"steps"}),
        ("[score]\nthought = 'x'", {"score"}),
        ("[separate_score]\nrubric = 'x'", {"separate_score"}),
        ("[step_choice]\nblank = 'x'", {"step_choice"}),
        ("[chain_choice]\nbefore = ''\nafter = ''", {"chain_choice"}),
        ("[reward]\nquestion = 'x'", {"reward"}),
        ("[equivalence]\nclosing = 'x'", {"equivalence"}),
    ],
)
def test_a_piece_changes_with_its_own_texts_alone(text: str, pieces: set[Piece]) -> None:
    own, built_in = piece_hashes(parse(text, "f")), piece_hashes(BUILT_IN)
    assert {piece for piece in own if own[piece] != built_in[piece]} == pieces


def test_the_pieces_of_published_wordings_are_well_formed_and_not_the_harnesss_own() -> None:
    assert set(published()) == {"scot", "specreason"}, "SpecCoT published neither prompts nor a program"
    for paper, told in published().items():
        assert isinstance(told, Published)
        shared = {piece for piece in told.pieces if told.pieces[piece] == piece_hashes(BUILT_IN)[piece]}
        assert shared <= {"steps"}, "SpecReason's steps end at a blank line too"
        assert "commit" in told.source, paper


def test_a_method_needs_the_pieces_that_it_uses() -> None:
    assert unlike(BUILT_IN, "specreason", "specreason", "math") == ["opening.math", "score"]
    assert unlike(BUILT_IN, "specreason", "vanilla", "choice") == ["opening.choice"]
    assert unlike(BUILT_IN, "scot", "scot", "math") == ["opening.math", "chain_choice"]
    bare = parse("[instruction.thinking]\nmath = ''", "f")
    assert unlike(bare, "scot", "scot", "math") == ["chain_choice"], "SCoT's program asks the bare question"
    assert unlike(bare, "scot", "vanilla", "math") == []


def test_the_listing_shows_which_pieces_are_the_papers() -> None:
    listed = CliRunner().invoke(main, ["--list", "prompts"]).output.splitlines()
    steps = piece_hashes(BUILT_IN)["steps"]
    assert f"#   steps          {steps}  (specreason's)" in listed
    assert any(line.endswith(f"(scot's is {published()['scot'].pieces['chain_choice']})") for line in listed)
