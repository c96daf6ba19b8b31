"""The draft's mistakes and the values of steps are what generating them would give."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from harness.demo_pair import branches, inference, network, rollouts
from harness.demo_pair.branches import Branch
from harness.demo_pair.config import LayerShape
from harness.demo_pair.examples import Curriculum
from harness.demo_pair.mistakes import Mistakes
from harness.demo_pair.stories import LEVELS, Story
from harness.demo_pair.values import Values
from harness.weights import models
from harness.weights.tokenizer import HFTokenizer


@pytest.fixture(scope="module")
def draft() -> LlamaForCausalLM:
    folder, _ = map(models.pair_folder, models.PAIR)
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def test_a_sampled_mistake_begins_as_the_right_step_does_and_leaves_it(
    draft: LlamaForCausalLM, tokenizer: HFTokenizer, taught: list[Story]
) -> None:
    written = rollouts.sampled_mistakes(draft, tokenizer, taught, [1.0], seed=1)
    wrong = [
        (story, number, text)
        for story, steps in zip(taught, written, strict=True)
        for number, [text] in steps.items()
        if number < len(story.steps)
    ]
    assert len(written) == len(taught)
    assert len(wrong) > 5
    assert all(text != story.step(number) for story, number, text in wrong)
    assert sum(text[0] == story.step(number)[0] for story, number, text in wrong) > len(wrong) / 2
    assert sum(text.endswith("\n\n") for *_, text in wrong) > len(wrong) / 2, "a step ends where the draft ends it"


def test_a_branch_goes_on_as_its_own_prompt_would(
    draft: LlamaForCausalLM, tokenizer: HFTokenizer, taught: list[Story]
) -> None:
    solutions = [rollouts.Solution.of(story, tokenizer).ids for story in taught[:5]]
    begun = [Branch(at, len(ids) - back, ids[-back]) for at, ids in enumerate(solutions) for back in (60, 30, 9)]
    end = tokenizer.eos_token_id
    assert end is not None
    _, cache = branches.read(draft, solutions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "multinomial", lambda chances, n, generator: chances.argmax(-1, keepdim=True))
        written = branches.continued(draft, cache, begun, {end}, 40, torch.Generator())
    for branch, ids in zip(begun, written, strict=True):
        expected = [*solutions[branch.text][: branch.place], branch.token]
        while expected[-1] != end and len(expected) < branch.place + 40:
            logits = network.logits(draft, network.hidden_states(draft, torch.tensor([expected]))[-1])
            expected.append(int(logits[0, -1].argmax()))
        assert ids == expected[branch.place :]
    assert len({len(ids) for ids in written}) > 1, "some end before others"


def test_mistakes_are_as_frequent_as_among_steps_that_are_generated_whole(
    draft: LlamaForCausalLM, tokenizer: HFTokenizer, taught: list[Story]
) -> None:
    stories = taught[:15] * 4
    sampled = rollouts.sampled_mistakes(draft, tokenizer, stories, [1.0], seed=2)
    whole = inference.propose(draft, tokenizer, [(s, 0) for s in stories], n=1, temperature=1.0, seed=3)
    wrong = sum(text != story.step(0) for story, [text] in zip(stories, whole, strict=True))
    assert abs(sum(0 in steps for steps in sampled) - wrong) <= 14


def test_a_right_step_is_worth_the_probability_of_the_right_rest(
    draft: LlamaForCausalLM, tokenizer: HFTokenizer, taught: list[Story]
) -> None:
    values = rollouts.right_values(draft, tokenizer, taught[:12])
    assert [len(of_story) for of_story in values] == [len(story.steps) for story in taught[:12]]
    assert all(0 <= earlier <= later <= 1 for row in values for earlier, later in pairwise(row))
    story, expected = taught[0], values[0][0]
    ids = [*inference.prompt_before_step(tokenizer, story, 1)]
    replies = inference.continued(draft, tokenizer, [ids], n=100, seed=4)[0]
    right = "".join(story.step(number) for number in range(1, len(story.steps) + 1))
    assert sum(text == right for text in replies) / 100 == pytest.approx(expected, abs=0.2)
    hot = rollouts.right_values(draft, tokenizer, taught[:12], temperature=1.5)
    assert sum(map(sum, hot)) < sum(map(sum, values)), "a hotter solver ends right less often"


def test_a_score_is_labelled_with_what_the_step_is_worth(
    tokenizer: HFTokenizer, taught: list[Story], tmp_path: Path
) -> None:
    values = Values([[0.5] * len(story.steps) for story in taught])
    values.save(tmp_path / "values.json")
    curriculum = Curriculum(
        tokenizer, taught, Mistakes(), {"score": 1.0}, seed=5, values=Values.load(tmp_path / "values.json")
    )
    made = [example for number in range(60) if (example := curriculum.example(number))]
    digits = {int(tokenizer.decode(list(example.verdict_ids))) for example in made}
    assert digits == {0, round(9 * 0.5)}


def test_a_wrong_step_is_worth_what_its_rollouts_came_to() -> None:
    values = Values([[1.0]], [(0, 0, "wrong", 0.25)])
    assert values.of(0, 0, "wrong", is_right=False) == 0.25
    assert values.of(0, 0, "unknown", is_right=False) == 0
    assert Values([[0.5, 0.25]]).of(0, 3, "the answer", is_right=True) == 0.25
    assert values.of(7, 0, "right", is_right=True) == 1, "a right step that was not valued"
    assert values.mean_wrong == 0.25


def test_levels_have_their_shares(tokenizer: HFTokenizer, taught: list[Story]) -> None:
    assert [story.level for story in taught[:3]] == list(LEVELS), "what Curriculum relies on"
    curriculum = Curriculum(
        tokenizer, taught, Mistakes(), {"solve": 1.0}, seed=5, levels={"easy": 0.0, "medium": 0.0, "hard": 1.0}
    )
    easy = [story.text for story in taught if story.level != "hard"]
    made = [tokenizer.decode(example.ids) for number in range(20) if (example := curriculum.example(number))]
    assert not any(text in prompt for text in easy for prompt in made)


def test_a_judge_is_given_another_solver(tokenizer: HFTokenizer) -> None:
    shape = LayerShape(width=16, inner=16, heads=1)
    judge, solver = (network.new_model(shape, layers, 500, 1, seed) for layers, seed in ((4, 1), (2, 2)))
    joined = network.with_solver(judge, solver).state_dict()
    assert torch.equal(
        joined["model.layers.1.mlp.up_proj.weight"], solver.state_dict()["model.layers.1.mlp.up_proj.weight"]
    )
    assert torch.equal(
        joined["model.layers.3.mlp.up_proj.weight"], judge.state_dict()["model.layers.3.mlp.up_proj.weight"]
    )
    assert torch.equal(joined["model.embed_tokens.weight"], solver.state_dict()["model.embed_tokens.weight"])
