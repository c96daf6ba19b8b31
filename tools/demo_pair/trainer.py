"""Training of one stage: batches, losses, optimizer steps, and exact resumption after an interruption."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tools.demo_pair import attention, network
from tools.demo_pair.batches import Batch, Batches
from tools.demo_pair.config import Stage
from tools.demo_pair.network import Learner

_FINAL_RATE = 0.02
"""Learning rate at the end, as a share of the peak."""
_SAVE_INTERVAL_SECONDS = 120.0
_REPORT_INTERVAL_SECONDS = 20.0


class Trainer:
    """Trains one stage, resuming from a checkpoint if there is one."""

    def __init__(self, name: str, stage: Stage, learner: Learner, batches: Batches, state: Path) -> None:
        """`state`: the checkpoint file."""
        learner.has_memory_loss = stage.memory > 0
        self.name, self._stage, self._learner, self.batches, self._state = name, stage, learner, batches, state
        self._parameters = network.trainable_parameters(learner)
        self._optimizer = torch.optim.AdamW(
            self._parameters, lr=stage.rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
        )
        self._seen = 0
        if state.exists():
            self._resume()

    @property
    def finished(self) -> bool:
        """True if the stage has seen all its tokens."""
        return self._seen >= self._stage.tokens

    def run(self, report: Callable[[str], None], stop: Callable[[int], bool] = lambda seen: False) -> None:
        """Train to the end, or until `stop`, called after each batch with the number of tokens seen, returns True."""
        if self.finished:
            return
        models = [self._learner.model, *([self._learner.teacher] if self._learner.teacher else [])]
        with attention.used_in(*models):
            self._run(report, stop)

    def _run(self, report: Callable[[str], None], stop: Callable[[int], bool]) -> None:
        started, seen_at_start = time.monotonic(), self._seen
        saved_at = reported_at = started
        sums: dict[str, list[float]] = {}
        for batch in self.batches:
            for name, loss in self._step(batch).items():
                sums.setdefault(name, []).append(loss)
            self._seen += batch.tokens
            now = time.monotonic()
            if now - reported_at > _REPORT_INTERVAL_SECONDS or self.finished:
                report(self._progress(sums, (self._seen - seen_at_start) / (now - started)))
                sums, reported_at = {}, now
            if self.finished or stop(self._seen) or now - saved_at > _SAVE_INTERVAL_SECONDS:
                self._save()
                saved_at = now
                if self.finished or stop(self._seen):
                    return

    def _step(self, batch: Batch) -> dict[str, float]:
        learner = self._learner
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate()
        with torch.autocast(self._device.type, dtype=torch.bfloat16):
            losses = network.losses(learner, batch)
        weights = {"memory": self._stage.memory, "verdict": learner.verdict_weight}
        weights |= {name: learner.exit_weight for name in losses if "exit" in name}
        # A batch may lack labels of some kind; its loss is then the mean over an empty set, which is NaN.
        total = sum(weights.get(name, 1.0) * loss for name, loss in losses.items() if bool(loss.isfinite()))
        assert isinstance(total, torch.Tensor)
        total.backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return {name: float(loss.detach()) for name, loss in losses.items() if bool(loss.isfinite())}

    def _rate(self) -> float:
        """Return the current learning rate: linear warm-up, constant, linear decay."""
        stage = self._stage
        remaining = (stage.tokens - self._seen) / stage.tokens
        factor = min(1.0, (self._seen + 1) / stage.warmup_tokens, remaining / stage.decay if stage.decay else 1.0)
        return stage.rate * max(factor, _FINAL_RATE)

    def _progress(self, sums: dict[str, list[float]], tokens_per_second: float) -> str:
        losses = " ".join(f"{name} {sum(values) / len(values):.3f}" for name, values in sums.items())
        minutes = max((self._stage.tokens - self._seen) / tokens_per_second / 60, 0)
        seen = f"{self._seen / 1e6:.2f} M tokens, {tokens_per_second:,.0f}/s"
        return f"{self.name}: {seen}, {minutes:.0f} min left: {losses}"

    def _save(self) -> None:
        learner, position = self._learner, self.batches.position
        part = self._state.with_suffix(".part")
        content = {
            "model": learner.model.state_dict(),
            "heads": learner.heads.modules.state_dict(),
            "optimizer": {} if self.finished else self._optimizer.state_dict(),
            "seen": self._seen,
            "position": json.dumps([position.next_example, position.waiting]),
        }
        torch.save(content, part)
        part.replace(self._state)

    def _resume(self) -> None:
        checkpoint: dict[str, Any] = torch.load(self._state, weights_only=True, map_location=self._device)
        self._learner.model.load_state_dict(checkpoint["model"])
        self._learner.heads.modules.load_state_dict(checkpoint["heads"])
        self._seen = checkpoint["seen"]
        self.batches.position.next_example, waiting = json.loads(checkpoint["position"])
        self.batches.position.waiting = {int(width): numbers for width, numbers in waiting.items()}
        if not self.finished:
            self._optimizer.load_state_dict(checkpoint["optimizer"])

    @property
    def _device(self) -> torch.device:
        return next(self._learner.model.parameters()).device
