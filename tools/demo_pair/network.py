"""The pair's architecture (stock Llama), and which layer is trained on which label.

The draft starts from the solver's first layers; an early exit (its own norm with the shared embeddings) makes these
layers usable on their own.

Each layer of the target is trained on one label through an auxiliary linear head that is discarded after training. The
solver's layers predict the next token and keep the current one. The judge's layers, given what the solver expected,
predict the correct token, whether this is the first wrong token, which candidate it belongs to, whether the candidate
has had a wrong token, and, after its end, whether it was right. The verdict only looks up these predictions.
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

from tools.demo_pair.batches import Batch
from tools.demo_pair.config import LayerShape

CONTEXT_TOKENS = 2048
JUDGE_HEADS = ("correct_ids", "is_first_error", "candidate", "is_after_error", "right_candidate")
"""Labels of the judge, in the order of the layers that are trained on them, from the first layer above the solver."""
REWARD_HEADS = ("correct_ids", "is_first_error", "is_after_error")
"""Labels of the reward model, which judges a single step, in the order of layers; its last layer is trained only on the
verdict.
"""
_CANDIDATES = 10
_FIRST_ERROR_WEIGHT = 30.0
"""Weight of the first wrong token in the loss. Only one token in seventy is a first wrong token, so without this weight
a layer could be nearly always right by calling every token correct.
"""
_EPSILON = 1e-6
"""Epsilon of every norm, Llama's default."""


def new_model(
    shape: LayerShape, layers: int, vocabulary: int, end: int, seed: int, *, is_tied: bool = True
) -> LlamaForCausalLM:
    """Return a model with random weights; `end`: id of the end-of-sequence token.

    `is_tied`: whether the output embeddings are tied to the input embeddings.
    """
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=is_tied,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=end,
        attn_implementation="sdpa",
        use_cache=True,
    )
    return LlamaForCausalLM(config)


def with_more_layers(model: LlamaForCausalLM, layers: int, seed: int) -> LlamaForCausalLM:
    """Return the model with `layers` layers in total; the new ones on top add zero to the residual stream."""
    config = model.config
    shape = LayerShape(width=config.hidden_size, inner=config.intermediate_size, heads=config.num_attention_heads)
    deeper = new_model(shape, layers, config.vocab_size, config.eos_token_id, seed)
    missing = deeper.load_state_dict(model.state_dict(), strict=False).missing_keys
    for name in missing:
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            nn.init.zeros_(deeper.get_parameter(name))
    return deeper


def with_layers(model: LlamaForCausalLM, layers: Sequence[int]) -> LlamaForCausalLM:
    """Return a model made of these layers of a model, counted from 1. It is a starting point for training.

    Its output embeddings are not tied, so they can learn verdicts while the input embeddings stay as the layers expect
    them.
    """
    config = model.config
    shape = LayerShape(width=config.hidden_size, inner=config.intermediate_size, heads=config.num_attention_heads)
    chosen = new_model(shape, len(layers), config.vocab_size, config.eos_token_id, 0, is_tied=False)
    weights = model.state_dict()
    chosen_weights = {name: weights[name] for name in chosen.state_dict() if ".layers." not in name}
    for place, layer in enumerate(layers):
        for name, _ in model.model.layers[layer - 1].named_parameters():
            chosen_weights[f"model.layers.{place}.{name}"] = weights[f"model.layers.{layer - 1}.{name}"]
    chosen.load_state_dict(chosen_weights)
    return chosen


