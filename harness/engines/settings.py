"""The settings with which engines start. Cheap to import on a login node: needs neither torch nor vLLM."""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from harness.engine import Json, Role
from harness.engines import placement, registry
from harness.engines.placement import CONCURRENCY_TO_SPLIT, Placement, core_lists
from harness.engines.served.address import ServedModel
from harness.engines.speculation import Speculation
from harness.environment import accelerator
from harness.settings.roles import ModelSettings
from harness.sizing.memory import BATCHED_TOKENS
from harness.weights.adapter import Adapter
from harness.weights.templates import NO_CONVENTIONS, Conventions

Device = Literal["gpu", "cpu"]

_ALL_SHARES: Mapping[Device, float] = {"gpu": 0.90, "cpu": 1.0}
"""Default memory share of all engines together, if no plan can be calculated (harness.sizing). On a GPU: of the GPU's
memory, including weights; CUDA contexts and NCCL need the rest. On a CPU: of the memory of all KV caches."""
_SHARES_BESIDE: Mapping[Device, Mapping[Role, float]] = {
    "gpu": {"draft": 0.12, "reward": 0.20},
    "cpu": {"draft": 0.25, "reward": 0.25},
}
"""Default shares of the engines beside the target, which gets the rest."""
_CPU_KV_SHARE_OF_MEMORY = 0.15
"""Share of the available memory for all KV caches; float32 weights need most of the rest."""
_CPU_KV_MAX_BYTES = 32 << 30
_CPU_KV_MIN_BYTES = 256 << 20
_CPU_BLOCK_TOKENS = 32
"""The smallest block size of vLLM's CPU attention. The default of 128 would keep short prefixes out of the cache."""
_MOST_REQUESTS = 1024
"""Maximum requests per batch, as in vLLM's server on large GPUs."""


@dataclass(frozen=True)
class EngineSettings:
    """Settings of one engine. Unless stated otherwise, None leaves the choice to the engine."""

    kind: str = "vllm"
    """The engine's name (harness.engines.registry)."""
    device: Device = "cpu"
    dtype: str = "auto"
    """`auto`: the stored type of the weights (on a CPU resolved by pair_settings)."""
    tensor_parallel: int = 1
    visible_devices: tuple[str, ...] | None = None
    """Names of the GPUs that this engine's processes can see; None: all GPUs of the worker."""
    memory_fraction: float = 0.9
    """This engine's share of each GPU's memory."""
    kv_cache_bytes: int | None = None
    """Size of the KV cache; None: the rest of `memory_fraction` after the weights."""
    block_size: int | None = None
    """Tokens per block of the prefix cache."""
    max_context: int | None = None
    """Maximum length of prompt plus completion, in tokens; None: the model's limit."""
    max_num_seqs: int = 128
    """Maximum requests per batch; further requests wait."""
    enforce_eager: bool = False
    """Whether compilation and CUDA graphs are turned off."""
    verdicts_first: bool = False
    """Whether verdicts are scheduled before all other requests."""
    cpu_cores: str | None = None
    """Cores of the engine's threads in vLLM's format: lists, with `|` between ranks (`0,1|2,3`)."""
    speculation: Speculation | None = None
    adapter: Adapter | None = None
    """LoRA weights for verdicts only; all text is written by the base model."""
    arguments: tuple[tuple[str, str], ...] = ()
    """Further arguments of vLLM's engine by name, as JSON; they override the fields above."""
    conventions: Conventions = NO_CONVENTIONS
    """Variables of the chat template and thought tags, if they differ from the model's own."""
    server: ServedModel | None = None
    """The server of the model, for the kind `served`."""


