"""Token-level speculation inside the target's engine: the target verifies proposed tokens in one forward pass.

Speculative sampling (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318), implemented in vLLM, preserves
the target's distribution. Cheap to import on a login node: needs neither torch nor vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from harness.engine import Role
from harness.engines import registry
from harness.weights import models

Proposer = Literal["draft", "ngram", "suffix", "eagle3", "mtp"]
PROPOSERS: tuple[Proposer, ...] = ("draft", "ngram", "suffix", "eagle3", "mtp")
DraftSampling = Literal["greedy", "probabilistic"]
LOOKUPS: tuple[Proposer, ...] = ("ngram", "suffix")
"""Proposers that copy tokens from the text without a model: they have no weights and do not sample."""
DEFAULT_TOKENS: Mapping[Proposer, int] = {"draft": 5, "ngram": 5, "suffix": 24, "eagle3": 5, "mtp": 1}
"""Number of tokens proposed at a time. Five as in SpecReason (arXiv 2504.07891, section 5.1). For suffix the maximum,
below which vLLM chooses the number itself. One for mtp: most targets have one layer for further tokens."""
SUFFIX_REMEDY = "--spec-decode suffix needs: pip install arctic-inference==0.1.1 (built with a C++20 compiler)"
_NGRAM_LONGEST, _NGRAM_SHORTEST = 4, 2
"""Maximum and minimum length, in tokens, of the text's end that is looked up in the rest of the text."""
SAMPLING_FIELD = "draft_sample_method"
"""Field of vLLM's SpeculativeConfig; versions without it always propose the most probable token."""


@dataclass(frozen=True)
class Speculation:
    """The proposer of tokens, the number of tokens proposed at a time, and their sampling."""

    proposer: Proposer
    tokens: int
    model: str | None = None
    """Folder or hub id of the proposing weights, loaded by the target's engine. None: the target's own weights, or no
    weights."""
    revision: str | None = None
    sampling: DraftSampling = "greedy"

    @property
    def drafts(self) -> bool:
        """True if a model proposes tokens, as opposed to a search in the text."""
        return self.proposer not in LOOKUPS

    def config(self) -> dict[str, str | int]:
        """Return vLLM's `speculative_config`, for a draft with the target's vocabulary."""
        config: dict[str, str | int] = {
            "method": "draft_model" if self.proposer == "draft" else self.proposer,
            "num_speculative_tokens": self.tokens,
        }
        if self.proposer == "ngram":
            config |= {"prompt_lookup_max": _NGRAM_LONGEST, "prompt_lookup_min": _NGRAM_SHORTEST}
        if self.proposer == "suffix":
            # vLLM would also look up tokens in earlier outputs of the engine, including other samples of the same
            # problem. The speed would then depend on the number and order of samples.
            config |= {"suffix_decoding_max_cached_requests": 0}
        if self.model is not None:
            config |= {"model": self.model}
            config |= {"revision": self.revision} if self.revision else {}
        if self.sampling != "greedy":
            config |= {SAMPLING_FIELD: self.sampling}
        return config


def proposer(method: str, spec_decode: str | None) -> Proposer | None:
    """Return the proposer for `--spec-decode`; None without speculation. `spec_decode`: None if the flag is not set.

    Raises ValueError if the flag contradicts the method.
    """
    chosen = spec_decode or ("draft" if method == "specdecode" else "none")
    if method == "specdecode" and chosen == "none":
        valid = ", ".join(PROPOSERS[:-1]) + f" or {PROPOSERS[-1]}"
        raise ValueError(f"--method specdecode requires --spec-decode {valid}; without it, use --method vanilla")
    if method == "vanilla" and chosen != "none":
        raise ValueError("for the target alone with token-level speculation, use --method specdecode")
    return next((candidate for candidate in PROPOSERS if candidate == chosen), None)


def check_flags(
    proposing: Proposer | None, spec_model: str | None, spec_sampling: str | None, spec_tokens: int | None = None
) -> None:
    """Raise ValueError, in one line with the remedy, if a flag does not fit the value of --spec-decode."""
    if spec_model is not None and not spec_model.strip():
        raise ValueError("--spec-model is empty: pass a model's name, a hub id or a folder")
    if proposing is None:
        for flag, value in (("--spec-model", spec_model), ("--spec-sampling", spec_sampling)):
            if value is not None:
                raise ValueError(f"{flag} {value}: requires --spec-decode draft, eagle3 or mtp")
        if spec_tokens is not None:
            raise ValueError(f"--spec-tokens {spec_tokens}: requires --spec-decode {', '.join(PROPOSERS)}")
        return
    if proposing == "eagle3" and spec_model is None:
        raise ValueError("--spec-decode eagle3 requires --spec-model with a head trained for the target")
    if proposing in LOOKUPS:
        if spec_model is not None:
            raise ValueError(f"--spec-model {spec_model}: only for draft, eagle3 and mtp; {proposing} uses no model")
        if spec_sampling is not None:
            raise ValueError(f"--spec-sampling {spec_sampling}: only for draft, eagle3 and mtp, not {proposing}")


