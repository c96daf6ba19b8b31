"""A training in its output folder: `training/` has data, log, checkpoint and LoRA weights; the result is beside it.

OUTPUT/training/data.jsonl      the examples in token ids; the file's hash identifies the data
OUTPUT/training/log.jsonl       one line per optimizer step
OUTPUT/training/checkpoint.pt   during the training
OUTPUT/training/adapter/        LoRA weights, after the training
OUTPUT/training.json            the manifest, once the result is complete
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from harness.training import manifest, tuning
from harness.training.hyperparameters import Settings, Task
from harness.training.training_examples import Examples, Loss, as_lines, sha256
from harness.weights import adapter as adapters
from harness.weights import models


@dataclass(frozen=True)
class Session:
    """One training: task, output folder, base model, settings and loss."""

    task: Task
    output: Path
    base: tuning.Base
    settings: Settings
    loss: Loss

    def run(self, examples: Examples, source: Mapping[str, Any], say: Callable[[str], None]) -> None:
        """Train and write the result; an interrupted training resumes, and a finished one is a no-op.

        `source` describes the origin of the examples. Raises ValueError without examples, and if the folder has another
        training or is in use by another process.
        """
        if not examples.kept:
            raise ValueError(f"{source['run_id']} has no usable examples: {dict(examples.left_out) or 'no samples'}")
        work = self.output / "training"
        work.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(work / "lock", timeout=0):
                self._run(examples, source, work, say)
        except Timeout as busy:
            raise ValueError(f"another process is training into {self.output}") from busy

    def _run(self, examples: Examples, source: Mapping[str, Any], work: Path, say: Callable[[str], None]) -> None:
        finished, content = manifest.find(self.output), as_lines(examples.kept)
        identity = tuning.identity(self.base, sha256(content), self.settings)
        say(f"{self.task}: {len(examples.kept)} examples, left out: {dict(examples.left_out) or 'none'}")
        if finished is not None and finished.identity == identity:
            say("This training is already finished.")
            return
        tuning.refuse_other(work, identity)
        (work / "data.jsonl").write_bytes(content)
        adapter = tuning.tune(self.base, examples.kept, self.loss, self.settings, work, identity, say)
        if self.task == "align":
            tuning.merge(self.base, adapter, self.output)
            weights = models.folder_fingerprint(self.output)
        else:
            for name in (adapters.WEIGHTS, adapters.CONFIG):
                shutil.copyfile(adapter / name, self.output / name)
            weights = adapters.fingerprint(self.output)
        about = {
            "sha256": sha256(content),
            "num_examples": len(examples.kept),
            "num_tokens": sum(len(example.inputs) for example in examples.kept),
            "left_out": dict(examples.left_out),
            **source,
        }
        manifest.write(
            self.output,
            manifest.Manifest(self.task, identity, weights, asdict(self.base), about, asdict(self.settings)),
        )
