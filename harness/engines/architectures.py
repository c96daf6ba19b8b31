"""Which models the engines can write with, as their configuration tells.

What vLLM and transformers know is read from their installed source, which is not imported: that would take seconds.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from harness.engines.libraries import source
from harness.engines.speculators import architectures
from harness.weights.models import read_config

_WRITE_NOTHING = (
    "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice",
    "ForNextSentencePrediction", "ForImageClassification", "RewardModel", "EncoderModel", "BertModel", "RobertaModel",
    "CLIPModel",
)  # fmt: skip
"""How the names of architectures end that rate, classify or encode text, in every version of the libraries."""
_OF_VLLM = ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS", "_TRANSFORMERS_SUPPORTED_MODELS")
_OF_TRANSFORMERS = ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES")
_CAUSAL = "give a causal language model"


def writes_nothing(folder: Path) -> str | None:
    """Return why no engine could write with the model in a folder; None where one may.

    Raises ValueError where its config.json is no configuration.
    """
    config = read_config(folder / "config.json")
    names = list(architectures(config))
    kind = ", ".join(names) or str(config.get("model_type"))
    if config.get("is_encoder_decoder") is True:
        return f"config.json: {kind} is an encoder with a decoder: {_CAUSAL}"
    if names and all(name.endswith(_WRITE_NOTHING) for name in names):
        return f"config.json: {kind} writes no text: {_CAUSAL}"
    return None


def unknown_here(folder: Path, engine: str) -> str | None:
    """Return why the installed packages cannot load the model in a folder; None where they may, or are not installed.

    `engine`: `vllm` or `transformers`. Raises ValueError where its config.json is no configuration.
    """
    config = read_config(folder / "config.json")
    if (tokenizer := _tokenizer_with_code(folder)) is not None:
        return tokenizer
    names, model_type = list(architectures(config)), str(config.get("model_type"))
    known, known_types = _written_with(engine), _model_types(engine)
    by_type = [model_type] if engine == "transformers" and any(name.endswith("ForCausalLM") for name in names) else []
    is_known = not known or not names or not known.isdisjoint([*names, *by_type])
    if (not known_types or model_type in known_types) and (is_known or _may_be_a_plugins(engine)):
        return None
    if isinstance(config.get("auto_map"), dict):
        return _own_code("config.json", ", ".join(names) or model_type)
    libraries = "vLLM and transformers" if engine == "vllm" else "transformers"
    return (
        f"config.json: the installed {libraries} write with no {', '.join(names) or 'model'} of type {model_type}: "
        f"{_CAUSAL} that they know, or install versions that know it"
    )


def _own_code(file: str, name: str) -> str:
    return (
        f"{file}: {name} needs the code that comes with the model (auto_map), which is never run: give a model that "
        "transformers knows without it"
    )


def _tokenizer_with_code(folder: Path) -> str | None:
    file = folder / "tokenizer_config.json"
    if not file.is_file():
        return None if (folder / "tokenizer.json").is_file() else _unreadable(folder)
    config = read_config(file)
    name, auto_map, classes = config.get("tokenizer_class"), config.get("auto_map"), _tokenizer_classes()
    known = classes | {"PreTrainedTokenizer"} if classes else None
    has_code = isinstance(auto_map, dict) and auto_map.get("AutoTokenizer")
    if has_code and known is not None and isinstance(name, str) and name.removesuffix("Fast") not in known:
        return _own_code(file.name, name)
    return None if (folder / "tokenizer.json").is_file() else _unreadable(folder)


def _unreadable(folder: Path) -> str | None:
    """Return which package transformers lacks to make a tokenizer of the only file that there is."""
    if (folder / "tokenizer.model").is_file() and not any(map(find_spec, ("sentencepiece", "tiktoken"))):
        return "has tokenizer.model alone: pip install sentencepiece, which reads it, or add the model's tokenizer.json"
    return None


def _may_be_a_plugins(engine: str) -> bool:
    """Return whether a plugin of vLLM from elsewhere is installed, which may bring architectures."""
    modules = {plugin.value.partition(".")[0] for plugin in entry_points(group="vllm.general_plugins")}
    return engine == "vllm" and bool(modules - {"vllm", "harness"})


@cache
def _written_with(engine: str) -> frozenset[str]:
    """Return the architectures that write text; empty where the installed packages do not say."""
    known = set(_strings(_tables("transformers.models.auto.modeling_auto", _OF_TRANSFORMERS)))
    if engine == "vllm":
        own = set(_strings(_tables("vllm.model_executor.models.registry", _OF_VLLM)))
        known = known | own if own else set()
    return frozenset(known)


@cache
def _model_types(engine: str) -> frozenset[str]:
    """Return the types of models whose configuration is read without code of theirs."""
    modules = ("transformers.models.auto.configuration_auto", "transformers.models.auto.auto_mappings")
    known = {name for module in modules for name in _strings([source(module)])}
    if known and engine == "vllm" and (own := source("vllm.transformers_utils.config")) is not None:
        known |= {node.arg for node in ast.walk(own) if isinstance(node, ast.keyword) and node.arg}
        known |= set(_strings([own]))
    return frozenset(known)


@cache
def _tokenizer_classes() -> frozenset[str]:
    return frozenset(_strings([source("transformers.models.auto.tokenization_auto")]))


def _tables(module: str, names: tuple[str, ...]) -> Iterator[ast.AST]:
    """Yield the values of variables of a module."""
    tree = source(module)
    for line in tree.body if tree is not None else ():
        targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
        if any(isinstance(target, ast.Name) and target.id in names for target in targets):
            yield line


def _strings(trees: Iterator[ast.AST] | list[ast.Module | None]) -> Iterator[str]:
    for tree in trees:
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