class AuxiliaryHeads:
    """Linear heads for the labels, and the norms of early exits; all are discarded after training."""

    def __init__(self, width: int, vocabulary: int, exits: Sequence[int] = ()) -> None:
        self.exits = nn.ModuleDict({str(layer): nn.RMSNorm(width, eps=_EPSILON) for layer in exits})
        sizes = {
            "memory": vocabulary, "correct_ids": vocabulary, "is_first_error": 2, "candidate": _CANDIDATES,
            "is_after_error": 2, "right_candidate": _CANDIDATES,
        }  # fmt: skip
        self.norms = nn.ModuleDict({name: nn.RMSNorm(width) for name in sizes})
        self.heads = nn.ModuleDict({name: nn.Linear(width, size) for name, size in sizes.items()})

        self.modules = nn.ModuleDict({"exits": self.exits, "norms": self.norms, "heads": self.heads})
        """All modules, for checkpoints and the optimizer."""

    def loss(self, name: str, states: Tensor, labels: Tensor, upweighted: Tensor | None = None) -> Tensor:
        """Return the mean cross-entropy of a head on a layer's hidden states, over the tokens that have a label.

        `states`: (batch, tokens, width); `labels` and `upweighted`, a mask of tokens with more weight: (batch, tokens).
        """
        has_label = labels >= 0
        predicted = self.heads[name](self.norms[name](states[has_label]))
        if upweighted is None:
            return functional.cross_entropy(predicted, labels[has_label])
        weights = 1 + (_FIRST_ERROR_WEIGHT - 1) * upweighted[has_label]
        token_losses = functional.cross_entropy(predicted, labels[has_label], reduction="none")
        return (token_losses * weights).sum() / weights.sum()


def hidden_states(model: LlamaForCausalLM, ids: Tensor, frozen_layers: int = 0) -> list[Tensor]:
    """Return the hidden states after the embeddings (index 0) and after each layer, (batch, tokens, width) each.

    `ids` must be right-padded, because only the causal mask is applied. No gradients reach the first `frozen_layers`
    layers.
    """
    base: Any = model.model
    with torch.set_grad_enabled(frozen_layers == 0 and torch.is_grad_enabled()):
        states = [base.embed_tokens(ids)]
        positions = torch.arange(ids.shape[1], device=ids.device)[None]
        position_embeddings = base.rotary_emb(states[0], positions)
    for number, layer in enumerate(base.layers):
        with torch.set_grad_enabled(number >= frozen_layers and torch.is_grad_enabled()):
            states.append(layer(states[-1], position_embeddings=position_embeddings, attention_mask=None))
    return states


def logits(model: LlamaForCausalLM, states: Tensor) -> Tensor:
    """Return the next token's logits, from the last layer's hidden states."""
    base: Any = model.model
    token_logits: Tensor = model.lm_head(base.norm(states))
    return token_logits


@dataclass
class Learner:
    """A model in training, with parts that are discarded afterwards."""

    model: LlamaForCausalLM
    heads: AuxiliaryHeads
    solver_layers: int
    has_memory_loss: bool = False
    """Whether the solver's layers are trained to keep the current token."""
    exit_weight: float = 0.0
    is_judge: bool = False
    """Whether the layers above the solver are trained on the judge's labels and on verdicts."""
    judge_heads: tuple[str, ...] = JUDGE_HEADS
    verdict_weight: float = 1.0
    """Weight of the verdict loss."""
    writes: bool = True
    """Whether the last layer is trained to predict the next token."""
    is_solver_frozen: bool = False
    teacher: LlamaForCausalLM | None = None
    """Model whose scores replace the score labels. None: the labels of the examples are used."""
    digit_ids: tuple[int, ...] = ()
    """Ids of the tokens for the scores 0 to 9."""


def losses(learner: Learner, batch: Batch) -> dict[str, Tensor]:
    """Return the losses by name: next token, early exits, memory, each of the judge's labels, and verdicts."""
    model, heads, solver_layers = learner.model, learner.heads, learner.solver_layers
    states = hidden_states(model, batch.ids, solver_layers if learner.is_solver_frozen else 0)
    has_next = batch.next_ids >= 0
    losses: dict[str, Tensor] = {}
    if learner.writes:
        losses["next_ids"] = functional.cross_entropy(logits(model, states[-1][has_next]), batch.next_ids[has_next])
    for layer, norm in heads.exits.items():
        exit_logits = model.lm_head(norm(states[int(layer)][has_next]))
        losses[f"exit{layer}"] = functional.cross_entropy(exit_logits, batch.next_ids[has_next])
    if learner.has_memory_loss:
        current_ids = torch.where(batch.correct_ids >= 0, batch.ids, batch.correct_ids)
        losses["memory"] = heads.loss("memory", states[solver_layers], current_ids)
    if learner.is_judge:
        for layer, name in enumerate(learner.judge_heads, solver_layers + 1):
            upweighted = batch.is_first_error == 1 if name in {"correct_ids", "is_first_error"} else None
            losses[name] = heads.loss(name, states[layer], getattr(batch, name), upweighted)
        verdict_ids = batch.verdict_ids
        if learner.teacher is not None:
            verdict_ids = with_teacher_scores(learner.teacher, learner.digit_ids, batch)
        verdict_logits = logits(model, states[-1][batch.verdict_rows, batch.verdict_columns])
        losses["verdict"] = verdict_loss(verdict_logits, verdict_ids)
    return losses


