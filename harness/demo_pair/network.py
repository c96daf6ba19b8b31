"""The pair's architecture, stock Llama, and what is learned by which layer.

The draft begins as the solver's first layers, which an early exit (a norm of its own and the common embeddings) makes
of use alone.

The layers of the target have one thing each to know, read off by a linear reader that is thrown away when training has
ended: the solver's layers which token comes next, and which stands here; the judge's layers, from what the solver
expected, which token should stand here, whether this is the first mistake, in which candidate it stands, whether there
has been a mistake in it, and behind it whether it is right. The verdict is then a matter of looking it up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from harness.demo_pair.batches import Batch
from harness.demo_pair.config import Shape

CONTEXT_TOKENS = 2048
READERS = ("stands", "first", "number", "since", "named")
"""Marks, in the order of the layers behind the solver that learn them."""
_CANDIDATES = 10
_RARE = 30.0
"""Weight of a first mistake: one token in seventy is one, and a layer that calls every token right is nearly always
right itself."""
_EPSILON = 1e-6
"""Of every norm, Llama's default."""


def new(shape: Shape, layers: int, vocabulary: int, end: int, seed: int) -> LlamaForCausalLM:
    """A model with random weights; input and output share their embeddings."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=end,
        attn_implementation="sdpa",
        use_cache=True,
    )
    return LlamaForCausalLM(config)


def deepened(model: LlamaForCausalLM, layers: int, seed: int) -> LlamaForCausalLM:
    """The same model with further layers on top that add nothing yet: what they write into the stream is zero."""
    config = model.config
    shape = Shape(width=config.hidden_size, inner=config.intermediate_size, heads=config.num_attention_heads)
    deeper = new(shape, layers, config.vocab_size, config.eos_token_id, seed)
    kept = model.state_dict()
    missing = deeper.load_state_dict(kept, strict=False).missing_keys
    for name in missing:
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            nn.init.zeros_(deeper.get_parameter(name))
    return deeper


class Readers:
    """Linear readers of the marks, and the norms of early exits."""

    def __init__(self, width: int, vocabulary: int, exits: Sequence[int] = ()) -> None:
        self.exits = nn.ModuleDict({str(layer): nn.RMSNorm(width, eps=_EPSILON) for layer in exits})
        sizes = {"memory": vocabulary, "stands": vocabulary, "first": 2, "number": _CANDIDATES, "since": 2}
        sizes["named"] = _CANDIDATES
        self.norms = nn.ModuleDict({name: nn.RMSNorm(width) for name in sizes})
        self.heads = nn.ModuleDict({name: nn.Linear(width, size) for name, size in sizes.items()})

        self.modules = nn.ModuleDict({"exits": self.exits, "norms": self.norms, "heads": self.heads})
        """All of them: what is saved, and what an optimiser changes."""

    def loss(self, name: str, stream: Tensor, marks: Tensor, rare: Tensor | None = None) -> Tensor:
        """Cross entropy of what can be read from a layer's stream, over the tokens that have a mark.

        `rare`: the tokens that weigh more.
        """
        marked = marks >= 0
        read = self.heads[name](self.norms[name](stream[marked]))
        if rare is None:
            return functional.cross_entropy(read, marks[marked])
        weights = 1 + (_RARE - 1) * rare[marked]
        return (functional.cross_entropy(read, marks[marked], reduction="none") * weights).sum() / weights.sum()


def streams(model: LlamaForCausalLM, ids: Tensor, frozen: int = 0) -> list[Tensor]:
    """What stands behind the embeddings (0) and behind each layer; (batch, tokens, width) each.

    Right-padded, so that the causal mask is all the mask there is. The first `frozen` layers learn nothing.
    """
    base: Any = model.model
    with torch.set_grad_enabled(frozen == 0 and torch.is_grad_enabled()):
        found = [base.embed_tokens(ids)]
        places = torch.arange(ids.shape[1], device=ids.device)[None]
        turns = base.rotary_emb(found[0], places)
    for number, layer in enumerate(base.layers):
        with torch.set_grad_enabled(number >= frozen and torch.is_grad_enabled()):
            found.append(layer(found[-1], position_embeddings=turns, attention_mask=None))
    return found


def logits(model: LlamaForCausalLM, stream: Tensor) -> Tensor:
    """Of the next token."""
    base: Any = model.model
    out: Tensor = model.lm_head(base.norm(stream))
    return out


@dataclass
class Learner:
    """A model in training, and what is thrown away behind it."""

    model: LlamaForCausalLM
    readers: Readers
    solver: int
    """Layers that solve."""
    remembers: bool = False
    """Whether the solver's layers are to keep which token stands where."""
    exit_weight: float = 0.0
    judges: bool = False
    frozen: bool = False
    """Whether the solver's layers learn nothing any more."""
    elder: LlamaForCausalLM | None = None
    """Who says how sure a score may be; without one a right step is worth 9 and a wrong one 0."""
    digits: tuple[int, ...] = ()
    """The tokens of the scores."""


