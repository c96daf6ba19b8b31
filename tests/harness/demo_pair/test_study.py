"""A training goes on where it was interrupted, and learns what it is taught."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from harness.demo_pair import config as configuration
from harness.demo_pair import network, pupil, vocabulary
from harness.demo_pair.batches import WIDTHS, Batches
from harness.demo_pair.config import BadConfig, Shape, Study
from harness.demo_pair.lessons import Kind, Teacher
from harness.demo_pair.mistakes import Mistakes
from harness.demo_pair.network import Learner, Readers
from harness.demo_pair.stories import Story
from harness.demo_pair.study import Course
from harness.tokenizer import HFTokenizer

SHAPE = Shape(width=32, inner=48, heads=1)
SHARES: dict[Kind, float] = {"solve": 1.0, "score": 1.0, "choose": 1.0}
STUDY = Study(tokens=6000, rate=3e-3, warmup_tokens=100, batch_tokens=512, shares=SHARES, memory=0.5)
END = 475


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler takes longer than these trainings."""
    monkeypatch.setattr(network, "compile_layers", lambda model: None)


Begin = Callable[..., tuple[Learner, Course]]


@pytest.fixture
def begin(tokenizer: HFTokenizer, taught: list[Story], tmp_path: Path) -> Begin:
    def begun(name: str, study: Study = STUDY, *, judges: bool = False) -> tuple[Learner, Course]:
        folder = tmp_path / "tokenizer"
        vocabulary.build(folder)
        size = vocabulary.size(folder)
        model = network.new(SHAPE, 8 if judges else 2, size, END, seed=1)
        learner = Learner(model, Readers(SHAPE.width, size), solver=2, judges=judges, frozen=judges)
        batches = Batches(Teacher(tokenizer, taught, Mistakes(), study.shares, 1), study.batch_tokens, size, END, "cpu")
        return learner, Course(name, study, learner, batches, tmp_path / f"{name}.pt")

    return begun


@pytest.mark.parametrize("judges", [False, True])
def test_an_interrupted_study_ends_with_the_same_weights(begin: Begin, judges: bool) -> None:
    torch.manual_seed(0)
    whole, course = begin("whole", judges=judges)
    course.run(lambda line: None)
    for stop_at in (600, 2500, 4000, 10**9):
        cut, course = begin("cut", judges=judges)
        course.run(lambda line: None, stop_at.__le__)
    assert course.finished
    expected = {**whole.model.state_dict(), **whole.readers.modules.state_dict()}
    for name, weights in {**cut.model.state_dict(), **cut.readers.modules.state_dict()}.items():
        assert torch.equal(weights, expected[name]), name


def test_a_judge_leaves_its_solver_alone_and_says_the_same_at_first(begin: Begin) -> None:
    learner, course = begin("judge", judges=True)
    solver = network.new(SHAPE, 2, learner.model.config.vocab_size, END, seed=1)
    learner.model.load_state_dict(network.deepened(solver, 8, seed=2).state_dict())
    ids = torch.randint(0, 400, (2, 20))
    said = [network.logits(model, network.streams(model, ids)[-1]) for model in (solver, learner.model)]
    assert torch.equal(*said)
    course.run(lambda line: None)
    kept = solver.state_dict()
    for name in ("model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight"):
        assert torch.equal(learner.model.state_dict()[name], kept[name]), name
    changed = network.deepened(solver, 8, seed=2).state_dict()["model.layers.7.mlp.up_proj.weight"]
    assert not torch.equal(learner.model.state_dict()["model.layers.7.mlp.up_proj.weight"], changed)


def test_losses_fall(begin: Begin) -> None:
    learner, course = begin("more", STUDY.model_copy(update={"tokens": 30_000}))
    batch = next(iter(begin("other")[1].batches))
    before = network.losses(learner, batch)
    course.run(lambda line: None)
    after = network.losses(learner, batch)
    assert before.keys() == after.keys() == {"follow", "memory"}
    assert all(float(after[name]) < float(before[name]) - 0.5 for name in before)


def test_a_verdict_is_right_by_any_of_its_right_tokens() -> None:
    said = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    both = network.verdict_loss(said, torch.tensor([[True, True, False, False]]))
    chances = said.softmax(-1)[0]
    assert float(both) == pytest.approx(-float(torch.log(chances[0] + chances[1])), abs=1e-6)


def test_what_is_judged_in_batches_is_what_is_judged_alone(begin: Begin) -> None:
    learner, _ = begin("asked")
    asked = [(list(range(10, 10 + n)), [3, 4, 5]) for n in (4, 9, 30)]
    together = pupil.judge(learner.model, asked)
    alone = [pupil.judge(learner.model, [one])[0] for one in asked]
    assert [p for row in together for p in row] == pytest.approx([p for row in alone for p in row], abs=1e-5)


def test_batches_have_few_shapes_and_lose_no_lesson(tokenizer: HFTokenizer, taught: list[Story]) -> None:
    teacher = Teacher(tokenizer, taught, Mistakes(), SHARES, 1)
    batches = Batches(teacher, 1024, 600, END, "cpu")
    stream = iter(batches)
    seen = [next(stream) for _ in range(20)]
    assert {batch.ids.shape[1] for batch in seen} <= set(WIDTHS)
    place = batches.place
    lessons = sum(len(batch.ids) for batch in seen) + sum(map(len, place.waiting.values()))
    too_long = sum(
        lesson is not None and len(lesson.ids) > WIDTHS[-1] for lesson in map(teacher.lesson, range(place.next_lesson))
    )
    assert lessons + too_long == place.next_lesson


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("layers = 3\n", "layers = 0\n"), "draft.layers: Input should be greater than 0"),
        (("seed =", "sead ="), "seed: Field required"),
        (("solve = 1.0", "guess = 1.0"), "draft.alone.shares"),
        (("solve = 0.6", "guess = 0.6"), "target.solve.shares"),
        (("[shape]", "[shape"), "not a readable TOML file"),
    ],
)
def test_a_wrong_configuration_is_one_line(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(configuration.DEFAULT.read_text("utf-8").replace(*change), "utf-8")
    with pytest.raises(BadConfig) as refused:
        configuration.read(path)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value).strip()
