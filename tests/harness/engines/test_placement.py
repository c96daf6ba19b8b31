"""Each engine gets the cards that were named for it, by their numbers among the worker's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import gpus
from harness.engine import Role
from harness.engines import placement
from harness.engines.pool import EngineNeed, may_share
from harness.engines.settings import EngineSettings, pair_settings
from harness.engines.vllm import variables
from harness.settings.launch_settings import Launch
from harness.settings.roles import ModelSettings
from harness.sizing.card_plan import check_shares
from tests.harness.cards import card, put_nvidia_smi

ONE_AND_FOUR: placement.Placement = {"draft": (0,), "target": (1, 2, 3, 4)}


@pytest.fixture
def eight_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvidia_smi(tmp_path / "bin", monkeypatch, [card(index) for index in range(8)])


def uuids(*indices: int) -> tuple[str, ...]:
    return tuple(card(index)["uuid"] for index in indices)


def on(cards: placement.Placement) -> dict[Role, ModelSettings]:
    return {role: ModelSettings(gpus=numbers) for role, numbers in cards.items()}


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


@pytest.mark.parametrize("text", ["", "-1", "0,0", "0-2,1", "4-1", "a", "0,", "0-", "1.5", "0;1", "9999"])
def test_what_names_no_cards_is_refused_in_one_line_with_the_flag(text: str) -> None:
    with pytest.raises(ValueError, match=r"^--draft.gpus") as refused:
        launch(draft_gpus=text)
    assert "\n" not in str(refused.value)


def test_a_width_that_is_not_the_number_of_the_cards_is_refused() -> None:
    with pytest.raises(ValueError, match=r"--target.gpus 1,2,3,4 names 4 GPUs, but --target.tensor-parallel is 2"):
        launch(target_gpus="1-4", target_tensor_parallel=2)


def test_an_engine_with_cards_of_its_own_is_split_over_all_of_them() -> None:
    split = launch(draft_gpus="0", target_gpus="1-4")
    assert (split.draft.tensor_parallel, split.target.tensor_parallel, split.target.gpus) == (1, 4, (1, 2, 3, 4))
    assert split.changed(tag="again") == replace(split, tag="again")
    assert launch(target_gpus=[1, 2], target_tensor_parallel=2).target.gpus == (1, 2), "a list in a file"


def test_all_takes_back_what_a_file_names() -> None:
    assert launch(draft_gpus="all") == launch()


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


@pytest.mark.usefixtures("eight_cards")
def test_a_card_that_the_worker_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,2,3")
    with pytest.raises(ValueError, match=r"--target.gpus 1,2,3,4: this worker has 3 GPUs; valid: 0 to 2, or all"):
        placed(cards=ONE_AND_FOUR)


def test_a_node_without_gpus_refuses_named_cards_except_for_scripted_engines() -> None:
    with pytest.raises(ValueError, match="this node has 0 GPUs"):
        pair_settings("vllm", ("draft", "target"), device="cpu", models=on({"draft": (0,), "target": (1,)}))
    scripted = pair_settings("scripted", ("draft", "target"), device="cpu", models=on({"draft": (0,), "target": (1,)}))
    assert scripted["draft"].visible_devices is None


@pytest.mark.usefixtures("eight_cards")
def test_engines_on_cards_of_their_own_use_nearly_all_of_them_and_their_shares_need_not_add_up() -> None:
    apart = placed(cards=ONE_AND_FOUR)
    assert apart["draft"].memory_fraction == apart["target"].memory_fraction == 0.9
    assert placed(cards=ONE_AND_FOUR, memory={"draft": 0.95, "target": 0.95})["draft"].memory_fraction == 0.95
    together = placed(cards={"draft": (0,), "target": (0, 1)})
    assert together["draft"].memory_fraction + together["target"].memory_fraction <= 1
    with pytest.raises(ValueError, match="add up to more than 1"):
        placed(cards={"draft": (0,), "target": (0, 1)}, memory={"draft": 0.5, "target": 0.6})


@pytest.mark.usefixtures("eight_cards")
def test_engines_that_name_no_cards_share_all_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = placed()
    assert settings["draft"].visible_devices is settings["target"].visible_devices is None
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert "CUDA_VISIBLE_DEVICES" not in variables(settings["draft"])


@pytest.mark.usefixtures("eight_cards")
def test_the_cards_of_both_engines_are_held_and_those_in_common_count_once() -> None:
    apart = placed(tensor_parallel={"draft": 1, "target": 4}, cards=ONE_AND_FOUR)
    held = gpus.held_gpus((engine.visible_devices, engine.tensor_parallel) for engine in apart.values())
    assert [c.index for c in held] == [0, 1, 2, 3, 4]
    common = placed(tensor_parallel={"draft": 1, "target": 2}, cards={"draft": (5,), "target": (5, 6)})
    assert len(gpus.held_gpus((e.visible_devices, e.tensor_parallel) for e in common.values())) == 2


@pytest.mark.usefixtures("eight_cards")
def test_an_engine_on_other_cards_is_another_engine() -> None:
    one, other = (
        EngineNeed("draft", "model", None, placed(cards={"draft": (n,), "target": (7,)})["draft"]) for n in (0, 1)
    )
    assert may_share(one, one)
    assert not may_share(one, other)


@pytest.mark.parametrize(
    ("cards", "widths", "number"),
    [
        ({"draft": (0,), "target": (1, 2, 3, 4)}, {"draft": 1, "target": 4}, 5),
        ({"draft": None, "target": None}, {"draft": 1, "target": 4}, 4),
        ({"draft": (0,), "target": None}, {"draft": 1, "target": 4}, 4),
        ({"draft": (4,), "target": None}, {"draft": 1, "target": 4}, 5),
        ({"target": (2, 3)}, {"target": 2}, 2),
    ],
)
def test_the_cards_of_a_worker_are_counted_over_its_engines(
    cards: placement.Placement, widths: dict[str, int], number: int
) -> None:
    assert placement.num_cards(cards, widths) == number  # type: ignore[arg-type]


ROLES: tuple[Role, ...] = ("draft", "target", "reward")


@pytest.mark.parametrize(
    ("cards", "shares"),
    [
        (((0,), (1,), (0,)), (0.12, 0.9, 0.2)),
        (((0,), (0, 1), (1,)), (0.12, 0.58, 0.2)),
    ],
)
def test_shares_of_three_engines_are_added_up_for_each_card(
    cards: tuple[tuple[int, ...], ...], shares: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "visible_names", lambda: ("a", "b"))
    placed = dict(zip(ROLES, cards, strict=True))
    settings = pair_settings("vllm", ROLES, device="gpu", models=on(placed))
    assert tuple(settings[role].memory_fraction for role in ROLES) == shares
    halves = dict.fromkeys(ROLES, 0.5)
    halved = {role: replace(own, memory=0.5) for role, own in on(placed).items()}
    assert pair_settings("vllm", ROLES, device="gpu", models=halved)
    check_shares({str(role): share for role, share in halves.items()}, {str(r): own for r, own in placed.items()})
    with pytest.raises(ValueError, match="add up to more than 1"):
        pair_settings("vllm", ROLES, device="gpu", models=dict.fromkeys(ROLES, ModelSettings(memory=0.5)))
    with pytest.raises(ValueError, match=r"--draft.memory 0.5 and --target.memory 0.5 and --reward.memory 0.5 add up"):
        check_shares({str(role): share for role, share in halves.items()}, {})
