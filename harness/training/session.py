"""A training in its output folder: `training/` holds data, log, checkpoint and LoRA weights; the result lies above.

OUTPUT/training/data.jsonl      the examples in token ids; their hash is the data's
OUTPUT/training/log.jsonl       a line per optimizer step
OUTPUT/training/checkpoint.pt   while it is under way
OUTPUT/training/adapter/        LoRA weights, once trained
OUTPUT/training.json            what it was made of, once whole
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from harness import models
from harness.engines import adapter as adapters
from harness.training import data, manifest, merging, tuning
from harness.training.data import Examples
from harness.training.settings import Settings, Task


@dataclass(frozen=True)
class Session:
    """One training: what, on what, how, and where to."""

    task: Task
    output: Path
    base: tuning.Base
    settings: Settings
    loss: tuning.Loss

    def run(self, examples: Examples, source: Mapping[str, Any], say: Callable[[str], None]) -> None:
        """Train and write the result; goes on where it stopped, and does nothing where it is finished.

        `source` says where the examples come from. Raises ValueError: nothing to train on, another training's folder,
        or another process at it.
        """
        if not examples.kept:
            raise ValueError(
                f"{source['run_id']} leaves nothing to train on: {dict(examples.left_out) or 'no samples'}"
            )
        work = self.output / "training"
        work.mkdir(parents=True, exist_ok=True)
        with self._alone(work):
            found, content = manifest.find(self.output), data.as_lines(examples.kept)
            identity = tuning.identity(self.base, data.sha256(content), self.settings)
            say(f"{self.task}: {len(examples.kept)} examples, left out: {dict(examples.left_out) or 'none'}")
            if found is not None and found.identity == identity:
                say("This training is finished already.")
                return
            tuning.refuse_other(work, identity)
            (work / "data.jsonl").write_bytes(content)
            adapter = tuning.tune(self.base, examples.kept, self.loss, self.settings, work, identity, say)
            weights = self._merged(adapter) if self.task == "align" else self._copied(adapter)
            about = {
                "sha256": data.sha256(content),
                "num_examples": len(examples.kept),
                "num_tokens": sum(len(example.inputs) for example in examples.kept),
                "left_out": dict(examples.left_out),
                **source,
            }
            made = manifest.Manifest(self.task, identity, weights, asdict(self.base), about, asdict(self.settings))
            manifest.write(self.output, made)

    def _merged(self, adapter: Path) -> str:
        merging.merge(self.base, adapter, self.output)
        return models.folder_fingerprint(self.output)

    def _copied(self, adapter: Path) -> str:
        for name in (adapters.WEIGHTS, adapters.CONFIG):
            shutil.copyfile(adapter / name, self.output / name)
        return adapters.fingerprint(self.output)

    @contextlib.contextmanager
    def _alone(self, work: Path) -> Iterator[None]:
        try:
            with FileLock(work / "lock", timeout=0):
                yield
        except Timeout as busy:
            raise ValueError(f"another process trains into {self.output}") from busy
