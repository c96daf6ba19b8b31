"""What an engine could have found of a sample in its prefix cache."""

from __future__ import annotations

import pytest

from harness.engine import Sampling
from tools.bench.prefix_cache import RecordedCall, reusable_tokens


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([(range(40), range(100, 110))], [0]),
        ([(range(40), ()), (range(40), ())], [0, 32]),
        ([(range(33), ()), (range(33), ())], [0, 32]),
        ([(range(32), ()), (range(32), ())], [0, 16]),  # the last token is always computed
        ([(range(20), range(20, 37)), (range(60), ())], [0, 32]),  # what it wrote is held too
        ([(range(20), range(20, 32)), (range(60), ())], [0, 16]),  # but for the last token written
        ([(range(40), ()), (range(1, 60), ())], [0, 0]),
    ],
)
def test_reusable_tokens(calls: list[tuple[range, range]], expected: list[int]) -> None:
    recorded = [
        RecordedCall("target", list(prompt), Sampling(9), [tuple(output)] if output else [], [len(output)], 0)
        for prompt, output in calls
    ]
    assert reusable_tokens(recorded, 16) == expected


def test_what_one_model_saw_is_not_reusable_for_the_other() -> None:
    calls = [RecordedCall(role, list(range(40)), Sampling(9), [], [1], 0) for role in ("draft", "target")]
    assert reusable_tokens(calls, 16) == [0, 0]
