"""Token-level speculation inside the target's engine: proposed tokens are verified by the target in one forward pass.

Speculative sampling (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318) leaves the target's
distribution unchanged; vLLM implements it. Which heads are published, and whether weights can propose tokens for a
target, is read from configuration files: a login node can import this module, which needs neither torch nor vLLM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from harness.engine import Json, Role
from harness.engines import registry
from harness.weights import models

Proposer = Literal["draft", "ngram", "suffix", "eagle3", "mtp"]
PROPOSERS: tuple[Proposer, ...] = ("draft", "ngram", "suffix", "eagle3", "mtp")
DraftSampling = Literal["greedy", "probabilistic"]
LOOKUPS: tuple[Proposer, ...] = ("ngram", "suffix")
"""Proposers that copy tokens from the text instead of asking a model: they have no weights and sample nothing."""
DEFAULT_TOKENS: Mapping[Proposer, int] = {"draft": 5, "ngram": 5, "suffix": 24, "eagle3": 5, "mtp": 1}
"""Tokens proposed at a time: five as in SpecReason (arXiv 2504.07891, section 5.1); for suffix vLLM's own limit, below
which it decides by itself; for mtp one, because most targets have one layer that predicts a further token."""
_SUFFIX_MODULE = "arctic_inference"
SUFFIX_REMEDY = "--spec-decode suffix needs: pip install arctic-inference==0.1.1 (built with a C++20 compiler)"
_NGRAM_LONGEST, _NGRAM_SHORTEST = 4, 2
"""Longest and shortest suffix of the text, in tokens, that is looked up in the text itself."""
SAMPLING_FIELD = "draft_sample_method"
"""Field of vLLM's SpeculativeConfig; versions without it always take the most probable token."""


@dataclass(frozen=True)
class Speculation:
    """The source of proposed tokens, how many are proposed at a time, and how they are drawn."""

    proposer: Proposer
    tokens: int
    model: str | None = None
    """Folder or hub id of the weights that propose (None: they are the target's own, or there are none); the target's
    engine loads them too."""
    revision: str | None = None
    sampling: DraftSampling = "greedy"

    @property
    def drafts(self) -> bool:
        """True where a model proposes tokens, and not a search in the text."""
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
            # vLLM would also look tokens up in earlier outputs of the engine: among them are other samples of the same
            # problem, so that the speed would depend on the number of samples and on their order.
            config |= {"suffix_decoding_max_cached_requests": 0}
        if self.model is not None:
            config |= {"model": self.model}
            config |= {"revision": self.revision} if self.revision else {}
        if self.sampling != "greedy":
            config |= {SAMPLING_FIELD: self.sampling}
        return config


def proposer(method: str, spec_decode: str | None) -> Proposer | None:
    """Return the source of proposed tokens under `--spec-decode` (None: the flag was not used).

    Raises ValueError where the flag contradicts the method.
    """
    chosen = spec_decode or ("draft" if method == "specdecode" else "none")
    if method == "specdecode" and chosen == "none":
        valid = ", ".join(PROPOSERS[:-1]) + f" or {PROPOSERS[-1]}"
        raise ValueError(f"specdecode is token-level speculation: --spec-decode {valid}; without, it is vanilla")
    if method == "vanilla" and chosen != "none":
        raise ValueError("the target alone under token-level speculation is --method specdecode")
    return next((candidate for candidate in PROPOSERS if candidate == chosen), None)


def check_flags(
    proposing: Proposer | None, spec_model: str | None, spec_sampling: str | None, spec_tokens: int | None = None
) -> None:
    """Raise ValueError, in one line that says what is valid, where the flags beside --spec-decode do not fit it."""
    if spec_model is not None and not spec_model.strip():
        raise ValueError("--spec-model is empty: give a known name (see --list speculators), a hub id or a folder")
    if proposing is None:
        for flag, value in (("--spec-model", spec_model), ("--spec-sampling", spec_sampling)):
            if value is not None:
                raise ValueError(f"{flag} {value}: needs --spec-decode draft, eagle3 or mtp")
        if spec_tokens is not None:
            raise ValueError(f"--spec-tokens {spec_tokens}: needs --spec-decode {', '.join(PROPOSERS)}")
        return
    if proposing == "eagle3" and spec_model is None:
        raise ValueError("--spec-decode eagle3 needs --spec-model: a head trained for the target (--list speculators)")
    if proposing in LOOKUPS:
        if spec_model is not None:
            raise ValueError(f"--spec-model {spec_model}: {proposing} uses no model; draft, eagle3 and mtp do")
        if spec_sampling is not None:
            raise ValueError(f"--spec-sampling {spec_sampling}: {proposing} samples nothing; draft, eagle3 and mtp do")