def with_teacher_scores(teacher: LlamaForCausalLM, digit_ids: Sequence[int], batch: Batch) -> Tensor:
    """Return `batch.verdict_ids` with the teacher's rounded mean score as the only correct digit of each score.

    A model trained on 9 and 0 alone never answers in between, so all thresholds would give the same result.
    """
    with torch.no_grad():
        states = hidden_states(teacher, batch.ids)[-1][batch.verdict_rows, batch.verdict_columns]
        probabilities = logits(teacher, states)[:, list(digit_ids)].softmax(-1)
    digits = torch.arange(len(digit_ids), device=probabilities.device)
    scores = (probabilities * digits).sum(-1).round().long()
    score_ids = torch.tensor(digit_ids, device=probabilities.device)[scores]
    is_score_id = functional.one_hot(score_ids, batch.verdict_ids.shape[-1]).bool()
    return torch.where(batch.is_score[:, None], is_score_id, batch.verdict_ids)


def verdict_loss(verdict_logits: Tensor, verdict_ids: Tensor) -> Tensor:
    """Return the mean over questions of the negative log of the correct verdicts' total probability.

    `verdict_logits`: (verdicts, vocabulary); `verdict_ids`: mask of the correct tokens, same shape.
    """
    if not len(verdict_logits):
        return verdict_logits.sum()
    correct = verdict_logits.masked_fill(~verdict_ids, float("-inf")).logsumexp(-1)
    return (verdict_logits.logsumexp(-1) - correct).mean()


def first_layers(whole: LlamaForCausalLM, layers: int) -> LlamaForCausalLM:
    """Return a model of the first `layers` layers, with the final norm of the whole model."""
    config = whole.config
    shape = LayerShape(width=config.hidden_size, inner=config.intermediate_size, heads=config.num_attention_heads)
    model = new_model(shape, layers, config.vocab_size, config.eos_token_id, 0)
    model.load_state_dict({name: whole.state_dict()[name] for name in model.state_dict()})
    return model


def with_solver(judge: LlamaForCausalLM, solver: LlamaForCausalLM) -> LlamaForCausalLM:
    """Return the judge with another solver's layers and embeddings below its judging layers; its final norm is kept."""
    model = first_layers(judge, judge.config.num_hidden_layers)
    weights = {name: tensor for name, tensor in solver.state_dict().items() if name != "model.norm.weight"}
    model.load_state_dict(weights, strict=False)
    return model


def truncated(learner: Learner, layers: int) -> LlamaForCausalLM:
    """Return a model of the first `layers` layers, with the norm of the early exit after them if there is one."""
    model = first_layers(learner.model, layers)
    weights = model.state_dict()
    if str(layers) in learner.heads.exits:
        weights["model.norm.weight"] = learner.heads.exits.get_submodule(str(layers)).get_parameter("weight")
    model.load_state_dict(weights)
    return model


def save(model: LlamaForCausalLM, folder: Path) -> None:
    """Write weights (bfloat16) and configuration."""
    stored = LlamaForCausalLM(model.config).to(torch.bfloat16)
    stored.load_state_dict(model.state_dict())
    stored.generation_config.pad_token_id = model.config.pad_token_id
    stored.save_pretrained(folder)


def parameter_count(model: LlamaForCausalLM) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def trainable_parameters(learner: Learner) -> list[nn.Parameter]:
    """Return the parameters for the optimizer. With the solver frozen, its input embeddings are frozen too."""
    heads = list(learner.heads.modules.parameters())
    if not learner.is_solver_frozen:
        return [*learner.model.parameters(), *heads]
    base: Any = learner.model.model
    judging = [parameter for layer in base.layers[learner.solver_layers :] for parameter in layer.parameters()]
    output = [] if learner.model.config.tie_word_embeddings else list(learner.model.lm_head.parameters())
    return [*judging, *base.norm.parameters(), *output, *heads]
