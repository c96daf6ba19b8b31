"""The training loop with peft's LoRA: seeded, logged, and resumed exactly after an interruption; and the merge.

All randomness (order of the examples, dropout, initial weights) depends only on the seed and the step number, so that a
checkpoint needs only weights, optimizer state and the number of steps. The frozen weights are never written.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.environment import accelerator
from harness.training.hyperparameters import MODULES, Settings
from harness.training.training_examples import Example, Loss

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from torch import Tensor
    from transformers import PreTrainedModel

State = dict[str, Any]
"""A checkpoint: `step`, `weights`, `optimizer`, and in a file the training's `identity`."""
_IDENTITY = "identity"
"""File with the training's identity beside LoRA weights; written last, so it marks them as complete."""


class OtherTraining(ValueError):
    """The folder has the state of another training; the message is one line."""


@dataclass(frozen=True, slots=True)
class Base:
    """The model whose weights stay frozen."""

    path: str
    """A local folder, or a hub id in the cache."""
    revision: str | None
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the optimizer."""

    epoch: int
    examples: tuple[int, ...]
    """Indexes into the list of examples."""


def steps(num_examples: int, settings: Settings) -> list[Step]:
    """Return all optimizer steps in order; each epoch has every example once, in its own random order."""
    size, planned = settings.batch * settings.accumulation, []
    for epoch in range(settings.epochs):
        order = list(range(num_examples))
        random.Random(f"{settings.seed}/{epoch}").shuffle(order)
        planned += [Step(epoch, tuple(order[i : i + size])) for i in range(0, num_examples, size)]
    return planned


def identity(base: Base, data_sha256: str, settings: Settings) -> str:
    """Return a hash over everything that the trained weights depend on, except versions and hardware."""
    inputs = {"base": base.fingerprint, "data": data_sha256, "settings": settings.identity()}
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def tune(
    base: Base,
    examples: Sequence[Example],
    loss: Loss,
    settings: Settings,
    work: Path,
    training_identity: str,
    say: Callable[[str], None] = print,
) -> Path:
    """Train LoRA weights, and return their folder in `work`, in peft's format.

    Resumes from a checkpoint in `work`, and does nothing if the weights are complete. Raises ValueError if the model
    does not have the projections, and OtherTraining.
    """
    adapter, checkpoint = work / "adapter", work / "checkpoint.pt"
    refuse_other(work, training_identity)
    if (adapter / _IDENTITY).exists():
        return adapter
    state = _read_checkpoint(checkpoint)
    model = _with_lora(base, settings)
    training = _Training(model, examples, loss, settings, _shortened(work / "log.jsonl", state["step"] if state else 0))
    if state:
        training.restore(state)
        say(f"resuming after step {training.done} of {len(training.plan)}")
    while training.done < len(training.plan):
        line = training.step()
        if training.done % settings.save_every == 0 or training.done == len(training.plan):
            _write(checkpoint, {"identity": training_identity, **training.state()})
            say(line)
    model.save_pretrained(adapter)
    (adapter / "README.md").unlink(missing_ok=True)  # peft writes an empty template
    (adapter / _IDENTITY).write_text(training_identity)
    checkpoint.unlink(missing_ok=True)
    return adapter


class _Training:
    """Trained weights and optimizer, and how many steps of the plan are done."""

    def __init__(
        self, model: PeftModel, examples: Sequence[Example], loss: Loss, settings: Settings, log: Path
    ) -> None:
        import torch

        self.model, self.examples, self.loss, self.settings = model, examples, loss, settings
        self.plan = steps(len(examples), settings)
        self.done = 0
        self._weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self._optimizer: Any = torch.optim.AdamW(
            self._weights.values(), lr=settings.learning_rate, weight_decay=0.0, foreach=False
        )
        self._log = log

    def step(self) -> str:
        """Make one optimizer step, and return a line about it."""
        import torch

        planned, begun = self.plan[self.done], time.monotonic()
        torch.manual_seed(_seed(self.settings.seed, "step", self.done))
        rate = self.settings.learning_rate * (1 - self.done / len(self.plan))
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        chosen = [self.examples[i] for i in planned.examples]
        size, total = self.settings.batch, 0.0
        for start in range(0, len(chosen), size):
            part = self._losses(chosen[start : start + size]) / len(chosen)
            part.backward()
            total += float(part.detach())
        norm = float(torch.nn.utils.clip_grad_norm_(list(self._weights.values()), self.settings.gradient_norm))
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.done += 1
        record = {
            "step": self.done, "epoch": planned.epoch, "loss": total, "gradient_norm": norm, "learning_rate": rate,
            "examples": len(chosen), "tokens": sum(len(e.inputs) for e in chosen), "seconds": time.monotonic() - begun,
        }  # fmt: skip
        with self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        return f"step {self.done} of {len(self.plan)}: loss {total:.4f}"

    def _losses(self, chosen: Sequence[Example]) -> Tensor:
        """Return the sum of the losses of one batch of examples."""
        inputs = _padded(chosen, self.model.device)
        predictions = max(example.predictions for example in chosen)
        logits = self.model(**inputs, logits_to_keep=predictions, use_cache=False).logits
        return sum(
            self.loss(logits[i, -example.predictions :].float(), example.label_ids) for i, example in enumerate(chosen)
        )

    def state(self) -> State:
        """Return the state for `restore`."""
        weights = {name: weight.detach().cpu() for name, weight in self._weights.items()}
        return {"step": self.done, "weights": weights, "optimizer": self._optimizer.state_dict()}

    def restore(self, state: State) -> None:
        """Continue from a state."""
        import torch

        with torch.no_grad():
            for name, weight in self._weights.items():
                weight.copy_(state["weights"][name])
        self._optimizer.load_state_dict(state["optimizer"])
        self.done = state["step"]


def _shortened(log: Path, done: int) -> Path:
    """Return a log of JSON lines, one per step; on resuming, lines after the checkpoint's step are dropped."""
    log.parent.mkdir(parents=True, exist_ok=True)
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True) if log.exists() else []
    log.write_text("".join(lines[:done]), encoding="utf-8")
    return log


