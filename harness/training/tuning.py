"""LoRA training with peft in an output folder: seeded, logged, and resumed exactly after an interruption.

OUTPUT/training/data.jsonl      the examples in token ids; the file's hash identifies the data
OUTPUT/training/log.jsonl       one line per optimizer step
OUTPUT/training/identity        hash over base, data and settings
OUTPUT/training/checkpoint.pt   the state for resuming, only during training
OUTPUT/training/adapter/        LoRA weights, after training
OUTPUT/training.json            the manifest, once the result is complete

All randomness (order of examples, dropout, initial weights) depends only on the seed and the step number, so a
checkpoint contains only weights, optimizer state and the number of steps. Frozen weights are never written. Runs with
the trained weights record the hash of the training data from the manifest.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt
from filelock import FileLock, Timeout

from harness import environment
from harness.engine import Json
from harness.settings.declaration import Flag
from harness.training.training_examples import Example, Examples, Loss, as_lines
from harness.weights import adapter as adapters
from harness.weights import models
from harness.weights.adapter import MOST_RANK
from harness.weights.models import ModelRef

if TYPE_CHECKING:
    from peft import PeftModel
    from torch import Tensor
    from transformers import PreTrainedModel

Task = Literal["align", "select"]
"""align: the draft learns to think as the target does (3.3). select: the target learns to choose a draft (3.4)."""
MODULES = ("q_proj", "v_proj")
"""Modules with LoRA (section 3.3): the query and value projections of every layer."""
MANIFEST = "training.json"
Say = Callable[[str], None]


def _said(text: str, default: str | None = None) -> Flag:
    return Flag("Training", text, default=default)


_Count = Annotated[int, Ge(1)]


@dataclass(frozen=True)
class Settings:
    """Hyper-parameters for training. The defaults are from SCoT's paper, otherwise from its code."""

    learning_rate: Annotated[
        float,
        Gt(0),
        Lt(1),
        _said(
            "Learning rate of the first step; it decays linearly to 0, as in SCoT's code.",
            default="5e-5 for align, 1e-4 for select",
        ),
    ]
    epochs: Annotated[_Count, _said("Number of epochs. The default is from SCoT's code.")] = 5
    batch: Annotated[_Count, _said("Examples per forward pass. The default is from SCoT's code.")] = 1
    accumulation: Annotated[_Count, _said("Forward passes per optimizer step. The default is from SCoT's code.")] = 1
    rank: Annotated[int, Ge(1), Le(MOST_RANK), _said("Rank of LoRA. The default is from SCoT's section 4.1.")] = 8
    alpha: Annotated[_Count, _said("Scale of LoRA (alpha). The default is from SCoT's code.")] = 32
    dropout: Annotated[float, Ge(0), Lt(1), _said("Dropout of LoRA. The default is from SCoT's code.")] = 0.1
    gradient_norm: Annotated[
        float, Ge(0), _said("Norm above which gradients are clipped. The default is from SCoT's code.")
    ] = 1.0
    max_tokens: Annotated[_Count, _said("Maximum length of an example, in tokens; longer examples are excluded.")] = (
        8192
    )
    dtype: Annotated[
        Literal["auto", "bfloat16", "float32"],
        _said("Data type of the frozen weights; auto: bfloat16 on a GPU, float32 on a CPU. LoRA weights are float32."),
    ] = "auto"
    gradient_checkpointing: Annotated[
        bool, _said("Recompute each layer's activations in the backward pass instead of storing them, to save memory.")
    ] = False
    save_every: Annotated[_Count, _said("Optimizer steps between checkpoints.")] = 20
    seed: Annotated[int, _said("Seed of initial weights, dropout and example order.")] = 0


DEFAULTS: Mapping[Task, Settings] = {"align": Settings(5e-5), "select": Settings(1e-4)}
"""Default settings, with the learning rates of SCoT's code."""


