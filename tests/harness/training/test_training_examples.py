"""The training examples and the two losses."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from harness.prompts import chain_choice_question, opening, parse
from harness.training import training_examples
from harness.training.training_examples import Draft, Drafts, TargetChain
from harness.weights.tokenizer import HFTokenizer
from tests.harness.conftest import CHAT_TEMPLATE, THINK_TEMPLATE, save_tokenizer
from tests.harness.training.folders import problems

[PROBLEM] = problems(1)
BY_ID = {PROBLEM.id: PROBLEM}
EOS = 2


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> HFTokenizer:
    return _made(tmp_path_factory.mktemp("plain"), CHAT_TEMPLATE)


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> HFTokenizer:
    return _made(tmp_path_factory.mktemp("thinking"), THINK_TEMPLATE, ("<think>", "</think>"))


def _made(folder: Path, template: str, added: tuple[str, ...] = ()) -> HFTokenizer:
    save_tokenizer(folder, template=template, added=added)
    return HFTokenizer(str(folder))


def _chain(tokenizer: HFTokenizer, text: str, finish: str = "eos") -> TargetChain:
    return TargetChain("s0", PROBLEM.id, text, tuple(tokenizer.encode(text)), finish)


def test_only_the_chain_is_predicted_and_nothing_of_the_question(plain: HFTokenizer) -> None:
    chain = _chain(plain, "So it is 7.")
    [example] = training_examples.alignment_examples([chain], BY_ID, plain, plain, 512).kept
    prompt, _ = opening(plain, PROBLEM)
    assert example.label_ids == (*chain.token_ids, EOS)
    assert example.predictions == len(example.label_ids)
    assert example.inputs == (*prompt, *chain.token_ids)


@pytest.mark.parametrize(
    ("draft", "target", "text", "learned"),
    [
        ("plain", "thinking", "7 and 0.\n</think>\n\nThe answer is 7.", "7 and 0.<|im_end|>"),
        ("thinking", "plain", "7 and 0.", "7 and 0.\n</think>"),
    ],
)
def test_a_draft_that_thinks_otherwise_learns_to_end_in_its_own_way(
    draft: str, target: str, text: str, learned: str, request: pytest.FixtureRequest
) -> None:
    of_draft, of_target = request.getfixturevalue(draft), request.getfixturevalue(target)
    [example] = training_examples.alignment_examples([_chain(of_target, text)], BY_ID, of_draft, of_target, 512).kept
    assert of_draft.decode(example.label_ids) == learned


def test_chains_that_were_cut_off_or_are_too_long_are_left_out_and_counted(
    plain: HFTokenizer, thinking: HFTokenizer
) -> None:
    cut = training_examples.alignment_examples([_chain(plain, "So", "length")], BY_ID, plain, plain, 512)
    unclosed = training_examples.alignment_examples([_chain(thinking, "So it is 7.")], BY_ID, thinking, thinking, 512)
    long = training_examples.alignment_examples([_chain(plain, "So it is 7.")], BY_ID, plain, plain, 20)
    assert [built.kept for built in (cut, unclosed, long)] == [[], [], []]
    assert [dict(built.left_out) for built in (cut, unclosed, long)] == [
        {"cut off": 1},
        {"cut off": 1},
        {"longer than 20 tokens": 1},
    ]


def _offer(*verdicts: str) -> Drafts:
    return Drafts("s0", PROBLEM.id, tuple(Draft(f"Way {i}.", verdict) for i, verdict in enumerate(verdicts)))


def test_examples_are_in_the_wording_of_the_run_that_wrote_them(plain: HFTokenizer) -> None:
    wording = parse("[chain_choice]\nreply = 'Number:'\n[instruction.plain]\nmath = ''", "own.toml")
    [example] = training_examples.selection_examples([_offer("wrong", "correct")], BY_ID, plain, 512, wording).kept
    question = chain_choice_question(plain, PROBLEM, ["Way 0.", "Way 1."], wording, may_reject=True)
    assert (
        example.inputs
        == question.ids
        != chain_choice_question(plain, PROBLEM, ["Way 0.", "Way 1."], may_reject=True).ids
    )


@pytest.mark.parametrize(
    ("verdicts", "right"),
    [
        (("correct", "wrong", "correct"), (0, 2)),
        (("wrong", "truncated"), (2,)),
        (("no_answer", "unparsable"), (2,)),
        (("correct",), (0,)),
    ],
)
def test_the_label_is_the_set_of_right_drafts_or_that_all_are_wrong(
    verdicts: tuple[str, ...], right: tuple[int, ...]
) -> None:
    assert training_examples.labels(_offer(*verdicts)) == right


def test_drafts_that_nobody_could_judge_make_no_example(plain: HFTokenizer) -> None:
    built = training_examples.selection_examples([_offer("correct", "grader_timeout"), _offer()], BY_ID, plain, 512)
    assert built.kept == []
    assert sum(built.left_out.values()) == 2


def test_the_loss_of_a_chain_is_the_mean_of_its_tokens() -> None:
    import torch

    probabilities = torch.tensor([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]])
    expected = -(math.log(0.25) + math.log(0.6)) / 2
    assert float(training_examples.chain_loss(probabilities.log(), (1, 2))) == pytest.approx(expected)


def test_the_loss_of_a_set_is_that_of_its_best_label() -> None:
    import torch

    logits = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log().requires_grad_()
    best = training_examples.best_label_loss(logits, (1, 2))
    assert best.item() == pytest.approx(-math.log(0.3))
    best.backward()
    assert logits.grad is not None
    assert [float(x) < 0 for x in logits.grad[0]] == [False, False, True, False], "only the best label is raised"
