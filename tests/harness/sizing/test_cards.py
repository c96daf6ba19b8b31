"""The cards of a job, from what sites and drivers call them."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from harness.sizing.memory import (
    Options,
    cards_of_job,
    cards_of_worker,
    known_card,
    num_tasks,
    of_memory,
    parse_cards,
    without_replaced,
)

GIB = 1 << 30


@pytest.mark.parametrize(
    ("type_name", "name"),
    [
        ("h100", "H100"), ("NVIDIA H100 80GB HBM3", "H100-80"), ("nvidia_h100_nvl", "H100-NVL"),
        ("NVIDIA A100-SXM4-80GB", "A100-80"), ("a100l40", "A100-40"), ("tesla_v100-sxm2-32gb", "V100-32"),
    ],
)  # fmt: skip
def test_a_type_is_known_by_the_names_that_sites_and_drivers_give_it(type_name: str, name: str) -> None:
    found = known_card(type_name)
    assert found is not None
    assert (found.name, found.is_assumed) == (name, False)


@pytest.mark.parametrize(
    ("options", "count", "name", "expected"),
    [
        # What Slurm 22.05 gave a job on one node with 4 H100 and 4 A100, and the tasks that it started.
        ("gpus-per-node=h100:4", 4, "H100", 1), ("gpus-per-node=h100", 1, "H100", 1),
        ("gpus-per-node=a100:1,h100:1", 2, "A100-40", 1), ("gpus-per-node=h100:1,unheard:1", 2, None, 1),
        ("gres=gpu", 1, None, 1), ("gres=gpu:h100:8(S:0-1)", 8, "H100", 1), ("gres=nvme:1,gpu:h200:2", 2, "H200", 1),
        ("gres=gres/gpu:h100:2", 2, "H100", 1), ("gres=shard:4", 1, None, 1),
        ("gpus=4 nodes=2", 2, None, 2), ("gpus-per-node=2 nodes=2-4", 2, None, 2),
        ("gpus-per-node=8 nodes=2 ntasks-per-node=4", 2, None, 8),
        ("gpus-per-task=2 ntasks-per-node=2 nodes=2", 2, None, 4),
        ("tres-per-task=cpu:4,gres/gpu:h100:2", 2, "H100", 1), ("gpus-per-socket=1 sockets-per-node=2", 1, None, 2),
        ("ntasks-per-gpu=1 gpus-per-node=h100:2", 1, "H100", 2), ("gres=gpu:2 gpus-per-task=1 ntasks=2", 1, None, 2),
    ],
)  # fmt: skip
def test_a_worker_has_the_gpus_that_slurm_gives_its_task(
    options: str, count: int, name: str | None, expected: int
) -> None:
    sbatch = dict(option.split("=") for option in options.split())
    asked = cards_of_worker(sbatch)
    assert asked is not None
    assert (asked.count, asked.card and asked.card.name) == (count, name)
    assert num_tasks(sbatch) == expected


@pytest.mark.parametrize(
    "option",
    ["gpus=", "gpus-per-node=0", "gres=gpu:0", "gres=lscratch:100", "gres=nvme:4", "gres=none", "gpus=99999999999"],
)
def test_an_option_that_asks_for_no_gpu_tells_of_none(option: str) -> None:
    assert cards_of_job(dict([option.split("=")])) is None


PROFILE = {"partition": "gpu", "gpus-per-node": "h100:2", "gpu-memory": "94GB", "cpus-per-gpu": 8}


@pytest.mark.parametrize(
    ("profile", "typed", "left"),
    [
        (PROFILE, {"gres": "gpu:l40s:4"}, {"partition", "cpus-per-gpu"}),
        (PROFILE, {"gpus": "h100:4"}, {"partition", "cpus-per-gpu", "gpu-memory"}),
        (PROFILE, {"gres": "nvme:1", "partition": "short"}, PROFILE.keys()),
        ({"gpus": 8, "ntasks-per-gpu": 1}, {"gpus-per-node": "4"}, {"ntasks-per-gpu"}),
        ({"gpus": 8, "ntasks-per-gpu": 1}, {"gpus-per-task": "4"}, set()),
        ({"gpus_per_node": 2, "gpu_memory": "80GB"}, {"gres": "gpu:4"}, {"gpu_memory"}),
        ({"mem": "200G", "gpus": 2}, {"mem-per-gpu": "80G"}, {"gpus"}),
    ],
)
def test_asking_for_gpus_or_memory_replaces_whatever_else_asks_for_some(
    profile: Options, typed: Options, left: Collection[str]
) -> None:
    assert without_replaced(profile, typed).keys() == set(left)


def test_the_memory_that_a_profile_names_decides_and_a_slice_of_a_card_has_its_own() -> None:
    part = cards_of_job({"gres": "gpu:nvidia_h100_80gb_hbm3_1g.10gb:2"})
    assert part is not None
    assert [one.total_bytes >> 30 for one in part.cards()] == [8, 8]
    asked = cards_of_job({"gpus-per-node": 4, "gpu-memory": 80})
    assert asked is not None
    assert [one.total_bytes for one in asked.cards()] == [of_memory("80GB").total_bytes] * 4
    assert of_memory("80").total_bytes == of_memory("81559MiB").total_bytes
    assert cards_of_job({"partition": "cpu"}) is None
    assert cards_of_job({"gres": "gpu:2"}) is not None


def test_memory_and_cards_that_are_none_are_refused_with_what_is_valid() -> None:
    for text in ("", "0", "-80", "80TB", "9" * 50):
        with pytest.raises(ValueError, match="expected the memory of one GPU"):
            of_memory(text)
    for text in ("4", "4xABC", "0xH100", "H100", "-1xH100", "1000xH100"):
        with pytest.raises(ValueError, match=r"expected 1 to 64 GPUs of a known type, e\.g\. 4xH100-80; known: A10"):
            parse_cards(text)