def proposing_roles(proposing: str | None, spec_model: str | None) -> tuple[Role, ...]:
    """Return the run's models that propose tokens, beside those that the method itself needs."""
    return ("draft",) if proposing == "draft" and spec_model is None else ()


def tokens_at_a_time(proposing: Proposer | None, spec_tokens: int | None) -> int | None:
    """Return how many tokens are proposed at a time under `--spec-tokens`; None where none are proposed."""
    return None if proposing is None else spec_tokens or DEFAULT_TOKENS[proposing]


def draft_sampling(proposing: str | None, spec_sampling: str | None) -> str | None:
    """Return how proposed tokens are drawn; None where nothing is drawn, because no model proposes.

    `spec_sampling` is None for runs that did not ask: vLLM then takes the most probable token.
    """
    return None if proposing is None or proposing in LOOKUPS else spec_sampling or "greedy"


def unsupported_reason(
    kind: str, device: str, temperature: float, proposing: str | None = None, *, is_here: bool = True
) -> str | None:
    """Return why token-level speculation cannot be used, as one line that says what is valid; None where it can.

    `is_here`: whether the workers run in this Python or one like it, so that the packages of suffix are looked for.
    """
    if not registry.capabilities(kind).speculates:
        return f"token-level speculation needs --engine vllm, not {kind}"
    if device == "cpu" and temperature > 0:
        wrong = "on a CPU vLLM draws wrong tokens under token-level speculation"
        return f"{wrong} at temperature {temperature}: give --temperature 0, or run on a GPU"
    if is_here and proposing == "suffix" and find_spec(_SUFFIX_MODULE) is None:
        return SUFFIX_REMEDY
    return None


def greedy_drafts_notice(sampling: str | None, temperature: float) -> str | None:
    """Return the line that says where greedy drafts make token-level speculation a weaker baseline; None elsewhere."""
    if sampling != "greedy" or temperature <= 0:
        return None
    why = f"the target samples at temperature {temperature:g} and confirms fewer of them than of sampled ones"
    return f"GREEDY DRAFTS: {why}: a weaker baseline than --spec-sampling probabilistic"


@dataclass(frozen=True, slots=True)
class KnownSpeculator:
    """A published head for a target: seen by name at the hub, not tried here."""

    name: str
    target: str
    """Hub id of the model that it was trained for."""
    hub_id: str
    proposer: Proposer = "eagle3"


