"""A training goes on where it was interrupted, and learns what it is taught."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from harness.demo_pair import config as configuration
from harness.demo_pair import inference, network, vocabulary
from harness.demo_pair.batches import WIDTHS, Batches
from harness.demo_pair.config import BadConfig, LayerShape, Stage
from harness.demo_pair.examples import Curriculum, Kind
from harness.demo_pair.mistakes import Mistakes
from harness.demo_pair.network import AuxiliaryHeads, Learner
from harness.demo_pair.stories import Story
from harness.demo_pair.trainer import Trainer
from harness.weights.tokenizer import HFTokenizer

SHAPE = LayerShape(width=32, inner=48, heads=1)
SHARES: dict[Kind, float] = {"solve": 1.0, "score": 1.0, "choose": 1.0}
STAGE = Stage(tokens=6000, rate=3e-3, warmup_tokens=100, batch_tokens=512, shares=SHARES, memory=0.5)
END = 475


Begin = Callable[..., tuple[Learner, Trainer]]


@pytest.fixture
def begin(tokenizer: HFTokenizer, taught: list[Story], tmp_path: Path) -> Begin:
    def begun(name: str, stage: Stage = STAGE, *, is_judge: bool = False) -> tuple[Learner, Trainer]:
        folder = tmp_path / "tokenizer"
        vocabulary.build(folder)
        size = vocabulary.size(folder)
        model = network.new_model(SHAPE, 8 if is_judge else 2, size, END, seed=1)
        learner = Learner(
            model, AuxiliaryHeads(SHAPE.width, size), solver_layers=2, is_judge=is_judge, is_solver_frozen=is_judge
        )
        batches = Batches(
            Curriculum(tokenizer, taught, Mistakes(), stage.shares, 1), stage.batch_tokens, size, END, "cpu"
        )
        return learner, Trainer(name, stage, learner, batches, tmp_path / f"{name}.pt")

    return begun


@pytest.mark.parametrize("is_judge", [False, True])
def test_an_interrupted_stage_ends_with_the_same_weights(begin: Begin, is_judge: bool) -> None:
    torch.manual_seed(0)
    whole, trainer = begin("whole", is_judge=is_judge)
    trainer.run(lambda line: None)
    for stop_at in (600, 2500, 4000, 10**9):
        truncated, trainer = begin("cut", is_judge=is_judge)
        trainer.run(lambda line: None, stop_at.__le__)
    assert trainer.finished
    expected = {**whole.model.state_dict(), **whole.heads.modules.state_dict()}
    for name, weights in {**truncated.model.state_dict(), **truncated.heads.modules.state_dict()}.items():
        assert torch.equal(weights, expected[name]), name


def test_a_judge_keeps_its_solver_unchanged_and_starts_with_equal_logits(begin: Begin) -> None:
    learner, trainer = begin("judge", is_judge=True)
    solver = network.new_model(SHAPE, 2, learner.model.config.vocab_size, END, seed=1)
    learner.model.load_state_dict(network.with_more_layers(solver, 8, seed=2).state_dict())
    ids = torch.randint(0, 400, (2, 20))
    logits = [network.logits(model, network.hidden_states(model, ids)[-1]) for model in (solver, learner.model)]
    assert torch.equal(*logits)
    trainer.run(lambda line: None)
    kept = solver.state_dict()
    for name in ("model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight"):
        assert torch.equal(learner.model.state_dict()[name], kept[name]), name
    changed = network.with_more_layers(solver, 8, seed=2).state_dict()["model.layers.7.mlp.up_proj.weight"]
    assert not torch.equal(learner.model.state_dict()["model.layers.7.mlp.up_proj.weight"], changed)


def test_a_model_of_some_layers_has_their_weights_and_output_embeddings_of_its_own(begin: Begin) -> None:
    model = begin("whole")[0].model
    deep = network.with_more_layers(model, 4, seed=2)
    ids = torch.randint(0, 400, (2, 20))
    same = network.with_layers(deep, [1, 2, 3, 4])
    assert torch.equal(*(network.logits(each, network.hidden_states(each, ids)[-1]) for each in (deep, same)))
    third = network.with_layers(deep, [3]).get_parameter("model.layers.0.mlp.up_proj.weight")
    assert torch.equal(third, deep.get_parameter("model.layers.2.mlp.up_proj.weight"))
    assert same.lm_head.weight is not same.model.embed_tokens.weight


def test_untied_output_embeddings_are_trained_above_a_solver_that_is_not(begin: Begin) -> None:
    learner, _ = begin("reward", is_judge=True)
    learner.model = network.with_layers(learner.model, range(1, 9))
    trained = {id(parameter) for parameter in network.trainable_parameters(learner)}
    assert id(learner.model.lm_head.weight) in trained
    assert id(learner.model.model.embed_tokens.weight) not in trained


def test_losses_fall(begin: Begin) -> None:
    learner, trainer = begin("more", STAGE.model_copy(update={"tokens": 30_000}))
    batch = next(iter(begin("other")[1].batches))
    before = network.losses(learner, batch)
    trainer.run(lambda line: None)
    after = network.losses(learner, batch)
    assert before.keys() == after.keys() == {"next_ids", "memory"}
    assert all(float(after[name]) < float(before[name]) - 0.5 for name in before)


def test_a_verdict_is_right_by_any_of_its_right_tokens() -> None:
    verdict_logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    both = network.verdict_loss(verdict_logits, torch.tensor([[True, True, False, False]]))
    chances = verdict_logits.softmax(-1)[0]
    assert float(both) == pytest.approx(-float(torch.log(chances[0] + chances[1])), abs=1e-6)


def test_what_is_judged_in_batches_is_what_is_judged_alone(begin: Begin) -> None:
    learner, _ = begin("asked")
    judged_prompts = [(list(range(10, 10 + n)), [3, 4, 5]) for n in (4, 9, 30)]
    together = inference.verdict_probabilities(learner.model, judged_prompts)
    alone = [inference.verdict_probabilities(learner.model, [prompt])[0] for prompt in judged_prompts]
    assert [p for row in together for p in row] == pytest.approx([p for row in alone for p in row], abs=1e-5)


def test_batches_have_few_shapes_and_lose_no_example(tokenizer: HFTokenizer, taught: list[Story]) -> None:
    curriculum = Curriculum(tokenizer, taught, Mistakes(), SHARES, 1)
    batches = Batches(curriculum, 1024, 600, END, "cpu")
    stream = iter(batches)
    seen = [next(stream) for _ in range(20)]
    assert {batch.ids.shape[1] for batch in seen} <= set(WIDTHS)
    position = batches.position
    examples = sum(len(batch.ids) for batch in seen) + sum(map(len, position.waiting.values()))
    too_long = sum(
        example is not None and len(example.ids) > WIDTHS[-1]
        for example in map(curriculum.example, range(position.next_example))
    )
    assert examples + too_long == position.next_example


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("layers = 3\n", "layers = 0\n"), "draft.layers: Input should be greater than 0"),
        (("seed =", "sead ="), "seed: Field required"),
        (
            ("[rollouts]", "[draft.alone]\ntokens = 9\nrate = 1\nshares = { guess = 1.0 }\n[rollouts]"),
            "draft.alone.shares",
        ),
        (("solve = 0.02", "guess = 0.02"), "target.judge.shares"),
        (("[shape]", "[shape"), "not a readable TOML file"),
    ],
)
def test_a_wrong_configuration_is_one_line(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(configuration.DEFAULT.read_text("utf-8").replace(*change), "utf-8")
    with pytest.raises(BadConfig) as refused:
        configuration.read(path)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value).strip()
