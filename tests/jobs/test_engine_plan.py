"""The starts of engines that a dry run tells before a node is known."""

from __future__ import annotations

from typing import Any

import pytest

from harness.settings.launch_settings import Launch
from jobs.engine_plan import planned_starts


def launch(**flags: Any) -> Launch:
    pair = {"draft": "r1-distill-qwen-1.5b", "target": "qwq-32b"}
    return Launch.from_flags({"method": "speccot", "dataset": "amc23", **pair, **flags})


@pytest.mark.parametrize(
    ("flags", "together"),
    [
        ({"dataset": "math500"}, 2),
        ({"logprobs": False}, 2),  # as by default
        ({"logprobs": True}, 4),
        ({"target_memory": 0.7}, 4),
        ({"method": "vanilla"}, 3),  # the target alone has the whole memory
    ],
)
def test_launches_share_the_engines_that_they_would_start_alike(flags: dict[str, Any], together: int) -> None:
    launches = [launch(), launch(**flags)]
    assert planned_starts(launches) == (3 if "method" in flags else 4, together)
