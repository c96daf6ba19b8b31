"""What the installed vLLM and transformers accept: arguments of an engine (`--target.engine`, …), and models.

It is read from their source, which is not imported: that would take seconds. Where vLLM is not installed, such as on a
login node, the names of arguments that the harness keeps for itself are refused, and the worker checks the rest on its
node. Ranges of numbers are vLLM's to check when the engine starts.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from harness.engine import Json
from harness.engines.speculation import architectures
from harness.weights.models import read_config

_KINDS: Mapping[str, tuple[type, ...]] = {
    "bool": (bool,), "int": (int,), "float": (int, float), "str": (str,), "dict": (dict,), "list": (list,),
    "set": (list,), "tuple": (list,),
}  # fmt: skip
_REASONS = (
    (
        "--{role} names the model: org/name@revision, or a folder",
        "model model_weights tokenizer revision tokenizer_revision code_revision hf_config_path",
    ),
    ("give --dtype", "dtype"),
    ("give --max-context", "max_model_len"),
    ("give --{role}.tensor-parallel", "tensor_parallel_size"),
    ("give --{role}.memory", "gpu_memory_utilization"),
    (
        "a run has one engine a model on each node; its cards are --{role}.tensor-parallel and --{role}.gpus",
        "device_ids pipeline_parallel_size data_parallel_size data_parallel_rank nnodes node_rank master_addr "
        "data_parallel_start_rank data_parallel_size_local data_parallel_address data_parallel_rpc_port master_port "
        "data_parallel_hybrid_lb data_parallel_external_lb data_parallel_multi_port_external_lb data_parallel_backend "
        "distributed_executor_backend",
    ),
    (
        "token-level speculation has flags of its own (--spec-decode)",
        "speculative_config spec_method spec_model spec_tokens",
    ),
    (
        "adapters are served for --target.adapter alone",
        "enable_lora max_loras max_lora_rank default_mm_loras",
    ),
    (
        "the harness sets it, because it reads the engine's replies and times",
        "enable_prefix_caching enable_chunked_prefill scheduling_policy disable_log_stats max_logprobs logprobs_mode "
        "runner convert skip_tokenizer_init language_model_only per_request_spec_decode_metrics stream_interval "
        "distributed_timeout_seconds tokens_only enable_sleep_mode",
    ),
    (
        "it would run code that is not part of the recorded code",
        "trust_remote_code worker_cls worker_extension_cls scheduler_cls logits_processors io_processor_plugin "
        "reasoning_parser_plugin model_class_overrides kv_transfer_config ec_transfer_config log_config_file",
    ),
    ("credentials come from the environment (HF_TOKEN) and are never recorded", "hf_token"),
)
_RESERVED: Mapping[str, str] = {name: reason for reason, names in _REASONS for name in names.split()}
"""Arguments that cannot be given, and why or what to give instead."""
_WORDS: Mapping[type, str] = {
    bool: "true or false", int: "a whole number", float: "a number", str: "text", dict: "a JSON object",
    list: "a JSON list",
}  # fmt: skip
UNPLANNED = ("quantization", "quantization_config", "kv_cache_dtype", "cpu_offload_gb", "hf_overrides", "load_format",
             "num_gpu_blocks_override", "kv_cache_memory_bytes", "block_size")  # fmt: skip
"""Arguments that change the memory of an engine, which its plan (harness.sizing) does not count."""
_METHODS = ("model_executor/layers/quantization/__init__.py", "model_executor/model_loader/__init__.py")


def is_known_here() -> bool:
    """Return whether vLLM is installed here, so that names and types are checked."""
    return bool(_declared())


def check(role: str, arguments: Mapping[str, Json]) -> None:
    """Raise ValueError, in one line that says what is valid, for an argument that the engine of a model cannot get.

    Where vLLM is not installed, only the names that the harness keeps for itself are refused.
    """
    declared = _declared()
    for name, value in arguments.items():
        given = f"--{role}.engine {name}={json.dumps(value) if isinstance(value, dict | list | bool) else value}"
        if name in _RESERVED:
            raise ValueError(f"{given}: {_RESERVED[name].format(role=role)}")
        if declared and name not in declared:
            near = difflib.get_close_matches(name, sorted(set(declared) - set(_RESERVED)), 3, 0.5)
            meant = f"; did you mean {' or '.join(near)}?" if near else ", whose list is: vllm serve --help=all"
            raise ValueError(f"{given}: not an argument of this vLLM's engine{meant}")
        if declared and (valid := _valid_instead(value, declared[name])) is not None:
            raise ValueError(f"{given}: valid: {valid}")


def _valid_instead(value: Json, annotation: str) -> str | None:
    """Return what is valid instead of a value, by the declaration of its argument; None where it may be valid."""
    members = annotation.strip("\"'")
    while members != (members := re.sub(r"\[[^\[\]]*\]", "", members)):  # dict[str, int] | None: dict | None
        pass
    kinds = set(re.findall(r"\w+", members)) - {"None"}
    literals = {kind: _literal(annotation if kind == "Literal" else kind) for kind in kinds - _KINDS.keys()}
    types = {accepted for kind in kinds & _KINDS.keys() for accepted in _KINDS[kind]}
    choices = [choice for values in literals.values() for choice in values]
    if choices and (isinstance(value, str) or not types):
        return None if value in choices else ", ".join(map(str, choices))
    if type(value) in types or not all(literals.values()):  # a type that is not read here: vLLM checks the value
        return None
    return " or ".join(words for accepted, words in _WORDS.items() if accepted in types)


def _literal(text: str) -> list[str]:
    """Return the values of a Literal, given as it is declared or by its name in vLLM; empty where it is none."""
    if text.isidentifier():
        configs = _source("vllm", "config/*.py", *_METHODS)
        alias = re.search(rf"^{text} = (Literal\[.*?\])$", configs, re.M | re.S)
        text = alias[1] if alias else ""
    return re.findall(r"[\"\']([^\"\']+)[\"\']", text)


@cache
def _declared() -> Mapping[str, str]:
    """Return the declared type of every argument of the installed vLLM's engine; empty where there is no vLLM."""
    return {
        field.target.id: ast.unparse(field.annotation)
        for node in ast.parse(_source("vllm", "engine/arg_utils.py")).body
        if isinstance(node, ast.ClassDef) and node.name in ("EngineArgs", "AsyncEngineArgs")
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.target.id[0] != "_"
    }


