"""An engine that batches the requests of many samples, to evaluate methods without vLLM."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, LlamaForCausalLM

from harness.engine import Choice, Completion, Finish, Generation, Likelihood, Rating, Sampling, Timing
from harness.weights.tokenizer import HFTokenizer
from tools.demo_pair import inference

_ROWS = 256
_UNTIMED = Timing(0.0, 0.0, 0.0, 0.0, 1)
_TURNS = 3
"""Number of event loop iterations without a new request before a batch is computed."""


@dataclass
class _Asked:
    """A pending request; without `sampling`, it is a request for a verdict."""

    prompt: list[int]
    sampling: Sampling | None
    options: list[int] = field(default_factory=list)
    reply: asyncio.Future[Any] = field(default_factory=asyncio.Future)


class BatchEngine:
    """An engine with one model in this process. Requests that arrive before all samples wait are computed as one batch.
    Times are not measured.
    """

    kv_tokens: int | None = None
    restarts: int = 0
    has_head = False

    def __init__(self, model: LlamaForCausalLM, tokenizer: HFTokenizer, context_tokens: int = 1024) -> None:
        self.tokenizer, self.context_tokens = tokenizer, context_tokens
        self._model = model
        self._asked: list[_Asked] = []
        self._answering: asyncio.Task[None] | None = None
        self._pieces = [tokenizer.decode([token]) for token in range(model.config.vocab_size)]

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        """Return the completions of a prompt. Times are zero."""
        completions = await self._ask(_Asked(list(prompt), sampling))
        return Generation(completions, len(prompt), 0, _UNTIMED)

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        """Return the log-probabilities of the options. Times are zero."""
        return Choice(await self._ask(_Asked(list(prompt), None, list(options))), len(prompt), 0, _UNTIMED)

    async def log_probabilities(self, prompt: Sequence[int], continuation: Sequence[int]) -> Likelihood:
        """Not supported: no method evaluated here requests log-probabilities."""
        raise NotImplementedError

    async def rate(self, prompt: Sequence[int]) -> Rating:
        """Not supported: these models have no value head."""
        raise NotImplementedError

    async def reset_prefix_cache(self) -> bool:
        """Return True without doing anything, because there is no prefix cache."""
        return True

    async def close(self) -> None:
        """Do nothing: the model stays in memory."""

    async def _ask(self, asked: _Asked) -> Any:
        self._asked.append(asked)
        if self._answering is None:
            self._answering = asyncio.create_task(self._answer())
        return await asked.reply

    async def _answer(self) -> None:
        turns, waiting = 0, 0
        while turns < _TURNS:
            await asyncio.sleep(0)
            turns = turns + 1 if len(self._asked) == waiting else 0
            waiting = len(self._asked)
        asked, self._asked, self._answering = self._asked, [], None
        verdicts = [one for one in asked if one.sampling is None]
        if verdicts:
            states = inference.final_states(self._model, [one.prompt for one in verdicts])
            for one, row in zip(verdicts, self._model.lm_head(states).detach().log_softmax(-1), strict=True):
                one.reply.set_result(tuple(row[one.options].tolist()))
        drawn = sorted((one for one in asked if one.sampling is not None), key=lambda one: len(one.prompt))
        for start in range(0, len(drawn), _ROWS):
            rows = drawn[start : start + _ROWS]
            for one, completions in zip(rows, self._written(rows), strict=True):
                one.reply.set_result(completions)

    def _written(self, asked: Sequence[_Asked]) -> list[tuple[Completion, ...]]:
        """Return the completions of each request, generated together."""
        prompts = [one.prompt for one in asked]
        samplings = [one.sampling for one in asked if one.sampling is not None]
        repeats = [sampling.n for sampling in samplings]
        rows = [(sampling, i) for sampling in samplings for i in range(sampling.n)]
        steps = _Decoding(self._model, prompts, repeats)
        generators = [torch.Generator().manual_seed(sampling.seed + i) for sampling, i in rows]
        written: list[list[int]] = [[] for _ in rows]
        finish: list[Finish | None] = [None] * len(rows)
        while not all(finish):
            tokens = []
            for row, logits in enumerate(steps.logits):
                sampling = rows[row][0]
                if finish[row] is not None:
                    tokens.append(0)
                    continue
                tokens.append(_drawn(logits, sampling.temperature, generators[row]))
                written[row].append(tokens[-1])
                finish[row] = self._ended(written[row], sampling)
            if not all(finish):
                steps.append(tokens)
        whole = [self._completion(ids, end) for ids, end in zip(written, finish, strict=True)]
        starts = [sum(repeats[:i]) for i in range(len(repeats))]
        return [tuple(whole[start : start + n]) for start, n in zip(starts, repeats, strict=True)]

    def _ended(self, ids: list[int], sampling: Sampling) -> Finish | None:
        if ids[-1] == self.tokenizer.eos_token_id:
            return "eos"
        end = "".join(self._pieces[token] for token in ids[-2:])
        if any(text in end for text in sampling.stop):
            return "stop"
        return "length" if len(ids) >= sampling.max_tokens else None

    def _completion(self, ids: list[int], finish: Finish | None) -> Completion:
        assert finish is not None
        kept = tuple(ids[:-1] if finish == "eos" else ids)
        return Completion(kept, self.tokenizer.decode(kept), finish, len(ids))


def _drawn(logits: Tensor, temperature: float, generator: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    return int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator))


class _Decoding:
    """Token-by-token generation of several rows: their KV cache, and the logits of each row's next token."""

    def __init__(self, model: LlamaForCausalLM, prompts: Sequence[Sequence[int]], repeats: Sequence[int]) -> None:
        """Read each prompt once. `repeats`: number of continuations of each prompt. Shorter prompts are padded on the
        left.
        """
        self._model, width = model, max(map(len, prompts))
        self.logits = torch.empty(0)
        ids = torch.tensor([[0] * (width - len(prompt)) + [*prompt] for prompt in prompts])
        self._mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        self._positions = (self._mask.cumsum(-1) - 1).clamp(min=0)
        self._cache = DynamicCache()
        self._read(ids)
        order = torch.repeat_interleave(torch.arange(len(prompts)), torch.tensor(repeats))
        self._cache.batch_select_indices(order)
        self._mask, self._positions, self.logits = self._mask[order], self._positions[order][:, -1:], self.logits[order]

    def append(self, tokens: Sequence[int]) -> None:
        """Append a token to each row."""
        self._mask = torch.cat([self._mask, torch.ones(len(tokens), 1, dtype=torch.long)], 1)
        self._positions = self._positions[:, -1:] + 1
        self._read(torch.tensor(tokens)[:, None])

    def _read(self, ids: Tensor) -> None:
        with torch.no_grad():
            out: Any = self._model(
                input_ids=ids.to(self._model.device), attention_mask=self._mask.to(self._model.device),
                position_ids=self._positions.to(self._model.device), past_key_values=self._cache, use_cache=True,
                logits_to_keep=1,
            )  # fmt: skip
        self.logits = out.logits[:, -1].float().cpu()
