"""The models of a run, its adapter and how its engines are started: parts of the run's specification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict

from harness.engine import Role
from jobs.run.identity import added_later, chosen_on_the_node, derived


@dataclass(frozen=True)
class ModelSpec:
    """A model as the run names it and as the nodes find it."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    path: str
    """A local folder, or a hub id that the nodes' cache holds."""
    revision: str | None
    fingerprint: str
    """Content hash of a local folder's configuration and tokenizer, or hub id and revision."""
    training: str | None = derived(None)
    """Hash of the data that it was trained on, where its folder says so (training.json)."""
    server: str | None = added_later(None)
    """Kind of the server that runs it: `vllm`, `sglang`, `llama.cpp`, or `unknown` until a job has asked it; None: the
    worker starts an engine. `path` is then that of its tokenizer. The address is no part of the run."""


@dataclass(frozen=True)
class AdapterSpec:
    """LoRA weights that the target chooses drafts with (SCoT, section 3.4)."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    path: str
    """A local folder, absolute."""
    fingerprint: str
    """Content hash of its weights and configuration."""
    rank: int
    training: str | None = derived(None)
    """Hash of the data that it was trained on, where its folder says so."""


@dataclass(frozen=True)
class EngineSpec:
    """How the engines are started; part of the run because speed depends on it."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    kind: str
    """`vllm`, `transformers` or `scripted`, of the engines that the worker starts; `served` where it starts none."""
    dtype: str = "auto"
    max_context: int | None = None
    """Longest prompt plus completion; None: as much as prompt and token budget need, within the model's limit."""
    draft_tensor_parallel: int | None = chosen_on_the_node(counts_as=1)
    """GPUs that the draft is split over; None: chosen on the node, and recorded in the attempt."""
    target_tensor_parallel: int | None = chosen_on_the_node(counts_as=1)
    draft_memory: float | None = None
    """Share of a GPU's memory (or of the KV-cache memory on a CPU) that the draft engine may use; None: chosen on the
    node."""
    target_memory: float | None = None
    spec_decode: str | None = added_later(None)
    """Who proposes tokens to the target: `draft`, `ngram`, `suffix`, `eagle3` or `mtp`; None: no token-level
    speculation."""
    spec_tokens: int | None = added_later(None)
    """Number of tokens proposed at a time."""
    spec_sampling: str | None = added_later(None, "greedy")
    """How a model draws the tokens that it proposes, `greedy` or `probabilistic`; None: no model proposes, or the run
    is older than this field, and then it is greedy."""
    logprobs: bool | None = added_later(None)
    """Whether the mean log-probability of candidates is asked for; None: where the method reads it."""
    take_turns: bool = added_later(False)
    """True if draft and target never run at the same time."""
    draft_gpus: tuple[int, ...] | None = added_later(None)
    """Numbers of the draft's cards among the worker's; None: both engines on the same cards."""
    target_gpus: tuple[int, ...] | None = added_later(None)
    draft_arguments: Mapping[str, Any] | None = added_later(None)
    """Arguments of vLLM's engine for the draft (`--draft-engine`), by vLLM's names; None: none."""
    target_arguments: Mapping[str, Any] | None = added_later(None)
    reward_gpus: tuple[int, ...] | None = added_later(None)
    reward_memory: float | None = added_later(None)
    """Share of a GPU's memory for the reward model's engine."""
    reward_tensor_parallel: int | None = added_later(None)

    @property
    def cards(self) -> dict[Role, tuple[int, ...] | None]:
        """Numbers of each engine's cards."""
        return {"draft": self.draft_gpus, "target": self.target_gpus, "reward": self.reward_gpus}

    @property
    def memory(self) -> dict[Role, float | None]:
        """Each engine's share of the memory, as it was asked for."""
        return {"draft": self.draft_memory, "target": self.target_memory, "reward": self.reward_memory}

    @property
    def widths(self) -> dict[Role, int | None]:
        """Each engine's number of GPUs, as it was asked for."""
        return {
            "draft": self.draft_tensor_parallel,
            "target": self.target_tensor_parallel,
            "reward": self.reward_tensor_parallel,
        }

    @property
    def arguments(self) -> dict[Role, Mapping[str, Any]]:
        """Arguments of vLLM's engine that were given for each model."""
        return {"draft": self.draft_arguments or {}, "target": self.target_arguments or {}, "reward": {}}