_HEADS = (
    ("qwen3-32b-eagle3", "Qwen/Qwen3-32B", "RedHatAI/Qwen3-32B-speculator.eagle3"),
    ("qwen3-32b-eagle3-angelslim", "Qwen/Qwen3-32B", "AngelSlim/Qwen3-32B_eagle3"),
    ("qwen3-8b-eagle3-angelslim", "Qwen/Qwen3-8B", "AngelSlim/Qwen3-8B_eagle3"),
    ("gpt-oss-20b-eagle3", "openai/gpt-oss-20b", "RedHatAI/gpt-oss-20b-speculator.eagle3"),
    (
        "r1-distill-llama-8b-eagle3",
        "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
        "yuhuili/EAGLE3-DeepSeek-R1-Distill-LLaMA-8B",
    ),
    ("llama-3.1-8b-instruct-eagle3", "meta-llama/Llama-3.1-8B-Instruct", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"),
)
SPECULATORS: Mapping[str, KnownSpeculator] = {head[0]: KnownSpeculator(*head) for head in _HEADS}
"""By short name. None is known to exist for the papers' targets; see README.md beside this file."""


def resolve(name: str) -> models.ModelRef:
    """Resolve `--spec-model`: a short name of `SPECULATORS`, or a model as `models.resolve` takes it.

    Raises ValueError and ModelUnavailable.
    """
    known = SPECULATORS.get(name.lower())
    return models.resolve(known.hub_id if known else name)


def config_at_hand(reference: models.ModelRef) -> Mapping[str, Json] | None:
    """Return the config.json of a folder or of the hub's cache; None where it is not on this machine.

    Raises ValueError where the file is no configuration.
    """
    folder = models.files_at_hand(reference.path_or_hub_id, reference.revision)
    if folder is None or not (path := folder / "config.json").is_file():
        return None
    return models.read_config(path)


def check_pair(
    proposing: str, target: models.ModelRef, speculator: models.ModelRef | None, *, samples_drafts: bool = False
) -> None:
    """Raise ValueError, in one line, where the weights cannot propose tokens for this target, as far as files tell.

    `speculator` is what proposes: the draft, the head of eagle3, or separate weights of mtp. `samples_drafts`: drafts
    are sampled and not greedy, which vLLM refuses for a draft with another vocabulary. What is not on this machine is
    not checked here; vLLM checks it when the engine starts.
    """
    target_config = config_at_hand(target)
    if proposing == "mtp" and speculator is None:
        if target_config is not None and not has_prediction_layers(target_config):
            layers = f"{target.name} has no layers for multi-token prediction"
            raise ValueError(f"--spec-decode mtp: {layers}; Qwen3.5, GLM, DeepSeek and MiMo have, or give --spec-model")
        return
    if speculator is None or (config := config_at_hand(speculator)) is None:
        return
    if proposing == "eagle3":
        if not _is_head(config):
            kind = ", ".join(architectures(config)) or config.get("model_type") or "no architecture"
            raise ValueError(
                f"--spec-model {speculator.name} is not an EAGLE-3 head but {kind}: use --spec-decode draft"
            )
        if target_config is not None:
            _check_sizes(config, speculator.name, target_config, target.name)
    elif proposing == "draft":
        if _is_head(config):
            raise ValueError(f"--spec-model {speculator.name} is an EAGLE-3 head: give --spec-decode eagle3")
        if samples_drafts and target_config is not None:
            ours, theirs = _text(config).get("vocab_size"), _text(target_config).get("vocab_size")
            if isinstance(ours, int) and isinstance(theirs, int) and ours != theirs:
                have = f"{speculator.name} and {target.name} have {ours} and {theirs} tokens"
                raise ValueError(f"--spec-sampling probabilistic: {have}, not the same vocabulary: leave the flag out")


def has_prediction_layers(config: Mapping[str, Json]) -> bool:
    """Return whether a target's configuration names layers for multi-token prediction."""
    if str(config.get("model_type", "")).startswith("mimo_v2") or any(
        "MiMoV2" in name for name in architectures(config)
    ):
        return True  # these have a fixed number of them, which their configuration leaves out
    return any(
        bool(value)
        for part in (config, _text(config))
        for key, value in part.items()
        if "nextn" in key.lower() or "mtp" in key.lower()
    )


def _is_head(config: Mapping[str, Json]) -> bool:
    kinds = (*architectures(config), str(config.get("speculators_model_type", "")))
    return any("eagle3" in kind.lower() for kind in kinds) or isinstance(config.get("draft_vocab_size"), int)


def _check_sizes(head: Mapping[str, Json], head_name: str, target: Mapping[str, Json], target_name: str) -> None:
    """Raise ValueError where a head reads hidden states or tokens of another size than the target's."""
    layer = head.get("transformer_layer_config")
    layer = layer if isinstance(layer, dict) else head
    reads = head.get("target_hidden_size") or layer.get("target_hidden_size") or layer.get("hidden_size")
    sizes = (
        ("a hidden size", reads, _text(target).get("hidden_size")),
        ("a vocabulary", layer.get("vocab_size"), _text(target).get("vocab_size")),
    )
    for what, of_head, of_target in sizes:
        if isinstance(of_head, int) and isinstance(of_target, int) and of_head != of_target:
            wanted = f"a target with {what} of {of_head}, and {target_name} has {of_target}"
            raise ValueError(f"--spec-model {head_name} is for {wanted}: give a head trained for this target")


def architectures(config: Mapping[str, Json]) -> Iterator[str]:
    """Return the classes that a configuration names for the model."""
    names = config.get("architectures")
    yield from (name for name in (names if isinstance(names, list) else ()) if isinstance(name, str))


def _text(config: Mapping[str, Json]) -> Mapping[str, Json]:
    text = config.get("text_config")
    return text if isinstance(text, dict) else config
