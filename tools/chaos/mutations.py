"""Random ways to damage the content of a file."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import orjson

Mutation = Callable[[random.Random, bytes, bytes], bytes]


def flip(rng: random.Random, content: bytes, _: bytes) -> bytes:
    changed = bytearray(content)
    bit = rng.randrange(8 * len(changed))
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def overwrite(rng: random.Random, content: bytes, _: bytes) -> bytes:
    place = rng.randrange(len(content))
    new = rng.randbytes(rng.randint(1, 64))
    return content[:place] + new + content[place + len(new) :]


def truncate(rng: random.Random, content: bytes, _: bytes) -> bytes:
    return content[: rng.randrange(len(content))]


def insert(rng: random.Random, content: bytes, _: bytes) -> bytes:
    place = rng.randrange(len(content) + 1)
    return content[:place] + rng.choice((b"\n", b"\0" * 9, b"{}", b"[1]\n", rng.randbytes(5))) + content[place:]


def cut_out(rng: random.Random, content: bytes, _: bytes) -> bytes:
    start = rng.randrange(len(content))
    return content[:start] + content[start + rng.randint(1, 1 + len(content) // 4) :]


def repeat(rng: random.Random, content: bytes, _: bytes) -> bytes:
    start = rng.randrange(len(content))
    end = min(len(content), start + rng.randint(1, 1 + len(content) // 4))
    return content[:end] + content[start:end] + content[end:]


def zero(rng: random.Random, content: bytes, _: bytes) -> bytes:
    start = rng.randrange(len(content))
    end = min(len(content), start + rng.randint(1, 4096))
    return content[:start] + b"\0" * (end - start) + content[end:]


def swap(_: random.Random, __: bytes, other: bytes) -> bytes:
    return other


def splice(rng: random.Random, content: bytes, other: bytes) -> bytes:
    place = rng.randrange(min(len(content), len(other)))
    return content[:place] + other[place:]


def change_json(rng: random.Random, content: bytes, _: bytes) -> bytes:
    """Change one value, name or structure in a JSON line, or in the whole file."""
    is_file = content.startswith(b"{\n")
    lines = [content] if is_file else content.split(b"\n")
    number = rng.choice([i for i, line in enumerate(lines) if line.startswith(b"{")])
    record = orjson.loads(lines[number])
    _change(rng, record)
    lines[number] = orjson.dumps(record, option=orjson.OPT_INDENT_2 if is_file else 0)
    return b"\n".join(lines)


def _change(rng: random.Random, record: Any) -> None:
    container, key = record, rng.choice(list(record))
    while isinstance(container[key], dict | list) and container[key] and rng.random() < 0.8:
        container = container[key]
        key = rng.choice(list(container) if isinstance(container, dict) else range(len(container)))
    how, value = rng.randrange(4), container[key]
    if how == 0 and isinstance(container, dict):
        container[f"{key}x"] = container.pop(key)
    elif how == 1:
        del container[key]
    elif how == 2 and isinstance(value, int | float):
        container[key] = value + 1
    else:
        container[key] = rng.choice([None, [], {}, "", [[value]], "x", -1, 1e300, True, {"a": value}])


MUTATIONS: tuple[Mutation, ...] = (flip, flip, overwrite, truncate, insert, cut_out, repeat, zero, swap, splice)