@cache
def _source(package: str, *files: str) -> str:
    """Return the text of files of a package, which is not imported; empty where it is not installed."""
    spec = find_spec(package)
    folders = (spec.submodule_search_locations or []) if spec is not None else []
    found = (path for folder in folders for file in files for path in sorted(Path(folder).glob(file)))
    return "\n".join(path.read_text(encoding="utf-8") for path in found)


_WRITE_NOTHING = (
    "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice",
    "ForNextSentencePrediction", "ForImageClassification", "RewardModel", "EncoderModel", "BertModel", "RobertaModel",
    "CLIPModel",
)  # fmt: skip
"""How the names of architectures end that rate, classify or encode text, in every version of the libraries."""
_OF_VLLM = ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS", "_TRANSFORMERS_SUPPORTED_MODELS")
_OF_TRANSFORMERS = ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES")
_FAST = "PreTrainedTokenizer"
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
    if (fault := _tokenizer_fault(folder)) is not None:
        return fault
    names, model_type = list(architectures(config)), str(config.get("model_type"))
    known, types = _known(engine)
    by_type = [model_type] if engine == "transformers" and any(name.endswith("ForCausalLM") for name in names) else []
    is_known = not known or not names or not known.isdisjoint([*names, *by_type]) or _may_be_a_plugins(engine)
    if is_known and (not types or model_type in types):
        return None
    if isinstance(config.get("auto_map"), dict):
        return _needs_code("config.json", ", ".join(names) or model_type)
    libraries = "vLLM and transformers" if engine == "vllm" else "transformers"
    unknown = f"{', '.join(names) or 'model'} of type {model_type}"
    return f"config.json: the installed {libraries} write with no {unknown}: {_CAUSAL} that they know, or update them"


def _needs_code(file: str, name: str) -> str:
    return f"{file}: {name} needs the code that comes with the model (auto_map), which is never run: give another model"


def _tokenizer_fault(folder: Path) -> str | None:
    """Return why transformers could not make the tokenizer in a folder without code of the model's."""
    file = folder / "tokenizer_config.json"
    config = read_config(file) if file.is_file() else {}
    name, auto_map = config.get("tokenizer_class"), config.get("auto_map")
    known = _words(_source("transformers", "models/auto/tokenization_auto.py"))
    has_code = isinstance(auto_map, dict) and bool(auto_map.get("AutoTokenizer"))
    if has_code and known and isinstance(name, str) and name.removesuffix("Fast") not in known | {_FAST}:
        return _needs_code(file.name, name)
    return None


def _may_be_a_plugins(engine: str) -> bool:
    """Return whether a plugin of vLLM from elsewhere is installed, which may bring architectures."""
    modules = {plugin.value.partition(".")[0] for plugin in entry_points(group="vllm.general_plugins")}
    return engine == "vllm" and bool(modules - {"vllm", "harness"})


@cache
def _known(engine: str) -> tuple[set[str], set[str]]:
    """Return the architectures that write text, and the types of models whose configuration needs no code of theirs.

    Both are empty where the installed packages do not say.
    """
    names = _words(_source("transformers", "models/auto/modeling_auto.py"), _OF_TRANSFORMERS)
    types = _words(_source("transformers", "models/auto/configuration_auto.py", "models/auto/auto_mappings.py"))
    if engine == "vllm":
        own = _words(_source("vllm", "model_executor/models/registry.py"), _OF_VLLM)
        configs = _source("vllm", "transformers_utils/config.py")
        names, types = names | own if own else set(), types | _words(configs) | set(re.findall(r"(\w+)=", configs))
    return names, types


def _words(source: str, variables: tuple[str, ...] = ()) -> set[str]:
    """Return the words that stand in quotes in a source, or in the values of some of its variables."""
    values = [re.search(rf"^{name}\b.*?^[)}}\]]", source, re.M | re.S) for name in variables]
    parts = [value[0] for value in values if value is not None] if variables else [source]
    return set(re.findall(r"[\"\']([\w.-]+)[\"\']", " ".join(parts)))
