"""The cards of a worker: as the node sees them, or as a login node can tell from its type and the options of Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias, Union

from harness import gpus

_MEBIBYTE = 1 << 20
_DRIVER_BYTES = 300 * _MEBIBYTE
_DRIVER_SHARE = 0.0075
"""What nvidia-smi lists and CUDA does not offer. Total memory by nvidia-smi and by CUDA, in GiB: 80.00 and 79.25
(A100-80), 79.65 and 79.19 (H100), 44.99 and 44.42 (L40S, vllm-project/vllm#15815), 40.00 and 39.56 (A100-40,
vllm-project/vllm#8731), 31.86 and 31.38 (RTX PRO 4500, vllm-project/vllm#51590), 22.49 and 22.05 (L4,
pytorch/pytorch#175666). Shares are shares of CUDA's figure; for these cards this one is at most 0.5 GiB below it."""

_KNOWN_MEBIBYTES = {
    "a10": 23028, "a10g": 23028, "a30": 24576, "a40": 46068, "a100-40": 40960, "a100-80": 81920, "a800-80": 81920,
    "a6000": 49140, "b200": 183359, "gh200": 97871, "h20": 97871, "h100": 81559, "h100-80": 81559, "h100-nvl": 95830,
    "h200": 143771, "h800": 81559, "l4": 23034, "l40": 46068, "l40s": 46068, "l40s-48": 46068, "rtx3090": 24576,
    "rtx4090": 24564, "rtx5090": 32607, "rtx6000ada": 49140, "t4": 15360, "v100-16": 16384, "v100-32": 32768,
}  # fmt: skip
"""Total memory as nvidia-smi lists it, by type."""
_SMALLEST_OF_ITS_NAME = {"a100": "a100-40", "v100": "v100-16", "a800": "a100-40"}
"""Types that are sold with two sizes of memory, and the smaller one."""
_SOLD_AS_MEBIBYTES = {16: 15360, 24: 23028, 32: 32607, 40: 40960, 48: 46068, 80: 81559, 94: 95830, 141: 143771}
"""Total memory as listed, by the gigabytes that a card is sold with; of several cards the smallest."""
_LISTED_SHARE = 0.93
"""The smallest of these, over as many GiB as a card is sold with gigabytes, for other sizes."""
_MOST_GPUS = 64
_MOST_GPUS_OF_A_JOB = 9999


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU, as far as planning needs it."""

    name: str
    total_bytes: int
    """As CUDA reports it to an engine."""
    used_bytes: int = 0
    """Taken by other processes."""
    is_assumed: bool = False
    """True where the type has cards of another size too, and the smaller one is assumed."""

    @property
    def usable_bytes(self) -> int:
        """What the engines of this worker may take together."""
        return max(0, self.total_bytes - self.used_bytes)


@dataclass(frozen=True, slots=True)
class CardType:
    """What is known of a job's cards before it runs."""

    count: int
    card: Card | None
    """None where the type's memory is not known."""

    def cards(self) -> list[Card]:
        """Return the cards; empty where their memory is not known."""
        return [self.card] * self.count if self.card is not None else []


def card(name: str, memory_bytes: int, used_bytes: int = 0, *, is_assumed: bool = False) -> Card:
    """Return a card of which nvidia-smi lists so much memory."""
    driver = _DRIVER_BYTES + int(memory_bytes * _DRIVER_SHARE)
    return Card(name, max(0, memory_bytes - driver), used_bytes, is_assumed)


def known_card(type_name: str) -> Card | None:
    """Return the card of a type, as sites call it; None for others.

    For instance `h100`, `A100-80`, `nvidia_a100_80gb_pcie`; or a slice of a card, `1g.10gb` or `a100_3g.20gb` (MIG).
    """
    if mig := re.search(r"\b\dg\.(\d{1,3})gb", type_name.lower().replace("_", " ")):
        return card(type_name.upper(), int(int(mig[1]) * 1024 * _LISTED_SHARE) * _MEBIBYTE)
    for name in _candidates(type_name):
        if name in _KNOWN_MEBIBYTES:
            return card(name.upper(), _KNOWN_MEBIBYTES[name] * _MEBIBYTE)
        if name in _SMALLEST_OF_ITS_NAME:
            smallest = _SMALLEST_OF_ITS_NAME[name]
            return card(smallest.upper(), _KNOWN_MEBIBYTES[smallest] * _MEBIBYTE, is_assumed=True)
    return None


def of_memory(text: str) -> Card:
    """Return a card by its memory: `80` or `80GB` as it is sold, or `81559MiB` as nvidia-smi lists it.

    Raises ValueError.
    """
    match = re.fullmatch(r"\s*(\d{1,6})\s*(gb|gib|mib)?\s*", text, re.IGNORECASE)
    if match is None or int(match[1]) == 0:
        raise ValueError(f"--gpu-memory {text}: expected the memory of one GPU, e.g. 80GB or 81559MiB")
    number, unit = int(match[1]), (match[2] or "gb").lower()
    if unit != "gb":
        return card(f"GPU-{text.strip()}", number << (20 if unit == "mib" else 30))
    listed = _SOLD_AS_MEBIBYTES.get(number, int(number * 1024 * _LISTED_SHARE))
    return card(f"GPU-{number}GB", listed * _MEBIBYTE)


def parse_type(text: str) -> CardType | None:
    """Return the GPUs of `4`, `h100`, `h100:4` or `a100:1,h100:2`, as sbatch counts them; None where it names none.

    Of several types, the one with the least memory stands for all.
    """
    types: list[str] = []
    for part in text.split(","):
        words = part.strip().split(":")
        count = words.pop() if words[-1].isdecimal() else "1"
        if len(words) > 1 or len(count) > len(str(_MOST_GPUS_OF_A_JOB)):
            return None
        types += (words or [""]) * min(int(count), _MOST_GPUS_OF_A_JOB)
    if not types:
        return None
    known = [known_card(name) for name in dict.fromkeys(types)]
    cards = [card for card in known if card is not None]
    return CardType(len(types), min(cards, key=lambda card: card.total_bytes) if len(cards) == len(known) else None)


def parse_gres(text: str) -> CardType | None:
    """Return the GPUs among generic resources such as `gpu:a100:2,nvme:1` or `gres/gpu:2`; None where there are none.

    Shards (`shard:4`) and shares of MPS are parts of one GPU.
    """
    gpus, others = split_gres(text)
    if gpus:
        return parse_type(",".join(gpus))
    return CardType(1, None) if any(map(is_share, others)) else None


def is_share(part: str) -> bool:
    """Return whether a generic resource is a part of a GPU; Slurm takes none beside whole GPUs."""
    return re.match(r"(gres[:/])?(shard|mps)\b", part) is not None


def split_gres(text: str) -> tuple[list[str], list[str]]:
    """Return the GPUs among generic resources, without their name as `a100:2`, and the other resources."""
    parts = [part.strip() for part in re.sub(r"\(.*?\)", "", text).split(",")]
    found = {part: re.fullmatch(r"(?:gres[:/])?gpu(?:[:=](.+))?", part) for part in parts}
    return [match[1] or "1" for match in found.values() if match], [part for part, match in found.items() if not match]


def parse_cards(text: str) -> list[Card]:
    """Return the cards of `4xH100-80`, or `h100:4` as Slurm has it. Raises ValueError."""
    words = re.fullmatch(r"\s*(\d{1,3})\s*[x×]\s*([^:]+)", text, re.IGNORECASE)
    asked = parse_type(f"{words[2]}:{words[1]}" if words else text) if words or ":" in text else None
    if asked is None or asked.card is None or asked.count > _MOST_GPUS:
        known = ", ".join(sorted(_KNOWN_MEBIBYTES)).upper()
        raise ValueError(
            f"--gpus {text}: expected 1 to {_MOST_GPUS} GPUs of a known type, e.g. 4xH100-80; known: {known}"
        )
    return asked.cards()


def _candidates(type_name: str) -> Iterable[str]:
    """Yield a type's name without the words that sites and drivers add to it, the most exact first."""
    text = re.sub(r"[\s_]+", "-", type_name.strip().lower()).replace("rtx-", "rtx")
    words = [w for w in text.split("-") if w and w not in {"nvidia", "geforce", "tesla", "quadro"}]
    head = words[0] if words else ""
    yield "-".join(words)
    if "nvl" in words:
        yield f"{head}-nvl"
    if "ada" in words:
        yield f"{head}ada"
    for word in words[1:]:
        if (size := re.fullmatch(r"(\d{2,3})(gb?)?", word)) is not None:
            yield f"{head}-{size[1]}"
    if (glued := re.fullmatch(r"([a-z]+\d{3})l?(\d{2})g?b?", head)) is not None:  # a100l40, a10080gb
        yield f"{glued[1]}-{glued[2]}"
    yield head


Option: TypeAlias = Union[bool, int, float, str, "Sequence[Option]", "Mapping[str, Option]", None]
Options = Mapping[str, Option]
"""Options of sbatch, as a profile or flags give them, and others beside them."""
GPU_MEMORY = "gpu-memory"
"""Key of a profile, and flag: the memory of one GPU, where its type does not tell."""
_REQUESTS = ("gpus-per-task", "tres-per-task", "gres", "gpus-per-node", "gpus-per-socket", "gpus")
"""Options that ask for GPUs. Of several in a job, Slurm 22.05 gives what the first of these asks for, or rejects it."""
_PER_TASK, _OF_GRES = frozenset(_REQUESTS[:2]), frozenset(_REQUESTS[1:3])


@cache
def cards_here() -> tuple[Card, ...]:
    """Return the cards that this process may use; empty where one does not say how much memory it has.

    They are asked for once: later this worker's own engines would count among what others use.
    """
    found = [card(gpu.name, gpu.memory_bytes, gpu.used_bytes) for gpu in gpus.visible_gpus()]
    return () if any(one.total_bytes == 0 for one in found) else tuple(found)


def num_tasks(sbatch: Options) -> int:
    """Return the tasks that Slurm starts for one job; of a range of nodes, for the fewest."""
    if ntasks := _number(sbatch, "ntasks"):
        return ntasks
    if per_gpu := _number(sbatch, "ntasks-per-gpu"):
        asked = _asked(sbatch)
        return per_gpu * (asked.count if asked else 1)
    sockets = _number(sbatch, "sockets-per-node") if sbatch.get("gpus-per-socket") else 0
    return max(1, _number(sbatch, "ntasks-per-node") or sockets) * _nodes(sbatch)


def cards_of_worker(sbatch: Options, workers_per_task: int = 1) -> CardType | None:
    """Return what `cards_of_job` returns, divided among the workers that share these cards."""
    job = cards_of_job(sbatch)
    return None if job is None else replace(job, count=job.count // (workers_per_task * num_tasks(sbatch)))


_MAIN_MEMORY = {"mem", "mem-per-cpu", "mem-per-gpu"}
"""Options of sbatch that exclude each other."""


def cards_of_job(sbatch: Options) -> CardType | None:
    """Return the number and the type of the cards that sbatch is asked for, on all nodes; None where for none.

    Raises ValueError where `gpu-memory` is not valid.
    """
    memory = of_memory(str(sbatch[GPU_MEMORY])) if sbatch.get(GPU_MEMORY) else None
    asked = _asked(sbatch)
    return asked if asked is None or memory is None else replace(asked, card=memory)


def without_replaced(options: Options, typed: Options) -> dict[str, Any]:
    """Return the options, such as a profile's, that hold beside others that win over them, such as those typed.

    Whoever asks for GPUs by one of sbatch's options means no other option that asks for some, and sbatch takes one of
    those that ask for main memory. The memory of a GPU does not hold for another type. Names may have underscores.
    """
    given = {key.replace("_", "-") for key, value in typed.items() if value is not None}
    if given & _MAIN_MEMORY:
        options = {key: value for key, value in options.items() if key.replace("_", "-") not in _MAIN_MEMORY}
    keys = {key.replace("_", "-"): key for key in options}
    asking = {
        name: value
        for key, value in typed.items()
        if (name := key.replace("_", "-")) in _REQUESTS and value is not None and _is_of_gpus(name, value)
    }
    if not asking:
        return dict(options)
    left = dict(options)
    for name in keys.keys() & set(_REQUESTS):
        value = left[keys[name]]
        if _is_of_gpus(name, value):
            del left[keys[name]]
            if name in _OF_GRES and (others := [part for part in split_gres(str(value))[1] if not is_share(part)]):
                left[keys[name]] = ",".join(others)
    types = _types(asking)
    if types and types != _types({name: options[key] for name, key in keys.items()}):
        left.pop(keys.get(GPU_MEMORY, ""), None)
    if _PER_TASK & asking.keys():  # sbatch takes no ntasks-per-gpu beside it
        left.pop(keys.get("ntasks-per-gpu", ""), None)
    return left


def _asked(sbatch: Options) -> CardType | None:
    """Return the cards of a job; of options for the same cards, those that sbatch goes by."""
    for option in _REQUESTS:
        parse = parse_gres if option in _OF_GRES else parse_type
        asked = parse(str(sbatch[option])) if sbatch.get(option) else None
        if asked is None:
            continue
        factor = 1
        if option in _PER_TASK:
            factor = num_tasks({**sbatch, "ntasks-per-gpu": ""})
        elif option != "gpus":
            factor = _nodes(sbatch) * (_number(sbatch, "sockets-per-node") or 1 if option == "gpus-per-socket" else 1)
        return replace(asked, count=asked.count * factor)
    if per_gpu := _number(sbatch, "ntasks-per-gpu"):
        return CardType(-(-(_number(sbatch, "ntasks") or 1) // per_gpu), None)
    return None


def _is_of_gpus(option: str, value: Option) -> bool:
    if option not in _OF_GRES:
        return True
    whole, others = split_gres(str(value))
    return bool(whole) or any(map(is_share, others))


def _types(options: Options) -> set[str]:
    """Return the types of GPUs that options name."""
    texts = [
        part
        for name, value in options.items()
        if name in _REQUESTS
        for part in (split_gres(str(value))[0] if name in _OF_GRES else str(value).split(","))
    ]
    return {name for text in texts if (name := text.strip().partition(":")[0].lower()) and not name.isdecimal()}


def _nodes(sbatch: Options) -> int:
    return max(1, _number({"nodes": str(sbatch.get("nodes", "")).partition("-")[0]}, "nodes"))


def _number(sbatch: Options, option: str) -> int:
    text = str(sbatch.get(option, ""))
    return int(text) if text.isdecimal() else 0