def proposing_roles(proposing: str | None, spec_model: str | None) -> tuple[Role, ...]:
    """Return the roles of additional models that propose tokens."""
    return ("draft",) if proposing == "draft" and spec_model is None else ()


def tokens_at_a_time(proposing: Proposer | None, spec_tokens: int | None) -> int | None:
    """Return the number of tokens proposed at a time under `--spec-tokens`; None without a proposer."""
    return None if proposing is None else spec_tokens or DEFAULT_TOKENS[proposing]


def draft_sampling(proposing: str | None, spec_sampling: str | None) -> str | None:
    """Return the sampling of proposed tokens; None if no model proposes tokens.

    `spec_sampling`: None if it is not set; vLLM then proposes the most probable token.
    """
    return None if proposing is None or proposing in LOOKUPS else spec_sampling or "greedy"


def unsupported_reason(
    kind: str, device: str, temperature: float, proposing: str | None = None, *, is_here: bool = True
) -> str | None:
    """Return why token-level speculation is unsupported, in one line with the remedy; None if it is supported.

    `is_here`: whether the workers have the same Python environment as this process; only then is the package
    for suffix checked.
    """
    if not registry.capabilities(kind).speculates:
        return f"token-level speculation requires --engine vllm, not {kind}"
    if device == "cpu" and temperature > 0:
        wrong = "on a CPU with token-level speculation, vLLM samples wrong tokens"
        return f"{wrong} at temperature {temperature}: use --temperature 0, or run on a GPU"
    if is_here and proposing == "suffix" and find_spec("arctic_inference") is None:
        return SUFFIX_REMEDY
    return None


def greedy_drafts_notice(sampling: str | None, temperature: float) -> str | None:
    """Return a notice if greedy drafts make token-level speculation a weaker baseline than sampled drafts, or None."""
    if sampling != "greedy" or temperature <= 0:
        return None
    why = f"the target samples at temperature {temperature:g} and accepts fewer greedy tokens than sampled ones"
    return f"GREEDY DRAFTS: {why}; --spec-sampling probabilistic is a stronger baseline"


def check_pair(proposing: str, target: models.ModelRef, speculator: models.ModelRef | None) -> None:
    """Raise ValueError, in one line, if --spec-model does not fit --spec-decode or the target.

    Rejects an EAGLE-3 head as a draft, any other model as a head, and a head for a different hidden size. vLLM
    checks the rest when the engine starts, and everything if the weights are not available locally.
    """
    config = models.config_at_hand(speculator) if speculator and proposing in ("draft", "eagle3") else None
    if speculator is None or config is None:
        return
    kinds = [*models.architectures(config), str(config.get("speculators_model_type", ""))]
    is_head = any("eagle3" in kind.lower() for kind in kinds) or isinstance(config.get("draft_vocab_size"), int)
    if is_head and proposing == "draft":
        raise ValueError(f"--spec-model {speculator.name} is an EAGLE-3 head: use --spec-decode eagle3")
    if not is_head and proposing == "eagle3":
        kind = ", ".join(filter(None, kinds)) or config.get("model_type") or "an unknown model type"
        raise ValueError(f"--spec-model {speculator.name} is not an EAGLE-3 head but {kind}: use --spec-decode draft")
    ours = models.config_at_hand(target) if is_head else None
    if ours is None:
        return
    layer = config.get("transformer_layer_config")  # of the speculators library
    of_head = layer if isinstance(layer, dict) else config
    reads = config.get("target_hidden_size") or of_head.get("target_hidden_size") or of_head.get("hidden_size")
    text = ours.get("text_config")
    has = (text if isinstance(text, dict) else ours).get("hidden_size")
    if isinstance(reads, int) and isinstance(has, int) and reads != has:
        sizes = f"a target with a hidden size of {reads}, but {target.name} has {has}"
        raise ValueError(f"--spec-model {speculator.name} is for {sizes}: use a head trained for this target")
