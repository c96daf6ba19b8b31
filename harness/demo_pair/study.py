"""One part of a training: batches, losses, steps; resumed exactly where it was interrupted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from harness.demo_pair import network
from harness.demo_pair.batches import Batch, Batches
from harness.demo_pair.config import Study
from harness.demo_pair.network import Learner

_FLOOR = 0.02
"""Of the learning rate, at the end."""
_SAVE_SECONDS = 120.0
_TELL_SECONDS = 20.0


class Course:
    """The course of one study: where it stands, and how it goes on."""

    def __init__(self, name: str, study: Study, learner: Learner, batches: Batches, state: Path) -> None:
        """`state`: the file that it can be resumed from."""
        learner.remembers = study.memory > 0
        self.name, self._study, self._learner, self.batches, self._state = name, study, learner, batches, state
        self._parameters = network.learned(learner)
        self._optimizer = torch.optim.AdamW(
            self._parameters, lr=study.rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
        )
        self._seen = 0
        if state.exists():
            self._resume()

    @property
    def finished(self) -> bool:
        """Whether all its tokens have been seen."""
        return self._seen >= self._study.tokens

    def run(self, tell: Callable[[str], None], stop: Callable[[int], bool] = lambda seen: False) -> None:
        """Go on to the end, or until `stop` says so, asked with the tokens seen so far after each batch."""
        if self.finished:
            return
        network.compile_layers(self._learner.model)
        started, began_at = time.monotonic(), self._seen
        saved = told = started
        sums: dict[str, list[float]] = {}
        for batch in self.batches:
            for name, loss in self._step(batch).items():
                sums.setdefault(name, []).append(loss)
            self._seen += batch.tokens
            now = time.monotonic()
            if now - told > _TELL_SECONDS or self.finished:
                tell(self._progress(sums, (self._seen - began_at) / (now - started)))
                sums, told = {}, now
            if self.finished or stop(self._seen) or now - saved > _SAVE_SECONDS:
                self._save()
                saved = now
                if self.finished or stop(self._seen):
                    return

    def _step(self, batch: Batch) -> dict[str, float]:
        learner = self._learner
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate()
        losses = network.losses(learner, batch)
        weights = {"memory": self._study.memory, **{name: learner.exit_weight for name in losses if "exit" in name}}
        # A batch may hold no mark of a kind; the mean over none of them is not a number.
        total = sum(weights.get(name, 1.0) * loss for name, loss in losses.items() if bool(loss.isfinite()))
        assert isinstance(total, torch.Tensor)
        total.backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return {name: float(loss.detach()) for name, loss in losses.items() if bool(loss.isfinite())}

    def _rate(self) -> float:
        """Up in a line, level, and down in a line."""
        study = self._study
        left = (study.tokens - self._seen) / study.tokens
        shape = min(1.0, (self._seen + 1) / study.warmup_tokens, left / study.decay if study.decay else 1.0)
        return study.rate * max(shape, _FLOOR)

    def _progress(self, sums: dict[str, list[float]], pace: float) -> str:
        shown = " ".join(f"{name} {sum(values) / len(values):.3f}" for name, values in sums.items())
        left = (self._study.tokens - self._seen) / pace / 60
        return f"{self.name}: {self._seen / 1e6:.2f} M tokens, {pace:,.0f}/s, {max(left, 0):.0f} min left: {shown}"

    def _save(self) -> None:
        learner, place = self._learner, self.batches.place
        part = self._state.with_suffix(".part")
        content = {
            "model": learner.model.state_dict(),
            "readers": learner.readers.modules.state_dict(),
            "optimizer": {} if self.finished else self._optimizer.state_dict(),
            "seen": self._seen,
            "place": json.dumps([place.next_lesson, place.waiting]),
        }
        torch.save(content, part)
        part.replace(self._state)

    def _resume(self) -> None:
        kept: dict[str, Any] = torch.load(self._state, weights_only=True, map_location=self._device)
        self._learner.model.load_state_dict(kept["model"])
        self._learner.readers.modules.load_state_dict(kept["readers"])
        self._seen = kept["seen"]
        self.batches.place.next_lesson, waiting = json.loads(kept["place"])
        self.batches.place.waiting = {int(width): numbers for width, numbers in waiting.items()}
        if not self.finished:
            self._optimizer.load_state_dict(kept["optimizer"])

    @property
    def _device(self) -> torch.device:
        return next(self._learner.model.parameters()).device
