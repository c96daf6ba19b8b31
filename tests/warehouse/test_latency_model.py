"""The latency model by hand-computed numbers."""

from __future__ import annotations

import pytest

from warehouse.comparison.latency_at_one import LatencyModel, ModelSpeed, Work


def test_a_call_costs_its_prompt_and_its_longest_completion() -> None:
    speed = ModelSpeed(call=1, prompt_token=0.1, output_token=2, output_token_per_completion=0.5)
    assert speed.seconds(Work("draft", 1, 30, 4)) == pytest.approx(1 + 3 + 8)
    assert speed.seconds(Work("draft", 1, 30, 4, further_completions=2)) == pytest.approx(1 + 3 + 8 + 4)


def test_company_slows_every_part_of_a_call() -> None:
    speed = ModelSpeed(call_per_request=1, prompt_token_per_request=0.1, output_token_per_request=2)
    assert speed.seconds(Work("draft", 1, 30, 4)) == 0
    assert speed.seconds(Work("draft", 1, 30, 4, further_requests=3)) == pytest.approx(3 * (1 + 3 + 8))


def test_work_begun_under_other_work_adds_what_it_takes_beyond_it() -> None:
    model = LatencyModel({"draft": ModelSpeed(output_token=1), "target": ModelSpeed(prompt_token=1)})
    verdict = Work("target", 1, 10, 1)
    longer, shorter = (Work("draft", 1, 0, tokens, begun_under=verdict) for tokens in (16, 4))
    assert model.sample_seconds([verdict, longer]) == pytest.approx(10 + 6)
    assert model.sample_seconds([verdict, shorter]) == pytest.approx(10)
