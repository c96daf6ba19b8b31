"""What the installed vLLM and transformers accept: arguments of an engine (`--target.engine`, …), and models.

It is read from their source, which is not imported: that would take seconds. Where vLLM is not installed, such as on a
login node, the names of arguments that the harness keeps for itself are refused, and the worker checks the rest on its
node.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import json
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.engine import Json
from harness.engines.speculation import architectures
from harness.weights.models import read_config

_CLASSES = ("EngineArgs", "AsyncEngineArgs")
_KINDS: Mapping[str, tuple[type, ...]] = {
    "bool": (bool,), "int": (int,), "float": (int, float), "str": (str,), "dict": (dict,), "list": (list,),
    "set": (list,), "tuple": (list,),
}  # fmt: skip
_SPECULATION = "token-level speculation has flags of its own (--spec-decode)"
_ADAPTER = "adapters are served for --target.adapter alone"
_MODEL = "{role} names the model: org/name@revision, or a folder"
_ONE_NODE = "a run has one engine a model on each node; its cards are --{role}.tensor-parallel and --{role}.gpus"
_CODE = "it would run code that is not part of the recorded code"
_SET = "the harness sets it, because it reads the engine's replies and times"
_RESERVED: Mapping[str, str] = {
    **dict.fromkeys(
        ("model", "model_weights", "tokenizer", "revision", "tokenizer_revision", "code_revision", "hf_config_path"),
        "--" + _MODEL,
    ),
    "dtype": "give --dtype",
    "max_model_len": "give --max-context",
    "tensor_parallel_size": "give --{role}.tensor-parallel",
    "gpu_memory_utilization": "give --{role}.memory",
    **dict.fromkeys(
        (
            "device_ids", "pipeline_parallel_size", "data_parallel_size", "data_parallel_rank", "nnodes", "node_rank",
            "data_parallel_start_rank", "data_parallel_size_local", "data_parallel_address", "data_parallel_rpc_port",
            "data_parallel_hybrid_lb", "data_parallel_external_lb", "data_parallel_multi_port_external_lb",
            "data_parallel_backend", "master_addr", "master_port", "distributed_executor_backend",
        ),
        _ONE_NODE,
    ),
    **dict.fromkeys(("speculative_config", "spec_method", "spec_model", "spec_tokens"), _SPECULATION),
    **dict.fromkeys(("enable_lora", "max_loras", "max_lora_rank", "default_mm_loras"), _ADAPTER),
    **dict.fromkeys(
        (
            "enable_prefix_caching", "enable_chunked_prefill", "scheduling_policy", "disable_log_stats",
            "max_logprobs", "logprobs_mode", "runner", "convert", "skip_tokenizer_init", "language_model_only",
            "per_request_spec_decode_metrics", "distributed_timeout_seconds", "stream_interval", "tokens_only",
            "enable_sleep_mode",
        ),
        _SET,
    ),
    **dict.fromkeys(
        (
            "trust_remote_code", "worker_cls", "worker_extension_cls", "scheduler_cls", "logits_processors",
            "io_processor_plugin", "reasoning_parser_plugin", "model_class_overrides", "kv_transfer_config",
            "ec_transfer_config", "log_config_file",
        ),
        _CODE,
    ),
    "hf_token": "credentials come from the environment (HF_TOKEN) and are never recorded",
}  # fmt: skip
"""Arguments that cannot be given, and why or what to give instead."""
_WORDS: Mapping[type, str] = {
    bool: "true or false", int: "a whole number", float: "a number", str: "text", dict: "a JSON object",
    list: "a JSON list",
}  # fmt: skip
UNPLANNED = ("quantization", "quantization_config", "kv_cache_dtype", "cpu_offload_gb", "hf_overrides", "load_format",
             "num_gpu_blocks_override", "kv_cache_memory_bytes", "block_size")  # fmt: skip
"""Arguments that change the memory of an engine, which its plan (harness.sizing) does not count."""


_COMPARISONS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "ge": (operator.ge, "at least"),
    "gt": (operator.gt, "above"),
    "le": (operator.le, "at most"),
    "lt": (operator.lt, "below"),
}
"""How a configuration of vLLM limits a number."""


@dataclass(frozen=True)
class _Kind:
    """What an argument may be, as far as its declaration tells."""

    types: tuple[type, ...] = ()
    choices: tuple[Any, ...] = ()
    is_open: bool = False
    """True where the declaration names a type that is not read here: vLLM checks the value."""


def is_known_here() -> bool:
    """Return whether vLLM is installed here, so that names and types are checked."""
    return _declared() is not None


def check(role: str, arguments: Mapping[str, Json]) -> None:
    """Raise ValueError, in one line that says what is valid, for an argument that the engine of a model cannot get.

    Where vLLM is not installed, only the names that the harness keeps for itself are refused.
    """
    declared = _declared()
    for name, value in arguments.items():
        given = f"--{role}.engine {name}={json.dumps(value) if isinstance(value, dict | list | bool) else value}"
        if name in _RESERVED:
            raise ValueError(f"{given}: {_RESERVED[name].format(role=role)}")
        if declared is None:
            continue
        if name not in declared:
            near = difflib.get_close_matches(name, sorted(set(declared) - set(_RESERVED)), 3, 0.5)
            meant = f"; did you mean {' or '.join(near)}?" if near else ", whose list is: vllm serve --help=all"
            raise ValueError(f"{given}: not an argument of this vLLM's engine{meant}")
        if (wrong := _wrong(value, _kind(declared[name])) or _out_of_range(name, value)) is not None:
            raise ValueError(f"{given}: {wrong}")


def _wrong(value: Json, kind: _Kind) -> str | None:
    """Return what is valid instead of the value; None where it may be valid."""
    if value in kind.choices and not isinstance(value, bool):
        return None
    if kind.choices and (isinstance(value, str) or not kind.types):
        return f"valid: {', '.join(map(str, kind.choices))}"
    if kind.is_open or not kind.types or type(value) in kind.types:
        return None
    return f"valid: {' or '.join(_WORDS[accepted] for accepted in _WORDS if accepted in kind.types)}"


def _out_of_range(name: str, value: Json) -> str | None:
    """Return which numbers are valid instead of the value; None where it is none, or may be valid."""
    limits = _limits().get(name, {}) if isinstance(value, int | float) and not isinstance(value, bool) else {}
    if all(_COMPARISONS[word][0](value, limit) for word, limit in limits.items()):
        return None
    return f"valid: {' and '.join(f'{_COMPARISONS[word][1]} {limit:g}' for word, limit in limits.items())}"


@cache
def _limits() -> Mapping[str, Mapping[str, float]]:
    """Return the range of each number that the installed vLLM declares in exactly one of its configurations."""
    found: dict[str, list[dict[str, float]]] = {}
    spec = find_spec("vllm")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for file in sorted(Path(folder).glob("config/*.py")):
            for name, limits in _fields_with_limits(ast.parse(file.read_text(encoding="utf-8"))):
                found.setdefault(name, []).append(limits)
    return {name: declared[0] for name, declared in found.items() if len(declared) == 1}


def _fields_with_limits(tree: ast.Module) -> Iterator[tuple[str, dict[str, float]]]:
    fields = (field for node in tree.body if isinstance(node, ast.ClassDef) for field in node.body)
    for field in fields:
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        keywords = field.value.keywords if isinstance(field.value, ast.Call) else []
        limits = {word.arg: word.value for word in keywords if word.arg in _COMPARISONS}
        with contextlib.suppress(ValueError):  # a limit that is no number, but a name
            yield field.target.id, {word: float(ast.literal_eval(value)) for word, value in limits.items() if word}


@cache
def _declared() -> Mapping[str, ast.expr] | None:
    """Return the declared type of every argument of the installed vLLM's engine; None where there is no vLLM."""
    tree = source("vllm.engine.arg_utils")
    if tree is None:
        return None
    return {
        field.target.id: field.annotation
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name in _CLASSES
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.target.id[0] != "_"
    }


