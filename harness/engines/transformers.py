"""The reference engine: plain transformers, one request at a time, wherever torch runs.

For machines that vLLM does not support, and to check vLLM's replies. Simple rather than fast: it has no batching and no
prefix cache.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness import gpus
from harness.engine import Choice, Completion, EngineDied, Finish, Generation, Likelihood, Rating, Role, Sampling
from harness.engines import calls
from harness.engines.calls import CallClock, Calls
from harness.engines.settings import EngineSettings
from harness.weights.models import architectures, has_head
from harness.weights.tokenizer import HFTokenizer

if TYPE_CHECKING:
    import torch
    from transformers import Cache, PretrainedConfig, PreTrainedModel

_T = TypeVar("_T")
_HEADS = ("ForSequenceClassification", "ForTokenClassification")
"""Heads that transformers loads without remote code."""


class TransformersEngine:
    """An Engine with one model in this process."""

    kv_tokens: int | None = None
    restarts: int = 0
    """Always 0, because the engine dies with this process."""

    def __init__(self, model_path: str, role: Role, settings: EngineSettings, revision: str | None = None) -> None:
        """Load the model; blocks until it is loaded."""
        from transformers import AutoConfig

        self.role, self.settings = role, settings
        self.tokenizer = HFTokenizer(model_path, revision, settings.conventions)
        config = AutoConfig.from_pretrained(model_path, revision=revision, trust_remote_code=False)
        self.has_head = has_head(config.to_dict())
        model: PreTrainedModel = _loader(config).from_pretrained(
            model_path, revision=revision, dtype=settings.dtype, trust_remote_code=False
        )
        if settings.adapter is not None:
            model.load_adapter(settings.adapter.path)
            model.disable_adapters()
        self._loaded: PreTrainedModel | None = model.to(_device(settings)).eval()
        text_config = model.config.get_text_config()
        self.context_tokens = int(text_config.max_position_embeddings)
        if settings.max_context is not None:
            self.context_tokens = min(self.context_tokens, settings.max_context)
        self._vocabulary = int(text_config.vocab_size)
        self._eos = set[int]() if self.has_head else _eos_ids(model, self.tokenizer)
        self._lock = asyncio.Lock()
        self._calls = Calls()

    @classmethod
    async def start(
        cls,
        model_path: str,
        role: Role,
        settings: EngineSettings,
        log_path: Path | None = None,
        revision: str | None = None,
    ) -> TransformersEngine:
        """Load a model in a thread; writes no log. Raises EngineDied."""
        try:
            return await asyncio.to_thread(cls, model_path, role, settings, revision)
        except (ImportError, OSError, ValueError, RuntimeError) as error:
            traceback.clear_frames(error.__traceback__)  # the frames reference the loaded part of the model
            _release_memory()
            raise EngineDied(f"the {role} engine did not start: {error}") from error

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        self._check(prompt)
        async with self._calls.clocked() as clock:
            completions = await self._in_thread(
                lambda cancelled: self._write(prompt, sampling, cancelled, clock), clock
            )
        return Generation(completions, len(prompt), 0, clock.timing())

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        self._check(prompt)
        calls.check_options(options, self._vocabulary)
        async with self._calls.clocked() as clock:
            logprobs = await self._in_thread(lambda cancelled: self._judge(prompt, options, clock), clock)
        return Choice(calls.finite(self.role, options, logprobs), len(prompt), 0, clock.timing())

    async def log_probabilities(self, prompt: Sequence[int], continuation: Sequence[int]) -> Likelihood:
        calls.check_continuation(prompt, continuation)
        whole = [*prompt, *continuation]
        self._check(whole)
        async with self._calls.clocked() as clock:
            logprobs = await self._in_thread(lambda cancelled: self._read(prompt, continuation, clock), clock)
        return Likelihood(logprobs, len(whole), 0, clock.timing())

    async def rate(self, prompt: Sequence[int]) -> Rating:
        self._check(prompt)
        async with self._calls.clocked() as clock:
            outputs = await self._in_thread(lambda cancelled: self._rate(prompt, clock), clock)
        return Rating(calls.finite(self.role, range(len(outputs)), outputs), len(prompt), 0, clock.timing())

    async def reset_prefix_cache(self) -> bool:
        return self._calls.in_flight == 0

    async def close(self) -> None:
        async with self._lock:
            self._loaded = None
        _release_memory()

    @property
    def _model(self) -> PreTrainedModel:
        assert self._loaded is not None  # checked in `_in_thread`
        return self._loaded

    def _check(self, prompt: Sequence[int]) -> None:
        calls.room_behind(prompt, self.context_tokens, self._vocabulary)

    async def _in_thread(self, work: Callable[[threading.Event], _T], clock: CallClock) -> _T:
        """Run blocking work, one call at a time. If the caller is cancelled, generation stops at the next token."""
        cancelled = threading.Event()
        async with self._lock:
            if self._loaded is None:
                raise EngineDied(f"the {self.role} engine was closed")
            clock.queued_seconds = clock.elapsed()
            thread = asyncio.ensure_future(asyncio.to_thread(work, cancelled))
            try:
                return await asyncio.shield(thread)
            except asyncio.CancelledError:
                cancelled.set()
                await asyncio.wait({thread})
                raise
            except RuntimeError as error:  # a problem of the machine, such as insufficient memory
                raise EngineDied(f"the {self.role} engine failed: {error}") from error

    def _write(
        self, prompt: Sequence[int], sampling: Sampling, cancelled: threading.Event, clock: CallClock
    ) -> tuple[Completion, ...]:
        import torch

        limited = replace(sampling, max_tokens=min(sampling.max_tokens, self.context_tokens - len(prompt)))
        with torch.inference_mode():
            logits, cache = self._forward(prompt, None)
            return tuple(
                self._complete(prompt, logits, cache, replace(limited, seed=sampling.seed + i), cancelled, clock)
                for i in range(sampling.n)
            )

    def _complete(
        self, prompt: Sequence[int], logits: torch.Tensor, shared: Cache, sampling: Sampling,
        cancelled: threading.Event, clock: CallClock,
    ) -> Completion:  # fmt: skip
        import torch

        cache = copy.deepcopy(shared)
        generator = torch.Generator(device="cpu").manual_seed(sampling.seed)
        ids: list[int] = []
        logprobs: list[float] = []
        entropies: list[float] = []
        finish: Finish = "length"
        while len(ids) < sampling.max_tokens and not cancelled.is_set():
            token = _sampled_token(logits, sampling, generator, [*prompt, *ids])
            distribution = torch.log_softmax(logits, -1)
            logprobs.append(float(distribution[token]))
            if sampling.entropies:
                entropies.append(float(torch.special.entr(distribution.exp()).sum()))
            ids.append(token)
            clock.first_token_seconds = clock.first_token_seconds or clock.elapsed()
            if token in self._eos:
                finish = "eos"
                break
            text = self.tokenizer.decode(ids) if sampling.stop else ""
            if any(string in text for string in sampling.stop):
                finish = "stop"
                break
            if len(ids) < sampling.max_tokens:
                logits, cache = self._forward([token], cache)
        kept = tuple(ids[:-1] if finish == "eos" else ids)
        return Completion(
            token_ids=kept,
            text=self.tokenizer.decode(kept),
            finish=finish,
            num_tokens=len(ids),
            mean_logprob=sum(logprobs) / max(1, len(ids)) if sampling.mean_logprob else None,
            token_logprobs=tuple(logprobs) if sampling.token_logprobs else None,
            entropies=tuple(entropies) if sampling.entropies else None,
        )

    def _judge(self, prompt: Sequence[int], options: Sequence[int], clock: CallClock) -> tuple[float, ...]:
        import torch

        has_adapter = self.settings.adapter is not None
        if has_adapter:
            self._model.enable_adapters()
        try:
            with torch.inference_mode():
                logprobs = torch.log_softmax(self._forward(prompt, None)[0], -1)
        finally:
            if has_adapter:
                self._model.disable_adapters()
        clock.first_token_seconds = clock.elapsed()
        return tuple(float(logprobs[i]) for i in options)

    def _read(self, prompt: Sequence[int], continuation: Sequence[int], clock: CallClock) -> tuple[float, ...]:
        import torch

        ids = torch.tensor([[*prompt, *continuation]], device=self._model.device)
        with torch.inference_mode():
            # Logits that predict each token of the continuation; those after its last token are dropped.
            logits = self._model(input_ids=ids, logits_to_keep=len(continuation) + 1).logits[0, :-1].float()
            given = logits.gather(-1, ids[0, len(prompt) :, None])[:, 0] - logits.logsumexp(-1)
        clock.first_token_seconds = clock.elapsed()
        return tuple(given.tolist())

    def _rate(self, prompt: Sequence[int], clock: CallClock) -> tuple[float, ...]:
        import torch

        with torch.inference_mode():
            logits = self._model(input_ids=torch.tensor([list(prompt)], device=self._model.device)).logits
        clock.first_token_seconds = clock.elapsed()
        return tuple(logits.reshape(-1, logits.shape[-1])[-1].float().tolist())  # of the sequence, or of its last token

    def _forward(self, ids: Sequence[int], cache: Cache | None) -> tuple[torch.Tensor, Cache]:
        """Return the next token's logits, shape (vocabulary,) in float32 on the CPU, and the extended KV cache."""
        import torch

        tensor = torch.tensor([list(ids)], device=self._model.device)
        output = self._model(input_ids=tensor, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return output.logits[0, -1].float().cpu(), output.past_key_values


def _sampled_token(
    logits: torch.Tensor, sampling: Sampling, generator: torch.Generator, seen: Sequence[int] = ()
) -> int:
    """Return one token: the most probable one at temperature 0, otherwise a sampled one.

    The parameters apply in vLLM's order: repetition penalty for `seen` tokens, temperature, min-p, top-k, and top-p of
    the remaining tokens.
    """
    import torch

    if sampling.repetition_penalty != 1 and seen:
        ids, penalty = torch.tensor(sorted(set(seen))), sampling.repetition_penalty
        logits = logits.clone()
        logits[ids] = torch.where(logits[ids] > 0, logits[ids] / penalty, logits[ids] * penalty)
    if sampling.temperature == 0:
        return int(logits.argmax())
    probabilities = torch.softmax(logits / sampling.temperature, -1)
    if sampling.min_p > 0:
        probabilities[probabilities < sampling.min_p * probabilities.max()] = 0
    if 0 < sampling.top_k < len(probabilities):
        probabilities[probabilities < probabilities.topk(sampling.top_k).values[-1]] = 0
    if sampling.min_p > 0 or sampling.top_k > 0:
        probabilities = probabilities / probabilities.sum()
    if sampling.top_p < 1:
        ordered, order = probabilities.sort(descending=True)
        outside = ordered.cumsum(-1) - ordered > sampling.top_p
        probabilities[order[outside]] = 0
    return int(torch.multinomial(probabilities, 1, generator=generator))


def _loader(config: PretrainedConfig) -> Any:
    """Return the transformers class that loads a model with its rating head or, if it has none, as a causal model."""
    import transformers

    names = [*architectures(config.to_dict())]
    kind = next((kind for kind in _HEADS if any(name.endswith(kind) for name in names)), "ForCausalLM")
    return getattr(transformers, f"AutoModel{kind}")


def _eos_ids(model: PreTrainedModel, tokenizer: HFTokenizer) -> set[int]:
    configured = model.generation_config.eos_token_id
    ids = {configured} if isinstance(configured, int) else set(configured or ())
    return ids | ({tokenizer.eos_token_id} if tokenizer.eos_token_id is not None else set())


def _device(settings: EngineSettings) -> str:
    """Return torch's name of the engine's device, chosen among all GPUs that the worker process sees."""
    if settings.device == "cpu":
        return "cpu"
    names = gpus.visible_names()
    return f"cuda:{names.index(settings.visible_devices[0])}" if settings.visible_devices else "cuda"


def _release_memory() -> None:
    """Return freed GPU memory to the driver: torch keeps it, but engines in other processes need it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()
