"""Each engine gets the cards that were named for it, by their numbers among the worker's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.engine import Role
from harness.engines import placement
from harness.engines.settings import EngineSettings, pair_settings
from harness.engines.vllm import variables
from harness.settings.launch_settings import Launch
from harness.settings.roles import ModelSettings
from tests.harness.cards import card, put_nvidia_smi

ONE_AND_FOUR: placement.Placement = {"draft": (0,), "target": (1, 2, 3, 4)}


@pytest.fixture
def eight_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvidia_smi(tmp_path / "bin", monkeypatch, [card(index) for index in range(8)])


def uuids(*indices: int) -> tuple[str, ...]:
    return tuple(card(index)["uuid"] for index in indices)


def placed(
    cards: placement.Placement | None = None,
    tensor_parallel: Mapping[Role, int] | None = None,
    memory: Mapping[Role, float] | None = None,
) -> dict[Role, EngineSettings]:
    roles: tuple[Role, ...] = ("draft", "target")
    models = {
        role: ModelSettings(
            gpus=(cards or {}).get(role),
            tensor_parallel=(tensor_parallel or {}).get(role),
            memory=(memory or {}).get(role),
        )
        for role in roles
    }
    return pair_settings("vllm", roles, device="gpu", models=models)


def launch(**flags: Any) -> Launch:
    return Launch.from_flags({"method": "speccot", "dataset": "demo", **flags})


@pytest.mark.parametrize(
    ("text", "numbers"), [("0", (0,)), ("1,2,3,4", (1, 2, 3, 4)), ("1-4", (1, 2, 3, 4)), ("0, 2-3", (0, 2, 3))]
)
def test_numbers_and_ranges_of_cards_are_read(text: str, numbers: tuple[int, ...]) -> None:
    assert placement.parse(text) == numbers


@pytest.mark.parametrize("text", ["", "-1", "0,0", "0-2,1", "4-1", "a", "0-", "1.5", "9999"])
def test_what_names_no_cards_is_refused_in_one_line_with_the_flag(text: str) -> None:
    with pytest.raises(ValueError, match=r"^--draft.gpus") as refused:
        launch(draft_gpus=text)
    assert "\n" not in str(refused.value)


def test_an_engine_with_cards_of_its_own_is_split_over_all_of_them() -> None:
    split = launch(draft_gpus="0", target_gpus="1-4")
    assert (split.draft.tensor_parallel, split.target.tensor_parallel, split.target.gpus) == (1, 4, (1, 2, 3, 4))
    assert split.changed(tag="again") == replace(split, tag="again")
    assert launch(target_gpus=[1, 2], target_tensor_parallel=2).target.gpus == (1, 2), "a list in a file"
    assert launch(draft_gpus="all") == launch()
    with pytest.raises(ValueError, match=r"--target.gpus 1,2,3,4 .*--target.tensor-parallel"):
        launch(target_gpus="1-4", target_tensor_parallel=2)


@pytest.mark.usefixtures("eight_cards")
def test_each_engine_sees_its_own_cards_only() -> None:
    settings = placed(tensor_parallel={"draft": 1, "target": 4}, cards=ONE_AND_FOUR)
    assert variables(settings["draft"])["CUDA_VISIBLE_DEVICES"] == uuids(0)[0]
    assert variables(settings["target"])["CUDA_VISIBLE_DEVICES"] == ",".join(uuids(1, 2, 3, 4))


@pytest.mark.usefixtures("eight_cards")
def test_numbers_count_the_cards_that_the_worker_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,2,3")
    settings = placed(cards={"draft": (0,), "target": (2,)})
    assert (settings["draft"].visible_devices, settings["target"].visible_devices) == (uuids(6), uuids(3))
    with pytest.raises(ValueError, match=r"--target.gpus"):
        placed(cards=ONE_AND_FOUR)


@pytest.mark.usefixtures("eight_cards")
def test_engines_on_cards_of_their_own_use_nearly_all_of_them_and_their_shares_need_not_add_up() -> None:
    apart = placed(cards=ONE_AND_FOUR)
    assert apart["draft"].memory_fraction == apart["target"].memory_fraction == 0.9
    assert placed(cards=ONE_AND_FOUR, memory={"draft": 0.95, "target": 0.95})["draft"].memory_fraction == 0.95
    together = placed(cards={"draft": (0,), "target": (0, 1)})
    assert together["draft"].memory_fraction + together["target"].memory_fraction <= 1
    with pytest.raises(ValueError, match="add up to more than 1"):
        placed(cards={"draft": (0,), "target": (0, 1)}, memory={"draft": 0.5, "target": 0.6})
