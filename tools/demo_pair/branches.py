"""Continuations of texts, each from a position inside one of the texts.

The model reads a text once for all its continuations, and continuations that have ended are soon dropped from the
computation. transformers' `generate` would read every prompt again and compute every row until the last one ends.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import DynamicCache, LlamaForCausalLM
from transformers.cache_utils import DynamicLayer

_ROWS = 256
"""Maximum number of continuations written at once."""
_LEFT_SHARE = 0.8
"""Ended continuations are dropped only when less than this share is still going on, because dropping some copies the
remaining ones.
"""
_ROOM = 32
"""Number of further tokens for which a cache is enlarged when it is full, because enlarging it copies it."""


@dataclass(frozen=True)
class Branch:
    """A position in a text, and the token that is written there instead of the text's token."""

    text: int
    """Index of the text."""
    place: int
    """Index of the token in the text."""
    token: int


class _RoomyLayer(DynamicLayer):  # type: ignore[misc]  # transformers is not annotated
    """Keys and values with preallocated space; a DynamicLayer copies all of them for every token."""

    keys: Tensor
    values: Tensor
    _room: tuple[Tensor, ...] = ()

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append keys and values, (rows, heads, tokens, head size), and return all keys and values."""
        used = int(self.get_seq_length())
        if not used:
            super().update(key_states, value_states)
            return self.keys, self.values
        end = used + key_states.shape[2]
        if not self._room or len(self._room[0]) != len(key_states) or self._room[0].shape[2] < end:
            self._room = tuple(functional.pad(old, (0, 0, 0, end - used + _ROOM)) for old in (self.keys, self.values))
        for room, new in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, used:end] = new
        self.keys, self.values = (room[:, :, :end] for room in self._room)
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep only these rows."""
        super().batch_select_indices(indices)
        self._room = ()


def read(model: LlamaForCausalLM, texts: Sequence[Sequence[int]]) -> tuple[Tensor, DynamicCache]:
    """Return the texts' hidden states after the final norm, and their keys and values.

    The states have shape (texts, tokens, width); shorter texts are padded on the right.
    """
    width = max(map(len, texts))
    ids = torch.tensor([[*text, *[0] * (width - len(text))] for text in texts], device=model.device)
    cache = DynamicCache()
    base: Any = model.model
    with torch.no_grad():
        return base(input_ids=ids, past_key_values=cache, use_cache=True).last_hidden_state, cache


def continued(
    model: LlamaForCausalLM,
    cache: DynamicCache,
    branches: Sequence[Branch],
    ends: Collection[int],
    max_tokens: int,
    generator: torch.Generator,
    temperature: float = 1.0,
) -> list[list[int]]:
    """Return each branch's token with its continuation, sampled at `temperature`, at most `max_tokens` tokens in all.

    A continuation ends with the first token in `ends`. `cache`: the texts' keys and values, as returned by `read`.
    """
    order = sorted(range(len(branches)), key=lambda i: branches[i].place)
    written: dict[int, list[int]] = {}
    for start in range(0, len(order), _ROWS):
        rows = order[start : start + _ROWS]
        drawn = _continued(model, cache, [branches[i] for i in rows], ends, max_tokens, generator, temperature)
        written |= zip(rows, drawn, strict=True)
    return [written[i] for i in range(len(branches))]


def _continued(
    model: LlamaForCausalLM,
    texts: DynamicCache,
    branches: Sequence[Branch],
    ends: Collection[int],
    max_tokens: int,
    generator: torch.Generator,
    temperature: float = 1.0,
) -> list[list[int]]:
    written = [[branch.token] for branch in branches]
    rows = [i for i, branch in enumerate(branches) if branch.token not in ends]
    cache, mask = _prefixes(texts, [branches[i] for i in rows])
    for _ in range(1, max_tokens):
        if not rows:
            break
        ids = torch.tensor([written[i][-1] for i in rows], device=model.device)
        mask = torch.cat([mask, mask.new_ones(len(rows), 1)], 1)
        with torch.no_grad():
            out: Any = model(
                input_ids=ids[:, None], attention_mask=mask, position_ids=mask.sum(1, keepdim=True) - 1,
                past_key_values=cache, use_cache=True,
            )  # fmt: skip
        probabilities = (out.logits[:, -1].float() / temperature).softmax(-1).cpu()
        drawn = torch.multinomial(probabilities, 1, generator=generator)[:, 0].tolist()
        for i, token in zip(rows, drawn, strict=True):
            if written[i][-1] not in ends:
                written[i].append(token)
        kept = [at for at, i in enumerate(rows) if written[i][-1] not in ends]
        if len(kept) < _LEFT_SHARE * len(rows):
            rows, mask = [rows[at] for at in kept], mask[kept]
            cache.batch_select_indices(torch.tensor(kept, dtype=torch.long, device=model.device))
    return written


def _prefixes(texts: DynamicCache, branches: Sequence[Branch]) -> tuple[DynamicCache, Tensor]:
    """Return the keys and values before each branch's place, and their mask, (branches, tokens)."""
    cache = DynamicCache()
    cache.layers = [_RoomyLayer() for _ in texts.layers]
    device = texts.layers[0].keys.device
    width = max((branch.place for branch in branches), default=0)
    rows = torch.tensor([branch.text for branch in branches], dtype=torch.long, device=device)
    places = torch.tensor([branch.place for branch in branches], dtype=torch.long, device=device)
    for number, layer in enumerate(texts.layers):
        cache.update(layer.keys[rows, :, :width], layer.values[rows, :, :width], number)
    return cache, (torch.arange(width, device=device)[None] < places[:, None]).long()