def load(base: Base, settings: Settings) -> PreTrainedModel:
    """Load the frozen model directly onto this machine's device; with several GPUs, its layers are spread over them."""
    import torch
    from transformers import AutoModelForCausalLM

    on_gpu = accelerator() == "gpu"
    dtype = settings.dtype if settings.dtype != "auto" else "bfloat16" if on_gpu else "float32"
    device_map: Any = "auto" if on_gpu and torch.cuda.device_count() > 1 else {"": "cuda:0" if on_gpu else "cpu"}
    return AutoModelForCausalLM.from_pretrained(
        base.path, revision=base.revision, dtype=getattr(torch, dtype), device_map=device_map, trust_remote_code=False
    )


def _with_lora(base: Base, settings: Settings) -> PeftModel:
    import torch
    from peft import LoraConfig, get_peft_model

    model = load(base, settings)
    names = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    if missing := set(MODULES) - names:
        raise ValueError(f"{base.path} has no modules named {', '.join(sorted(missing))}, which LoRA is added to")
    torch.manual_seed(_seed(settings.seed, "weights", 0))
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list(MODULES),
        bias="none",
        task_type="CAUSAL_LM",
    )
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return get_peft_model(model, config).train()


def _padded(examples: Sequence[Example], device: torch.device) -> dict[str, Tensor]:
    """Return the model's inputs, left-padded so that every example's predictions are at the end."""
    import torch

    longest = max(len(example.inputs) for example in examples)
    gaps = [longest - len(example.inputs) for example in examples]
    ids = [[0] * gap + list(example.inputs) for gap, example in zip(gaps, examples, strict=True)]
    inputs = {"input_ids": torch.tensor(ids, device=device)}
    if any(gaps):
        mask = torch.tensor([[0] * gap + [1] * (longest - gap) for gap in gaps], device=device)
        inputs |= {"attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    return inputs


def _seed(seed: int, what: str, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{what}/{number}".encode()).digest()[:4], "big")


def refuse_other(work: Path, training_identity: str) -> None:
    """Raise OtherTraining if `work` has weights or a checkpoint of another identity."""
    checkpoint = _read_checkpoint(work / "checkpoint.pt")
    finished = work / "adapter" / _IDENTITY
    identities = {finished.read_text()} if finished.exists() else set()
    if (identities | ({checkpoint["identity"]} if checkpoint else set())) - {training_identity}:
        raise OtherTraining(
            f"{work.parent} has a training with another model, other data or other settings: give another --output, "
            "or remove it"
        )


def _read_checkpoint(checkpoint: Path) -> State | None:
    import torch

    if not checkpoint.exists():
        return None
    state: State = torch.load(checkpoint, map_location="cpu", weights_only=True)
    return state


def _write(path: Path, state: State) -> None:
    import torch

    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as out:
        torch.save(state, out)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(path)


TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "merges.txt", "added_tokens.json",
    "special_tokens_map.json", "chat_template.jinja", "chat_template.json", "generation_config.json",
)  # fmt: skip
"""Files that are copied unchanged, so that the draft keeps its base's token ids and chat template."""


def merge(base: Base, adapter: Path, output: Path) -> None:
    """Write the merged model into `output`, config.json last, so that the folder is a model only once it is complete.

    Weights are added in float32 and stored in the base's own dtype.
    """
    with tempfile.TemporaryDirectory(prefix=".merging-", dir=output) as work:
        _save(base, adapter, Path(work))
        source = Path(base.path)
        if not source.is_dir():
            from huggingface_hub import snapshot_download

            source = Path(snapshot_download(base.path, revision=base.revision, allow_patterns=list(TOKENIZER_FILES)))
        for name in TOKENIZER_FILES:
            if (source / name).is_file():
                shutil.copyfile(source / name, Path(work) / name)
        for path in sorted(Path(work).iterdir(), key=lambda path: path.name == "config.json"):
            path.replace(output / path.name)


def _save(base: Base, adapter: Path, folder: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(base.path, revision=base.revision, trust_remote_code=False)
    stored = config.dtype or torch.float32
    model: Any = AutoModelForCausalLM.from_pretrained(
        base.path, revision=base.revision, dtype=torch.float32, trust_remote_code=False
    )
    merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload(safe_merge=True)
    merged.to(stored).save_pretrained(folder)