def pair_settings(
    kind: str,
    roles: tuple[Role, ...],
    *,
    dtype: str = "auto",
    max_context: int | None = None,
    models: Mapping[Role, ModelSettings] | None = None,
    concurrency: int = 64,
    candidates: int = 1,
    target_candidates: int = 1,
    take_turns: bool = False,
    device: Device | None = None,
    speculation: Speculation | None = None,
    adapter: Adapter | None = None,
    kv_bytes: int | None = None,
    small: Collection[Role] = (),
) -> dict[Role, EngineSettings]:
    """Return the settings for the engines of one worker, resolved on its node.

    `models`: each engine's tensor-parallel size, GPUs, share of a GPU's memory (on a CPU: of the KV caches), and
    data type if it differs from `dtype`. On GPUs, harness.sizing chooses shares and sizes. `candidates`: parallel
    completions per sample by the draft or the only engine. `target_candidates`: parallel requests per sample to every
    other engine. `adapter`: for the target's verdicts. `take_turns`: whether the engines take turns; if so,
    each has all cores. `small`: roles whose models run on one core if at most two samples are concurrent. `kv_bytes`:
    total size of all KV caches on a CPU; None: derived from the free memory. Raises ValueError if the shares of engines
    on the same GPUs add up to more than 1, or the worker lacks a requested GPU.
    """
    device = device or accelerator()
    own = {role: (models or {}).get(role) or ModelSettings() for role in roles}
    placed: Placement = {role: own[role].gpus for role in roles}
    names = _device_names(kind, device, placed)
    ranks: dict[Role, int] = {role: own[role].tensor_parallel or 1 for role in roles}
    shares: dict[Role, float] = {role: own[role].memory or _default_share(device, role, placed) for role in roles}
    for together in placement.on_each_card(placed):
        if sum(shares[role] for role in together) > 1 + 1e-9:
            found = {role: shares[role] for role in together}
            raise ValueError(f"the engines' memory shares add up to more than 1: {found}")
    settings = {
        role: EngineSettings(
            kind=kind,
            device=device,
            dtype=own[role].dtype or dtype,
            tensor_parallel=ranks[role],
            visible_devices=names[role],
            memory_fraction=shares[role],
            max_context=max_context,
            max_num_seqs=most_requests(role, roles, concurrency, candidates, target_candidates),
            verdicts_first=role == "target",
            speculation=speculation if role == "target" else None,
            adapter=adapter if role == "target" else None,
        )
        for role in roles
    }
    if device == "gpu":
        return settings
    all_bytes = cpu_kv_bytes() if kv_bytes is None else kv_bytes
    one_core = small if concurrency < CONCURRENCY_TO_SPLIT else ()
    cores = core_lists(roles, ranks, 1 if take_turns else concurrency, small=one_core)
    return {
        role: replace(
            one,
            dtype=_cpu_dtype() if one.dtype == "auto" else one.dtype,
            kv_cache_bytes=int(all_bytes * shares[role]),
            block_size=_CPU_BLOCK_TOKENS,
            enforce_eager=True,
            cpu_cores=cores[role],
        )
        for role, one in settings.items()
    }


def _device_names(kind: str, device: Device, placed: Placement) -> dict[Role, tuple[str, ...] | None]:
    if device == "gpu":
        return placement.devices(placed)
    if registry.capabilities(kind).max_cards != 0:
        placement.check(placed, 0, "this node has")
    return dict.fromkeys(placed)


def most_requests(
    role: Role, roles: Collection[Role], concurrency: int, candidates: int, target_candidates: int = 1
) -> int:
    """Return an engine's maximum number of requests per batch (for the arguments see `pair_settings`)."""
    at_once = candidates if role == "draft" or len(roles) == 1 else target_candidates
    return max(1, min(concurrency * at_once, _MOST_REQUESTS))


def batched_tokens(settings: EngineSettings, context: int | None) -> int:
    """Return the maximum number of tokens computed in one batch. `context`: maximum context, in tokens.

    On a GPU, a batch has room for one token and all proposed tokens of every sequence; on a CPU, for a whole prompt.
    """
    per_sequence = 1 + (settings.speculation.tokens if settings.speculation else 0)
    return max(BATCHED_TOKENS, settings.max_num_seqs * per_sequence if settings.device == "gpu" else context or 0)


def cpu_kv_bytes() -> int:
    """Return the total bytes of all KV caches, from the memory available to this process."""
    return max(_CPU_KV_MIN_BYTES, min(_CPU_KV_MAX_BYTES, int(_available_memory() * _CPU_KV_SHARE_OF_MEMORY)))


def _cpu_dtype() -> str:
    """Return bfloat16 if the processor supports it, otherwise float32, because bfloat16 would be emulated."""
    cpu_info = Path("/proc/cpuinfo")
    flags = cpu_info.read_text() if cpu_info.is_file() else ""
    return "bfloat16" if any(name in flags for name in ("amx_bf16", "avx512_bf16", " bf16")) else "float32"


