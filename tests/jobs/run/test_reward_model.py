"""A model that rates steps is a third model of a run: named, resolved, started, recorded and counted apart."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness import methods
from harness.chain import Chain
from harness.engine import Role
from harness.methods.method import Method, parameter
from harness.recording import Model
from harness.settings.launch_settings import Launch
from harness.trace import Decision
from jobs.drive import drive
from jobs.preparation import prepare
from jobs.run.plan import plan
from jobs.run.spec import ModelSpec, RunSpec
from warehouse.database import reader, rows
from warehouse.report.charts import StackedBars
from warehouse.report.facts import report_facts
from warehouse.report.sections import tokens

REWARD = ModelSpec(model="r", path="/models/r", revision=None, fingerprint="f" * 16)


@dataclass(frozen=True)
class Rated(Method):
    """Accepts a draft by its reward."""

    delta: float = parameter(0.7, help="Lowest accepted reward, from 0 to 1.")

    @property
    def roles(self) -> tuple[Role, ...]:
        return ("draft", "target", "reward")

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        while not chain.answered:
            [step] = await chain.propose(draft, 1, max_tokens=100)
            verdict = await chain.reward(step, draft)
            decision = Decision.at_least("reward", verdict.score or 0.0, self.delta)
            if decision.accepted:
                chain.accept(draft, "draft", step, (), verdict, decision=decision)
            else:
                await chain.write(target, "fallback", max_tokens=100, verdict=verdict, decision=decision)


@pytest.fixture(autouse=True)
def rated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method with a reward model, under the name `rated`."""
    monkeypatch.setitem(methods.METHODS, "rated", Rated)


def _launch(folder: Path, **flags: Any) -> Launch:
    given: dict[str, Any] = {"method": "rated", "dataset": "demo", "limit": 4, "samples": 1, "cluster": "debug"}
    return Launch.from_flags({**given, "engine": "scripted", "output": folder, **flags})


def test_a_run_with_a_reward_model_is_launched_recorded_and_counted_by_model(tmp_path: Path) -> None:
    [run] = drive([[prepare(_launch(tmp_path))]], Console(quiet=True))
    spec = run.spec()
    assert (spec.reward and spec.reward.name, spec.models["reward"]) == ("scripted", spec.reward)
    with reader(tmp_path / "warehouse.duckdb") as connection:
        spent = {row["model"]: row for row in rows(connection, "SELECT * FROM token_split")}
        calls = rows(connection, "SELECT * FROM call WHERE model = 'reward'")
        facts = report_facts(connection, [run.path.name])
        [row] = rows(connection, "SELECT reward_name, engine_reward_tensor_parallel FROM run")
        kinds = rows(connection, "SELECT DISTINCT kind FROM refusals")
    [figure] = tokens(facts)
    assert isinstance(figure.chart, StackedBars)
    assert "reward" in figure.chart.kinds
    assert {call["purpose"] for call in calls} == {"verdict"}
    assert spent["reward"]["emitted_tokens"] == 0
    assert spent["reward"]["spent_tokens"] == len(calls) > 0
    assert row == {"reward_name": "scripted", "engine_reward_tensor_parallel": 1}
    assert [kind["kind"] for kind in kinds] == ["reward"]


def test_a_reward_model_is_part_of_the_run_and_of_its_samples_but_not_of_their_seeds(tmp_path: Path) -> None:
    planned = plan(_launch(tmp_path), "debug")
    spec, problem = replace(planned.spec, reward=REWARD), planned.problems[0]
    other = replace(spec, reward=replace(REWARD, fingerprint="e" * 16))
    assert len({spec.run_id, other.run_id, replace(spec, reward=None).run_id}) == 3
    assert spec.sample_ids(problem) != other.sample_ids(problem)
    assert spec.drawn_alike().sample_ids(problem) == other.drawn_alike().sample_ids(problem)
    assert RunSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"method": "vanilla", "reward": "demo-target"}, "--reward: vanilla does not use a reward model"),
        ({"engine": "transformers", "draft": "qwq-32b", "target": "qwq-32b"}, "--reward: rated requires a reward"),
        ({"method": "vanilla", "model": "reward"}, "--model"),
        ({"reward_gpus": "x"}, "--reward.gpus x: expected indices"),
        ({"reward_memory": 1.5}, "--reward.memory 1.5"),
        ({"reward_gpus": "0,1", "reward_tensor_parallel": 4}, "--reward.gpus 0,1 lists 2 GPUs"),
    ],
)
def test_a_wrong_reward_flag_is_one_line(tmp_path: Path, flags: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(told)}") as error:
        plan(_launch(tmp_path, **flags), "debug")
    assert "\n" not in str(error.value)