@cache
def source(module: str) -> ast.Module | None:
    """Return the parsed source of a module of a package, which is not imported; None where it is not found."""
    spec = find_spec(module.partition(".")[0])
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        path = Path(folder).joinpath(*module.split(".")[1:])
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return ast.parse(file.read_text(encoding="utf-8"))
    return None


def _kind(annotation: ast.expr) -> _Kind:
    kinds = [_kind_of_one(part) for part in _members(annotation)]
    return _Kind(
        tuple(kind for one in kinds for kind in one.types),
        tuple(choice for one in kinds for choice in one.choices),
        any(one.is_open for one in kinds),
    )


def _members(annotation: ast.expr) -> Iterator[ast.expr]:
    """Yield the members of a union, without None."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.BinOp):
        yield from _members(annotation.left)
        yield from _members(annotation.right)
    elif not (isinstance(annotation, ast.Constant) and annotation.value is None):
        yield annotation


def _kind_of_one(annotation: ast.expr) -> _Kind:
    if isinstance(annotation, ast.Name) and annotation.id not in _KINDS:
        return _Kind(choices=choices) if (choices := _choices_of(annotation.id)) else _Kind(is_open=True)
    if (values := _literal(annotation)) is not None:
        return _Kind(choices=values)
    outer = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    types = _KINDS.get(outer.id) if isinstance(outer, ast.Name) else None
    return _Kind(types) if types else _Kind(is_open=True)


def _literal(annotation: ast.expr) -> tuple[Any, ...] | None:
    """Return the values of a Literal; None for any other type."""
    if not isinstance(annotation, ast.Subscript) or ast.unparse(annotation.value) != "Literal":
        return None
    values = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    return tuple(value.value for value in values if isinstance(value, ast.Constant))


@cache
def _choices_of(alias: str) -> tuple[Any, ...]:
    """Return the values of a Literal that vLLM declares under a name; empty where the name is no Literal."""
    arguments = source("vllm.engine.arg_utils")
    for node in ast.walk(arguments) if arguments is not None else ():
        if isinstance(node, ast.ImportFrom) and node.module and any(name.name == alias for name in node.names):
            declaring = source(node.module)
            for line in declaring.body if declaring is not None else ():
                if isinstance(line, ast.Assign) and alias in map(ast.unparse, line.targets):
                    return _literal(line.value) or ()
    return ()


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
