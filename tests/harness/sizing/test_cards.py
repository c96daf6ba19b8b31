"""The cards of a job, from what sites and drivers call them."""

from __future__ import annotations

import pytest

from harness.sizing.cards import card, known_card, of_memory, parse_cards, parse_type
from harness.sizing.job_cards import cards_of_job

GIB = 1 << 30


@pytest.mark.parametrize(
    ("name", "smi_mebibytes", "cuda_gib"),
    [
        # Logs of vLLM and PyTorch: vllm-project/vllm#10511, #15815, #8731, #51590, pytorch/pytorch#175666.
        ("H100", 81559, 79.22),
        ("L40S", 46068, 44.42),
        ("A100-40", 40960, 39.56),
        ("RTX PRO 4500", 32623, 31.38),
        ("L4", 23034, 22.05),
    ],
)
def test_a_card_has_no_more_memory_than_cuda_reports_and_not_much_less(
    name: str, smi_mebibytes: int, cuda_gib: float
) -> None:
    total = card(name, smi_mebibytes << 20).total_bytes / GIB
    assert cuda_gib - 0.5 <= total <= cuda_gib + 0.05


@pytest.mark.parametrize(
    ("type_name", "name"),
    [
        ("h100", "H100"), ("H100-80", "H100-80"), ("NVIDIA H100 80GB HBM3", "H100-80"), ("nvidia_h100_nvl", "H100-NVL"),
        ("a100_80gb", "A100-80"), ("NVIDIA A100-SXM4-80GB", "A100-80"), ("nvidia_a100_80gb_pcie", "A100-80"),
        ("a100l40", "A100-40"), ("NVIDIA L40S", "L40S"), ("tesla_v100-sxm2-32gb", "V100-32"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX6000ADA"), ("NVIDIA GeForce RTX 4090", "RTX4090"), ("mi300x", "MI300X"),
    ],
)  # fmt: skip
def test_a_type_is_known_by_the_names_that_sites_and_drivers_give_it(type_name: str, name: str) -> None:
    found = known_card(type_name)
    assert found is not None
    assert (found.name, found.is_assumed) == (name, False)


def test_the_smaller_card_is_assumed_where_a_type_has_two_sizes() -> None:
    found = known_card("a100")
    assert found is not None
    assert (found.name, found.is_assumed) == ("A100-40", True)


@pytest.mark.parametrize("type_name", ["", "xyz", "gpu", "1g.10gb", "h" * 1000])
def test_a_type_that_is_not_known_is_not_guessed(type_name: str) -> None:
    assert known_card(type_name) is None


@pytest.mark.parametrize(
    ("option", "count", "name"),
    [
        ("4", 4, None), ("h100:4", 4, "H100"), ("gpu:4", 4, None), ("gpu:a100_80gb:2", 2, "A100-80"), ("gpu", 1, None),
        ("gpu:l40s", 1, "L40S"), ("gpu:h100:8(S:0-1)", 8, "H100"), ("lscratch:100,gpu:h200:2", 2, "H200"),
        ("gres/gpu:h100:2", 2, "H100"), ("gpu:unheard:2", 2, None),
    ],
)  # fmt: skip
def test_the_options_of_slurm_tell_number_and_type(option: str, count: int, name: str | None) -> None:
    asked = parse_type(option)
    assert asked is not None
    assert (asked.count, asked.card and asked.card.name) == (count, name)


@pytest.mark.parametrize("option", ["", "0", "lscratch:100", "gpu:0", "gpu:a:b:c:2", "many", "gpu:h100:999999999999"])
def test_an_option_without_a_number_of_gpus_tells_nothing(option: str) -> None:
    asked = parse_type(option)
    assert asked is None or asked.card is None


def test_the_memory_that_a_profile_names_decides() -> None:
    asked = cards_of_job({"gpus-per-node": 4, "gpu-memory": 80})
    assert asked is not None
    assert [one.total_bytes for one in asked.cards()] == [of_memory("80GB").total_bytes] * 4
    assert of_memory("80").total_bytes == of_memory("81559MiB").total_bytes
    assert cards_of_job({"partition": "cpu"}) is None
    assert cards_of_job({"gres": "gpu:2"}) is not None


@pytest.mark.parametrize("text", ["", "0", "-80", "80TB", "eighty", "9" * 50])
def test_a_memory_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected the memory of one GPU"):
        of_memory(text)


@pytest.mark.parametrize("text", ["4", "x", "4xABC", "0xH100", "H100", "-1xH100", "1000xH100"])
def test_cards_that_are_none_are_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected 1 to 64 GPUs of a known type, e\.g\. 4xH100-80; known: A10"):
        parse_cards(text)