def _default_share(device: Device, role: Role, placed: Placement) -> float:
    beside, whole = _SHARES_BESIDE[device], _ALL_SHARES[device]
    if not placement.shares_a_card(role, placed):
        return whole
    taken = sum(beside[other] for other in placed if other in beside)
    return beside[role] if role in beside else round(whole - taken, 2)


def _available_memory() -> int:
    import psutil

    available = int(psutil.virtual_memory().available)
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.is_file() else "max"
    return min(available, int(text)) if text.isdigit() else available


# Arguments of vLLM's engine that a launch may set (`--target.engine`), and reserved ones.

_REASONS = (
    (
        "use --{role} for the model: org/name@revision, or a folder",
        "model model_weights tokenizer revision tokenizer_revision code_revision hf_config_path",
    ),
    ("use --dtype", "dtype"),
    ("use --max-context", "max_model_len"),
    ("use --{role}.tensor-parallel", "tensor_parallel_size"),
    ("use --{role}.memory", "gpu_memory_utilization"),
    (
        "a run has one engine per model and node; set its GPUs with --{role}.tensor-parallel and --{role}.gpus",
        "device_ids pipeline_parallel_size data_parallel_size data_parallel_rank nnodes node_rank master_addr "
        "data_parallel_start_rank data_parallel_size_local data_parallel_address data_parallel_rpc_port master_port "
        "data_parallel_hybrid_lb data_parallel_external_lb data_parallel_multi_port_external_lb data_parallel_backend "
        "distributed_executor_backend",
    ),
    (
        "use the flags for token-level speculation (--spec-decode)",
        "speculative_config spec_method spec_model spec_tokens",
    ),
    ("adapters are only supported with --target.adapter", "enable_lora max_loras max_lora_rank default_mm_loras"),
    (
        "set by the harness, to read the engine's replies and times",
        "enable_prefix_caching enable_chunked_prefill scheduling_policy disable_log_stats max_logprobs logprobs_mode "
        "runner convert skip_tokenizer_init language_model_only per_request_spec_decode_metrics stream_interval "
        "distributed_timeout_seconds tokens_only enable_sleep_mode",
    ),
    (
        "it would run code that is not recorded",
        "trust_remote_code worker_cls worker_extension_cls scheduler_cls logits_processors io_processor_plugin "
        "reasoning_parser_plugin model_class_overrides kv_transfer_config ec_transfer_config log_config_file",
    ),
    ("credentials are read from the environment (HF_TOKEN) and never recorded", "hf_token"),
)
_RESERVED: Mapping[str, str] = {name: reason for reason, names in _REASONS for name in names.split()}
"""Reserved arguments, each with the reason or the alternative."""
UNPLANNED = ("quantization", "quantization_config", "kv_cache_dtype", "cpu_offload_gb", "hf_overrides", "load_format",
             "num_gpu_blocks_override", "kv_cache_memory_bytes", "block_size")  # fmt: skip
"""Arguments that change the memory that an engine needs, but that harness.sizing ignores."""


def check_arguments(role: str, arguments: Mapping[str, Json]) -> None:
    """Raise ValueError, in one line, for an invalid argument of a model's engine.

    Without vLLM, only the harness's reserved names are rejected. vLLM checks values when the engine starts.
    """
    declared = declared_arguments()
    for name, value in arguments.items():
        given = f"--{role}.engine {name}={json.dumps(value) if isinstance(value, dict | list | bool) else value}"
        if name in _RESERVED:
            raise ValueError(f"{given}: {_RESERVED[name].format(role=role)}")
        if declared and name not in declared:
            near = difflib.get_close_matches(name, sorted(declared - _RESERVED.keys()), 3, 0.5)
            meant = f"; did you mean {' or '.join(near)}?" if near else "; for a list: vllm serve --help=all"
            raise ValueError(f"{given}: not an argument of this vLLM's engine{meant}")


@cache
def declared_arguments() -> frozenset[str]:
    """Return the arguments of the installed vLLM's engine; empty without vLLM.

    They are read from vLLM's source, because importing vLLM takes seconds.
    """
    spec = find_spec("vllm")
    files = [Path(folder) / "engine" / "arg_utils.py" for folder in (spec and spec.submodule_search_locations) or ()]
    return frozenset(
        field.target.id
        for file in files
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name in ("EngineArgs", "AsyncEngineArgs")
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.target.id[0] != "_"
    )
