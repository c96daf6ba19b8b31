"""The figures of a reward model's card, on rewards whose figures are known."""

from __future__ import annotations

import pytest

from harness.demo_pair.reward_evaluation import JudgedStep, as_texts, reward_quality


def steps(*rewards: tuple[float, bool]) -> list[JudgedStep]:
    return [JudgedStep(reward, is_right) for reward, is_right in rewards]


def test_figures_of_rewards_that_separate_right_from_wrong() -> None:
    quality = reward_quality(steps((0.9, True), (0.8, True), (0.6, True), (0.1, False)))
    assert quality.auroc == 1
    assert quality.right == 0.75
    assert quality.accuracy == 0.75, "one right step is below the threshold"
    assert quality.right_accepted == pytest.approx(2 / 3)
    assert quality.wrong_accepted == 0
    assert quality.mean_reward == pytest.approx(0.6)
    assert quality.brier == pytest.approx((0.01 + 0.04 + 0.16 + 0.01) / 4)


def test_the_calibration_error_compares_rewards_with_the_share_of_right_steps_bin_by_bin() -> None:
    calibrated = [(0.75, True)] * 3 + [(0.75, False)] + [(0.25, True)] + [(0.25, False)] * 3
    assert reward_quality(steps(*calibrated)).calibration_error == pytest.approx(0)
    assert reward_quality(steps((1.0, False), (0.0, True))).calibration_error == pytest.approx(1)
    assert reward_quality(steps((0.95, True), (0.92, False))).calibration_error == pytest.approx(0.435)


def test_figures_that_need_right_and_wrong_steps_are_left_out_where_one_kind_is_missing() -> None:
    quality = reward_quality(steps((0.2, False)))
    assert (quality.auroc, quality.right_accepted, quality.wrong_accepted) == (None, None, 0)
    assert as_texts(quality)["auroc"] == "–"
    assert as_texts(quality)["accuracy"] == "100.0 %"
