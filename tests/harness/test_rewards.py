"""Process reward models: their prompts, and a toy model that is trained to judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.chain_scores import Form, RewardModel, WholeSteps, Written, whole_steps
from harness.engine import Finish
from harness.engines.scripted import ScriptedEngine
from harness.engines.settings import EngineSettings
from harness.engines.transformers import TransformersEngine
from harness.weights.tokenizer import HFTokenizer
from tests.harness.conftest import save_tiny_model

SAID = range(100)
HELD_OUT = SAID[::3]


def test_a_judgement_holds_the_steps_so_far_and_ends_with_the_tag() -> None:
    prompt = Form().prompt("What is 2 + 3?", ["Add them.\n\n", "2 + 3 = 5 ки + \n"])
    assert prompt == "What is 2 + 3? Step 1: Add them. ки\nStep 2: 2 + 3 = 5 + ки"


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        ([("A.\n\n", "stop"), ("B.", "eos")], [((), "", ""), (("A.\n\n",), "", "")]),
        (
            [("A.\n\n2 + ", "length"), ("3 ", "length"), ("= 5.\n\n", "stop"), ("B.", "eos")],
            [
                ((), "", "3 = 5.\n\n"),
                (("A.\n\n",), "2 + ", "= 5.\n\n"),
                (("A.\n\n",), "2 + 3 ", ""),
                (("A.\n\n", "2 + 3 = 5.\n\n"), "", ""),
            ],
        ),
        ([("2 +\n", "length"), ("\n3.", "eos")], [((), "", "\n"), ((), "2 +\n", "")]),
        ([("A.\n\nB", "stop"), (" it is.\n\n", "stop")], [((), "", " it is.\n\n"), (("A.\n\n",), "B", "")]),
        ([("A", "length")], [((), "", "")]),
    ],
    ids=["whole", "cut twice", "separator in two pieces", "token past the separator", "never completed"],
)
def test_a_piece_that_begins_or_ends_inside_a_step_is_shown_with_the_rest_of_it(
    pieces: list[tuple[str, Finish]], shown: list[tuple[tuple[str, ...], str, str]]
) -> None:
    assert whole_steps([Written(*piece) for piece in pieces], "\n\n") == [WholeSteps(*one) for one in shown]


async def test_quality_is_the_probability_of_good_against_bad() -> None:
    prompts: list[str] = []

    def judge(prompt: str, labels: tuple[str, ...]) -> list[float]:
        prompts.append(prompt)
        return [0.6, 0.2]

    model = RewardModel(ScriptedEngine(lambda prompt, sampling: [""], judge))
    assert await model.quality("What is 2 + 3?", ["5"]) == pytest.approx(0.75)
    assert prompts == ["What is 2 + 3? Step 1: 5 ки "]


def _number_question(number: int) -> tuple[str, list[str]]:
    return "Name an even number.", ["An even number is asked for.", f"The answer is {number}."]


def _teach(folder: Path) -> None:
    """A toy: the tiny model learns from most of the numbers which are even."""
    import torch
    from transformers import AutoModelForCausalLM

    save_tiny_model(folder, seed=3)
    tokenizer, model = HFTokenizer(str(folder)), AutoModelForCausalLM.from_pretrained(folder)
    form = Form()
    gap, options = form.words(tokenizer)
    taught = [number for number in SAID if number not in HELD_OUT]
    rows = [[*tokenizer.opening, *tokenizer.encode(form.prompt(*_number_question(number))), *gap] for number in taught]
    longest = max(map(len, rows))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    labels = torch.tensor([options[number % 2] for number in taught])
    torch.manual_seed(0)
    for weights in model.parameters():
        if weights.dim() > 1:
            torch.nn.init.normal_(weights, std=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(300):
        logits = model(input_ids=ids, attention_mask=mask, logits_to_keep=1).logits[:, -1]
        losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        if float(losses.detach().max()) < 0.05:
            break
    model.save_pretrained(folder)


async def test_a_model_that_was_taught_to_judge_tells_good_steps_from_bad(tmp_path: Path) -> None:
    _teach(tmp_path / "toy")
    engine = await TransformersEngine.start(str(tmp_path / "toy"), "target", EngineSettings(dtype="float32"))
    model = RewardModel(engine)
    quality_by_number = {number: await model.quality(*_number_question(number)) for number in HELD_OUT}
    good = [quality for number, quality in quality_by_number.items() if number % 2 == 0]
    bad = [quality for number, quality in quality_by_number.items() if number % 2 == 1]
    won = sum((g > b) + 0.5 * (g == b) for g in good for b in bad)
    assert won / (len(good) * len(bad)) > 0.9