def presets() -> dict[str, dict[str, Any]]:
    """Return the presets by name. Each has `draft`, `target`, `dataset`, and for each task its settings and `data`.

    `data`: flags of harness.launch for the run that generates the training data.
    """
    text = resources.files("harness.training").joinpath("presets.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@dataclass(frozen=True)
class Manifest:
    """Record of one finished training run."""

    task: Task
    identity: str
    """Hash over base, data and settings (`identity`)."""
    weights: str
    """Fingerprint of the model folder or adapter next to this file."""
    base: Mapping[str, Any]
    data: Mapping[str, Any]
    """`sha256` of training/data.jsonl, its run, dataset and sizes, and the benchmarks compared with it."""
    settings: Mapping[str, Any]
    git_commit: str | None = field(default_factory=environment.git_commit)
    versions: Mapping[str, str] = field(default_factory=environment.versions)
    hardware: Mapping[str, Any] = field(default_factory=environment.hardware)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    (folder / MANIFEST).write_text(json.dumps(asdict(manifest), indent=2) + "\n", encoding="utf-8")


def find_manifest(folder: Path) -> Manifest | None:
    """Return a folder's manifest; None if there is no readable one."""
    try:
        return Manifest(**json.loads((folder / MANIFEST).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def data_hash(folder: Path, weights: str) -> str | None:
    """Return the first 16 hex digits of the training data's hash; None if these weights have no manifest."""
    manifest = find_manifest(folder)
    return None if manifest is None or manifest.weights != weights else str(manifest.data["sha256"])[:16]


def identity(base: ModelRef, data_sha256: str, settings: Settings) -> str:
    """Return a hash over everything that determines the trained weights, except versions and hardware."""
    decisive = {name: value for name, value in asdict(settings).items() if name != "save_every"}
    inputs = {"base": base.identity, "data": data_sha256, "settings": decisive}
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def train(
    task: Task,
    output: Path,
    base: ModelRef,
    settings: Settings,
    loss: Loss,
    examples: Examples,
    source: Mapping[str, Json],
    say: Say,
) -> None:
    """Train and write the result. An interrupted training resumes, and a finished one is not repeated.

    `source` describes the origin of the examples. Raises ValueError if there are no examples, or if the folder belongs
    to a different training run or is in use by another process.
    """
    if not examples.kept:
        raise ValueError(f"{source['run_id']} has no usable examples: {dict(examples.left_out) or 'no samples'}")
    content, work = as_lines(examples.kept), output / "training"
    sha256 = hashlib.sha256(content).hexdigest()
    found, own = find_manifest(output), identity(base, sha256, settings)
    say(f"{task}: {len(examples.kept)} examples, left out: {dict(examples.left_out) or 'none'}")
    if found is not None and found.identity == own:
        say("This training is already finished.")
        return
    work.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(work / "lock", timeout=0):
            adapter = tune(base, examples.kept, loss, settings, work, own, say)
            (work / "data.jsonl").write_bytes(content)
            if task == "align":
                merge(base, adapter, output)
            else:
                for name in (adapters.WEIGHTS, adapters.CONFIG):
                    shutil.copyfile(adapter / name, output / name)
            weights = models.folder_fingerprint(output) if task == "align" else adapters.fingerprint(output)
            numbers = {"num_examples": len(examples.kept), "num_tokens": sum(len(e.inputs) for e in examples.kept)}
            about = {"sha256": sha256, **numbers, "left_out": dict(examples.left_out), **source}
            told = {"path": base.path_or_hub_id, "revision": base.revision, "fingerprint": base.identity}
            write_manifest(output, Manifest(task, own, weights, told, about, asdict(settings)))
    except Timeout as busy:
        raise ValueError(f"another process is training in {output}") from busy


def steps(num_examples: int, settings: Settings) -> list[tuple[int, tuple[int, ...]]]:
    """Return the epoch and the example indices of every optimizer step, in order.

    Each epoch contains every example once, in random order.
    """
    size, planned = settings.batch * settings.accumulation, []
    for epoch in range(settings.epochs):
        order = list(range(num_examples))
        random.Random(f"{settings.seed}/{epoch}").shuffle(order)
        planned += [(epoch, tuple(order[i : i + size])) for i in range(0, num_examples, size)]
    return planned


def tune(
    base: ModelRef, examples: Sequence[Example], loss: Loss, settings: Settings, work: Path, own: str, say: Say = print
) -> Path:
    """Train LoRA weights and return their folder in `work`, in peft's format. `own`: the training's identity.

    Resumes from a checkpoint in `work`, and does nothing if the weights are complete. Raises ValueError if the model
    lacks one of `MODULES`, or the folder belongs to a different training run.
    """
    import torch
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    adapter, checkpoint, log = work / "adapter", work / "checkpoint.pt", work / "log.jsonl"
    _claim(work, own)
    if adapter.exists() and not checkpoint.exists():
        return adapter
    model, plan, done = _with_lora(base, settings), steps(len(examples), settings), 0
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer: Any = torch.optim.AdamW(trained, lr=settings.learning_rate, weight_decay=0.0, foreach=False)
    if checkpoint.exists():
        state: dict[str, Any] = torch.load(checkpoint, map_location="cpu", weights_only=True)
        set_peft_model_state_dict(model, state["weights"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["step"]
        say(f"resuming after step {done} of {len(plan)}")
    logged = log.read_text(encoding="utf-8").splitlines(keepends=True) if log.exists() else []
    log.write_text("".join(logged[:done]), encoding="utf-8")  # steps after the checkpoint are repeated
    for number, (epoch, indexes) in enumerate(plan[done:], done + 1):
        begun, chosen = time.monotonic(), [examples[i] for i in indexes]
        torch.manual_seed(_seed(settings.seed, "step", number - 1))
        rate = settings.learning_rate * (1 - (number - 1) / len(plan))
        for group in optimizer.param_groups:
            group["lr"] = rate
        total = 0.0
        for start in range(0, len(chosen), settings.batch):
            part = _losses(model, loss, chosen[start : start + settings.batch]) / len(chosen)
            part.backward()
            total += float(part.detach())
        norm = float(torch.nn.utils.clip_grad_norm_(trained, settings.gradient_norm))
        optimizer.step()
        optimizer.zero_grad()
        record = {
            "step": number, "epoch": epoch, "loss": total, "gradient_norm": norm, "learning_rate": rate,
            "examples": len(chosen), "tokens": sum(len(e.inputs) for e in chosen), "seconds": time.monotonic() - begun,
        }  # fmt: skip
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        if number % settings.save_every == 0 or number == len(plan):
            weights = get_peft_model_state_dict(model)
            torch.save(
                {"step": number, "weights": weights, "optimizer": optimizer.state_dict()}, work / "checkpoint.new"
            )
            (work / "checkpoint.new").replace(checkpoint)
            say(f"step {number} of {len(plan)}: loss {total:.4f}")
    model.save_pretrained(adapter)
    (adapter / "README.md").unlink(missing_ok=True)  # peft writes an empty template
    checkpoint.unlink()
    return adapter


def _claim(work: Path, own: str) -> None:
    """Record the training's identity in its folder. Raises ValueError if the folder has a different identity."""
    file = work / "identity"
    if file.exists() and file.read_text() != own:
        other = "a training run with a different model, data or settings"
        raise ValueError(f"{work.parent} contains {other}: choose another --output, or remove the folder")
    work.mkdir(parents=True, exist_ok=True)
    file.write_text(own)


def _losses(model: PeftModel, loss: Loss, chosen: Sequence[Example]) -> Tensor:
    import torch
    from torch.nn.utils.rnn import pad_sequence

    # Left padding, to have every example's predictions at the end.
    inputs = [torch.tensor(example.inputs, device=model.device) for example in chosen]
    ids = pad_sequence(inputs, batch_first=True, padding_side="left")
    mask = pad_sequence([torch.ones_like(one) for one in inputs], batch_first=True, padding_side="left")
    places = (mask.cumsum(-1) - 1).clamp(min=0)
    kept = max(example.predictions for example in chosen)
    logits = model(ids, attention_mask=mask, position_ids=places, logits_to_keep=kept, use_cache=False).logits
    return sum(loss(logits[i, -one.predictions :].float(), one.label_ids) for i, one in enumerate(chosen))


def _seed(seed: int, what: str, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{what}/{number}".encode()).digest()[:4], "big")


def load(base: ModelRef, settings: Settings) -> PreTrainedModel:
    """Load the base model onto this machine's device, or spread its layers over several GPUs."""
    import torch
    from transformers import AutoModelForCausalLM

    on_gpu = environment.accelerator() == "gpu"
    dtype = settings.dtype if settings.dtype != "auto" else "bfloat16" if on_gpu else "float32"
    device_map: Any = "auto" if on_gpu and torch.cuda.device_count() > 1 else {"": "cuda:0" if on_gpu else "cpu"}
    return AutoModelForCausalLM.from_pretrained(
        base.path_or_hub_id,
        revision=base.revision,
        dtype=getattr(torch, dtype),
        device_map=device_map,
        trust_remote_code=False,
    )


def _with_lora(base: ModelRef, settings: Settings) -> PeftModel:
    import torch
    from peft import LoraConfig, get_peft_model

    model = load(base, settings)
    names = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    if lacking := [name for name in MODULES if name not in names]:
        raise ValueError(
            f"{base.path_or_hub_id} has no {' and no '.join(lacking)}: SCoT trains LoRA on {' and '.join(MODULES)}"
        )
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


TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "merges.txt", "added_tokens.json",
    "special_tokens_map.json", "chat_template.jinja", "chat_template.json", "generation_config.json",
)  # fmt: skip
"""Files copied unchanged, so that token ids and chat template remain those of the base model."""


def merge(base: ModelRef, adapter: Path, output: Path) -> None:
    """Write the merged model into `output`, config.json last, so an incomplete folder is not a valid model.

    Weights are added in float32 and stored in the base model's dtype.
    """
    import torch
    from huggingface_hub import snapshot_download
    from peft import PeftModel
    from transformers import AutoConfig, AutoModelForCausalLM

    asked: Any = {"revision": base.revision, "trust_remote_code": False}
    stored = AutoConfig.from_pretrained(base.path_or_hub_id, **asked).dtype or torch.float32
    model: Any = AutoModelForCausalLM.from_pretrained(base.path_or_hub_id, dtype=torch.float32, **asked)
    merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload(safe_merge=True)
    source = Path(base.path_or_hub_id)
    if not source.is_dir():
        source = Path(
            snapshot_download(base.path_or_hub_id, revision=base.revision, allow_patterns=list(TOKENIZER_FILES))
        )
    with tempfile.TemporaryDirectory(prefix=".merging-", dir=output) as work:
        merged.to(stored).save_pretrained(work)
        for name in TOKENIZER_FILES:
            if (source / name).is_file():
                shutil.copyfile(source / name, Path(work) / name)
        for path in sorted(Path(work).iterdir(), key=lambda path: path.name == "config.json"):
            path.replace(output / path.name)
