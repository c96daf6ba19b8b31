"""The benchmark of the event loop: vLLM's own front end over instant engines, with the bundled tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.bench import loop
from harness.weights import models

pytestmark = [pytest.mark.vllm, pytest.mark.needs_tool("vllm")]


async def test_each_cell_runs_its_samples_to_their_budget() -> None:
    folder = Path(models.resolve("demo-target").path_or_hub_id)
    cells = await loop.measure_all(folder, ["speccot", "specreason"], [400], [2, 3], steps=6)
    assert [(c.method, c.in_flight) for c in cells] == [(m, w) for m in ("speccot", "specreason") for w in (2, 3)]
    for cell in cells:
        assert cell.steps == 6
        assert 0 < cell.collector_seconds + cell.milliseconds < 1000
    assert len(loop.table_of(cells).rows) == len(cells)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--contexts", "many"], "expected numbers"),
        (["--in-flight", "0"], "at least 1"),
        (["--methods", "specot"], "'specot' is not one of vanilla"),
        (["--methods", ","], "name one or more of vanilla"),
        (["--model", "nothing"], "unknown model 'nothing'; valid: "),
        (["--model", "demo-draft", "--output", "/no/such/folder/loop.json"], "/no/such/folder does not exist"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(loop.main, arguments)
    assert done.exit_code == 2
    assert message in done.output
