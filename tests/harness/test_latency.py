"""The latency model by hand-computed numbers, and what a hardware file answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import hardware
from harness.hardware import Hardware, Speeds
from harness.latency import LatencyModel, ModelSpeed, Tokens, Work, expected_work
from harness.methods import METHODS, defaults

SPEED = Speeds(output_tokens_per_second=10, prompt_tokens_per_second=100)
EXAMPLE = Path(hardware.__file__).parent / "papers" / "hardware" / "a100x4.toml"


def machine(**settings: float) -> Hardware:
    return Hardware.model_validate({"name": "m", "source": "s", "gpus": 2, "draft": SPEED, "target": SPEED, **settings})


def test_a_call_costs_its_prompt_and_its_longest_completion() -> None:
    speed = ModelSpeed(call=1, prompt_token=0.1, output_token=2, output_token_per_completion=0.5)
    assert speed.seconds(Work("draft", 1, 30, 4)) == pytest.approx(1 + 3 + 8)
    assert speed.seconds(Work("draft", 1, 30, 4, further_completions=2)) == pytest.approx(1 + 3 + 8 + 4)


def test_company_slows_every_part_of_a_call() -> None:
    speed = ModelSpeed(call_per_request=1, prompt_token_per_request=0.1, output_token_per_request=2)
    assert speed.seconds(Work("draft", 1, 30, 4)) == 0
    assert speed.seconds(Work("draft", 1, 30, 4, further_requests=3)) == pytest.approx(3 * (1 + 3 + 8))


def test_calls_may_be_added_up() -> None:
    speed = ModelSpeed(call=1, prompt_token=0.1, output_token=2)
    apart = speed.seconds(Work("draft", 1, 30, 4)) + speed.seconds(Work("draft", 1, 10, 6))
    assert speed.seconds(Work("draft", 2, 40, 10)) == pytest.approx(apart)


def test_work_begun_under_other_work_adds_what_it_takes_beyond_it() -> None:
    model = LatencyModel({"draft": ModelSpeed(output_token=1), "target": ModelSpeed(prompt_token=1)})
    verdict = Work("target", 1, 10, 1)
    longer, shorter = (Work("draft", 1, 0, tokens, begun_under=verdict) for tokens in (16, 4))
    assert model.sample_seconds([verdict, longer]) == pytest.approx(10 + 6)
    assert model.sample_seconds([verdict, shorter]) == pytest.approx(10)
    crowded = hardware.project([[verdict, longer]], machine(concurrency=2))
    assert list(crowded.latency_seconds) == [pytest.approx(10 / 100 + 1 / 10 + 16 / 10 - (10 / 100 + 1 / 10))]


def test_lookahead_hides_the_shorter_of_draft_and_verdict_behind_the_other() -> None:
    model = LatencyModel({"draft": ModelSpeed(output_token=0.1), "target": ModelSpeed(call=2, output_token=1)})
    tokens = Tokens(500, 0, 50)
    without, ahead = (
        model.sample_seconds(expected_work("specreason", {"lookahead": chosen}, tokens)) for chosen in (False, True)
    )
    assert without - ahead == pytest.approx(9 * (2 + 1)), "nine of ten drafts are begun under a verdict of 3 s"
    refused = Tokens(500, 500, 50, refused_share=0.5)
    without, ahead = (
        model.sample_seconds(expected_work("specreason", {"lookahead": chosen}, refused)) for chosen in (False, True)
    )
    assert without - ahead == pytest.approx(9 * (2 + 1)), "a refused candidate hides nothing"


@pytest.mark.parametrize("method", ["vanilla", "scot", "speccot", "specreason"])
def test_every_paper_method_has_a_rule(method: str) -> None:
    assert method in METHODS
    model = LatencyModel({"draft": ModelSpeed(output_token=1), "target": ModelSpeed(output_token=4)})
    little, much = (
        model.sample_seconds(expected_work(method, defaults(method), Tokens(draft, 100))) for draft in (100.0, 400.0)
    )
    assert much > little > 0


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(ValueError, match="no rule for method 'other'"):
        expected_work("other", {}, Tokens(1, 1))


def test_refused_steps_are_drafted_in_vain() -> None:
    drafted = [
        sum(w.output_tokens for w in expected_work("specreason", {}, Tokens(500, 0, 50, refused)) if w.model == "draft")
        for refused in (0.0, 0.5)
    ]
    assert drafted == [pytest.approx(500), pytest.approx(1000)]


def test_a_projection_adds_up_calls_samples_and_the_start() -> None:
    samples = [[Work("draft", 1, 100, 10)], [Work("target", 1, 0, 30)]]
    there = hardware.project(samples, machine(start_seconds=60), num_samples=20)
    assert list(there.latency_seconds) == [pytest.approx(2.0), pytest.approx(3.0)]
    assert there.wall_seconds == pytest.approx(60 + 20 * 2.5)
    assert there.gpu_hours == pytest.approx(2 * there.wall_seconds / 3600)


def test_fewer_samples_than_may_be_in_flight_take_as_long_as_one_of_them() -> None:
    slowed = SPEED.model_copy(update={"slower_per_request": 0.5})
    there = machine(concurrency=64).model_copy(update={"target": slowed})
    few = hardware.project([[Work("target", 1, 0, 100)]] * 2, there)
    assert few.in_flight["target"] == pytest.approx(2)
    assert few.wall_seconds == pytest.approx(10 * 1.5)
    assert hardware.project([[Work("target", 1, 0, 100)]], there, num_samples=1).wall_seconds == pytest.approx(10)


def test_samples_in_flight_share_the_wall_time_and_slow_each_other() -> None:
    samples = [[Work("target", 1, 0, 100)]] * 8
    slowed = SPEED.model_copy(update={"slower_per_request": 0.5})
    free = hardware.project(samples, machine(concurrency=3))
    crowded = hardware.project(samples, machine(concurrency=3).model_copy(update={"target": slowed}))
    assert free.wall_seconds == pytest.approx(8 * 10 / 3)
    assert crowded.in_flight["target"] == pytest.approx(3)
    assert crowded.wall_seconds == pytest.approx(2 * free.wall_seconds)


def test_a_model_that_the_file_lacks_is_named() -> None:
    alone = machine().model_copy(update={"draft": None})
    with pytest.raises(ValueError, match=r"no table \[draft\]"):
        hardware.project([[Work("draft", 1, 1, 1)]], alone)


def test_a_reward_model_has_speeds_of_its_own() -> None:
    rated = [[Work("draft", 1, 0, 10), Work("reward", 1, 50, 1)]]
    with pytest.raises(ValueError, match=r"no table \[reward\].*valid: a file that has \[draft\], \[reward\]"):
        hardware.project(rated, machine())
    whole = Hardware.model_validate({**machine().model_dump(), "reward": SPEED})
    assert list(hardware.project(rated, whole).latency_seconds) == [pytest.approx(1 + 0.5 + 0.1)]


def test_the_example_file_is_valid() -> None:
    assert hardware.read(EXAMPLE).gpus == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "not a readable TOML file"),
        ('name = "m"\nsource = "s"', "gpus"),
        ('name = "m"\nsource = "s"\ngpus = 1\nspeed = 1', "speed"),
        (
            'name = "m"\nsource = "s"\ngpus = 1\n[draft]\noutput_tokens_per_second = 0\nprompt_tokens_per_second = 1',
            "draft.output_tokens_per_second",
        ),
    ],
)
def test_a_mistake_in_a_hardware_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"mine\.toml") as wrong:
        hardware.read(path)
    assert message in str(wrong.value)
    assert len(str(wrong.value).splitlines()) == 1