def losses(learner: Learner, batch: Batch) -> dict[str, Tensor]:
    """By name: of the next token, and where it is taught, of the solver's memory, of each mark, and of the verdict."""
    model, readers, solver = learner.model, learner.readers, learner.solver
    judges, frozen = learner.judges, learner.frozen
    found = streams(model, batch.ids, solver if frozen else 0)
    followed = batch.follow >= 0
    losses = {"follow": functional.cross_entropy(logits(model, found[-1][followed]), batch.follow[followed])}
    for layer, norm in readers.exits.items():
        said = model.lm_head(norm(found[int(layer)][followed]))
        losses[f"exit{layer}"] = functional.cross_entropy(said, batch.follow[followed])
    if learner.remembers:
        here = batch.stands >= 0
        losses["memory"] = readers.loss("memory", found[solver], torch.where(here, batch.ids, batch.stands))
    if judges:
        for layer, name in enumerate(READERS, solver + 1):
            rare = batch.first == 1 if name in {"stands", "first"} else None
            losses[name] = readers.loss(name, found[layer], getattr(batch, name), rare)
        right = batch.right if learner.elder is None else graded(learner.elder, learner.digits, batch)
        losses["verdict"] = verdict_loss(logits(model, found[-1][batch.asked, batch.last]), right)
    return losses


def graded(elder: LlamaForCausalLM, digits: Sequence[int], batch: Batch) -> Tensor:
    """`batch.right` with the digit for how sure the elder is of a step, in place of 9 for right and 0 for wrong.

    Who was taught 9 and 0 alone says nothing in between, and every threshold is the same to it.
    """
    with torch.no_grad():
        said = logits(elder, streams(elder, batch.ids)[-1][batch.asked, batch.last])[:, list(digits)].softmax(-1)
    tens = torch.arange(len(digits), device=said.device)
    sure = (said * tens).sum(-1).round().long()
    token = torch.tensor(digits, device=said.device)[sure]
    by_sureness = functional.one_hot(token, batch.right.shape[-1]).bool()
    return torch.where(batch.scored[:, None], by_sureness, batch.right)


def verdict_loss(said: Tensor, right: Tensor) -> Tensor:
    """Of verdicts: minus the log probability of all right answers together.

    `said`: logits (verdicts, vocabulary); `right`: which tokens are right, likewise.
    """
    if not len(said):
        return said.sum()
    all_right = said.masked_fill(~right, float("-inf")).logsumexp(-1)
    return (said.logsumexp(-1) - all_right).mean()


def cut(learner: Learner, layers: int) -> LlamaForCausalLM:
    """The model of the first layers alone; its end is the early exit behind them, where they have one."""
    whole, config = learner.model, learner.model.config
    shape = Shape(width=config.hidden_size, inner=config.intermediate_size, heads=config.num_attention_heads)
    model = new(shape, layers, config.vocab_size, config.eos_token_id, 0)
    kept = {name: weights for name, weights in whole.state_dict().items() if name in model.state_dict()}
    if str(layers) in learner.readers.exits:
        kept["model.norm.weight"] = learner.readers.exits.get_submodule(str(layers)).get_parameter("weight")
    model.load_state_dict(kept)
    return model


def compile_layers(model: LlamaForCausalLM) -> None:
    """One layer's program for all of them: nearly twice as fast on a processor, after seconds a shape."""
    for layer in model.model.layers:
        layer.compile()


def save(model: LlamaForCausalLM, folder: Path) -> None:
    """Weights and configuration in half the bytes; what is measured afterwards is what was stored."""
    stored = LlamaForCausalLM(model.config).to(torch.bfloat16)
    stored.load_state_dict(model.state_dict())
    stored.generation_config.pad_token_id = model.config.pad_token_id
    stored.save_pretrained(folder)


def parameters(model: LlamaForCausalLM) -> int:
    """Count of them."""
    return sum(parameter.numel() for parameter in model.parameters())


def learned(learner: Learner) -> list[nn.Parameter]:
    """What an optimiser may change. Where the solver is frozen, so are the embeddings."""
    readers = list(learner.readers.modules.parameters())
    if not learner.frozen:
        return [*learner.model.parameters(), *readers]
    base: Any = learner.model.model
    judging = [parameter for layer in base.layers[learner.solver :] for parameter in layer.parameters()]
    return [*judging, *base.norm.parameters(), *readers]
