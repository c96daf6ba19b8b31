"""Heads and modules that propose tokens for a target: which are published, and whether one fits a target.

Only configuration files are read, so that a login node can check them without torch or vLLM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.engines.speculation import Proposer
from harness.weights import models


@dataclass(frozen=True, slots=True)
class KnownSpeculator:
    """A published head for a target: seen by name at the hub, not tried here."""

    name: str
    target: str
    """Hub id of the model that it was trained for."""
    hub_id: str
    proposer: Proposer = "eagle3"


SPECULATORS: Mapping[str, KnownSpeculator] = {
    speculator.name: speculator
    for speculator in (
        KnownSpeculator("qwen3-32b-eagle3", "Qwen/Qwen3-32B", "RedHatAI/Qwen3-32B-speculator.eagle3"),
        KnownSpeculator("qwen3-32b-eagle3-angelslim", "Qwen/Qwen3-32B", "AngelSlim/Qwen3-32B_eagle3"),
        KnownSpeculator("qwen3-8b-eagle3-angelslim", "Qwen/Qwen3-8B", "AngelSlim/Qwen3-8B_eagle3"),
        KnownSpeculator("gpt-oss-20b-eagle3", "openai/gpt-oss-20b", "RedHatAI/gpt-oss-20b-speculator.eagle3"),
        KnownSpeculator(
            "r1-distill-llama-8b-eagle3",
            "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
            "yuhuili/EAGLE3-DeepSeek-R1-Distill-LLaMA-8B",
        ),
        KnownSpeculator(
            "llama-3.1-8b-instruct-eagle3", "meta-llama/Llama-3.1-8B-Instruct", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
        ),
    )
}
"""By short name. None is known to exist for the papers' targets; see README.md beside this file."""


def resolve(name: str) -> models.ModelRef:
    """Resolve `--spec-model`: a short name of `SPECULATORS`, or a model as `models.resolve` takes it.

    Raises ValueError and ModelUnavailable.
    """
    known = SPECULATORS.get(name.lower())
    return models.resolve(known.hub_id if known else name)


def config_at_hand(reference: models.ModelRef) -> Mapping[str, Any] | None:
    """Return the config.json of a folder or of the hub's cache; None where it is not on this machine.

    Raises ValueError where the file is no configuration.
    """
    folder = models.files_at_hand(reference.path_or_hub_id, reference.revision)
    if folder is None or not (path := folder / "config.json").is_file():
        return None
    return models.read_config(path)


def check_pair(
    proposing: str,
    target: models.ModelRef,
    speculator: models.ModelRef | None,
    *,
    samples_drafts: bool = False,
) -> None:
    """Raise ValueError, in one line, where the weights cannot propose tokens for this target, as far as files tell.

    `speculator` is what proposes: the draft, the head of eagle3, or separate weights of mtp. `samples_drafts`: drafts
    are sampled and not greedy, which vLLM refuses for a draft with another vocabulary. What is not on this machine is
    not checked here; vLLM checks it when the engine starts.
    """
    target_config = config_at_hand(target)
    if proposing == "mtp" and speculator is None:
        if target_config is not None and not has_prediction_layers(target_config):
            raise ValueError(
                f"--spec-decode mtp: {target.name} has no layers for multi-token prediction; "
                "Qwen3.5, GLM, DeepSeek and MiMo have, or give them as --spec-model"
            )
        return
    if speculator is None or (config := config_at_hand(speculator)) is None:
        return
    if proposing == "eagle3":
        _check_is_head(config, speculator.name)
        if target_config is not None:
            _check_sizes(config, speculator.name, target_config, target.name)
    elif proposing == "draft":
        if _is_head(config):
            raise ValueError(f"--spec-model {speculator.name} is an EAGLE-3 head: give --spec-decode eagle3")
        if samples_drafts and target_config is not None:
            _check_same_vocabulary(config, speculator.name, target_config, target.name)


def trained_for(reference: models.ModelRef) -> str | None:
    """Return the target that a head names in its own configuration, or the table names; None where neither does."""
    known = {speculator.hub_id: speculator.target for speculator in SPECULATORS.values()}
    if (named := known.get(reference.path_or_hub_id)) is not None:
        return named
    config = config_at_hand(reference) or {}
    own = config.get("speculators_config")
    verifier = own.get("verifier") if isinstance(own, dict) else None
    name = verifier.get("name_or_path") if isinstance(verifier, dict) else None
    return name if isinstance(name, str) and name else None


def other_target_notice(target: models.ModelRef, speculator: models.ModelRef) -> str | None:
    """Return a warning where a head was trained for a target of another name; a fine-tune of it may still do."""
    named = trained_for(speculator)
    if named is None or Path(target.path_or_hub_id).is_dir() or named.lower() == target.path_or_hub_id.lower():
        return None
    return (
        f"ANOTHER TARGET: {speculator.name} was trained for {named}, not for {target.name}; "
        "the text stays the target's own, but few proposed tokens may be confirmed."
    )


def has_prediction_layers(config: Mapping[str, Any]) -> bool:
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


def _check_is_head(config: Mapping[str, Any], name: str) -> None:
    if not _is_head(config):
        kind = ", ".join(architectures(config)) or config.get("model_type") or "no architecture"
        raise ValueError(
            f"--spec-model {name} is not an EAGLE-3 head but {kind}: "
            "a whole model proposes tokens with --spec-decode draft"
        )


def _is_head(config: Mapping[str, Any]) -> bool:
    kinds = (*architectures(config), str(config.get("speculators_model_type", "")))
    return any("eagle3" in kind.lower() for kind in kinds) or isinstance(config.get("draft_vocab_size"), int)


def _check_sizes(head: Mapping[str, Any], head_name: str, target: Mapping[str, Any], target_name: str) -> None:
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
            raise ValueError(
                f"--spec-model {head_name} is for a target with {what} of {of_head}, and {target_name} has "
                f"{of_target}: a head works only with the target it was trained for"
            )


def _check_same_vocabulary(
    draft: Mapping[str, Any], draft_name: str, target: Mapping[str, Any], target_name: str
) -> None:
    ours, theirs = _text(draft).get("vocab_size"), _text(target).get("vocab_size")
    if isinstance(ours, int) and isinstance(theirs, int) and ours != theirs:
        raise ValueError(
            f"--spec-sampling probabilistic: {draft_name} and {target_name} have {ours} and {theirs} tokens, and vLLM "
            "samples drafts only where the vocabularies are equal: leave the flag out"
        )


def architectures(config: Mapping[str, Any]) -> Iterator[str]:
    """Return the classes that a configuration names for the model."""
    names = config.get("architectures")
    yield from (name for name in (names if isinstance(names, list) else ()) if isinstance(name, str))


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    text = config.get("text_config")
    return text if isinstance(text, dict) else config
