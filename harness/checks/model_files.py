"""Checks of the files of models: whether they are whole, and whether engines could write with them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.checks.check import Check, Question, failure, ok, warning
from harness.engine import Role
from harness.engines import libraries, registry
from harness.plural import counted
from harness.problems import hub
from harness.weights import adapter, models

_ANOTHER_LOADER = frozenset({"load_format", "config_format", "hf_overrides"})
"""Arguments of vLLM's engine that have it read other files than these, or read them otherwise."""
_HUB_SECONDS = 5.0
_LONGEST_PROBLEM = 500
"""Characters of a line about a model's files."""
WORKERS_MAY = "the Python of the workers, which is not this one, may know more"


@dataclass
class ModelFiles:
    """A model's files on this machine, and what the checks of them say."""

    checks: list[Check] = field(default_factory=list)
    folder: Path | None = None
    """Folder of the files, complete or not; None if the model is not on this machine."""
    weight_bytes: int = 0


def find(role: Role, name: str, question: Question) -> ModelFiles:
    """Find a model by name, hub id or folder, and check its files. Nothing is downloaded or converted."""
    if (folder := models.folder_named(name)) is not None:
        return _checked(role, name, folder, question)
    if Path(name).is_absolute():
        return ModelFiles(
            [failure(role, f"{name} is not on this machine: put it on a filesystem that the nodes share")]
        )
    if name.lower() == models.SMOLLM:
        return _smollm(role, question)
    if name.lower() in models.BUNDLED:
        return _bundled(role, name.lower(), question)
    reference = models.resolve(name)
    folder = models.files_at_hand(reference.path_or_hub_id, reference.revision)
    if folder is None:
        return ModelFiles([_not_cached(role, reference)])
    return _checked(role, reference.name, folder, question)


def check_adapter(name: str) -> Check:
    """Check that a folder has LoRA weights for the target that can be served."""
    try:
        selection = adapter.read(name)
    except ValueError as error:
        return failure("selection adapter", f"{error}: put it on a filesystem that the nodes share")
    text = f"{name}: LoRA of rank {selection.rank}, {adapter.fingerprint(Path(selection.path))}"
    return ok("selection adapter", text)


def check_speculator(reference: models.ModelRef) -> Iterator[Check]:
    """Check the weight files of what proposes tokens; it needs no tokenizer, because it reads the target's tokens."""
    cached = models.files_at_hand(reference.path_or_hub_id, reference.revision)
    if cached is None:
        yield _not_cached("speculator", reference)
        return
    found = findings(cached, "vllm", is_here=True, proposes=True)
    yield from (failure("speculator", fault) for fault in found.faults)
    if not found.faults:
        yield ok("speculator", f"{reference.name}: {_described(models.weight_files(cached))}")


@dataclass(frozen=True)
class Findings:
    """What keeps engines from writing with a model, one line each, which names the file and what helps."""

    faults: list[str]
    """What is sure."""
    doubts: list[str]
    """What the packages of this machine say, where those of the workers may know more."""


def findings(
    folder: Path,
    engine: str,
    *,
    is_here: bool,
    to_download: bool = False,
    proposes: bool = False,
    arguments: Collection[str] = (),
) -> Findings:
    """Return what keeps engines from loading the model in a folder and writing with it, as far as its files tell.

    `is_here`: the workers have the packages of this Python. `to_download`: they fetch what is missing. `proposes`: its
    weights are loaded beside the target's, which needs no tokenizer. `arguments`: the engine's own.
    """

    def of(problem: str) -> str:
        join = " " if problem.startswith("has ") else ": " if problem[0].isdigit() else "/"
        # It quotes what the files say, which may be anything.
        shown = problem if problem.isprintable() else problem.encode("unicode_escape").decode()
        return f"{folder}{join}{shown[:_LONGEST_PROBLEM]}"

    if proposes:
        weights = models.weight_files(folder)
        return Findings([of(problem) for problem in (weights.damaged if to_download else weights.problems)], [])
    faults = [of(problem) for problem in models.folder_problems(folder, to_download=to_download)]
    if faults or not (folder / "config.json").is_file() or not _ANOTHER_LOADER.isdisjoint(arguments):
        return Findings(faults, [])
    if (nothing := libraries.writes_nothing(folder)) is not None:
        return Findings([of(nothing)], [])
    unknown = [of(line) for line in [libraries.unknown_here(folder, engine)] if line is not None]
    return Findings(unknown, []) if is_here else Findings([], unknown)


def _checked(role: Role, name: str, folder: Path, question: Question) -> ModelFiles:
    found = findings(folder, _engine(question), is_here=_has_the_workers_packages(question))
    checks = [failure(role, fault) for fault in found.faults]
    checks += [warning(role, f"{doubt}; {WORKERS_MAY}") for doubt in found.doubts]
    if not found.faults:
        checks += _context(role, folder, question)
    weights = models.weight_files(folder)
    if not found.faults:
        checks.insert(0, ok(role, f"{name}: {_described(weights)}"))
    return ModelFiles(checks, folder, weights.num_bytes)


def _engine(question: Question) -> str:
    return registry.resolved(question.engine)


def _has_the_workers_packages(question: Question) -> bool:
    return question.on_node or not (question.has_own_python or (question.sbatch or {}).get("setup"))


def _described(weights: models.WeightFiles) -> str:
    return f"{counted(len(weights.files), 'complete weight file')}, {weights.num_bytes / 2**30:.1f} GiB"


def _context(role: Role, folder: Path, question: Question) -> Iterator[Check]:
    config = models.read_config(folder / "config.json")
    text = config.get("text_config") or config
    context = text.get("max_position_embeddings")
    if isinstance(context, int) and context < question.token_budget:
        yield warning(
            role,
            f"{config['model_type']} has a context of {context} tokens, below --token-budget {question.token_budget}: "
            "lower it",
        )


def _bundled(role: Role, name: str, question: Question) -> ModelFiles:
    try:
        return _checked(role, name, models.pair_folder(name), question)
    except models.ModelUnavailable as unavailable:
        return ModelFiles([failure(role, str(unavailable))])


def _smollm(role: Role, question: Question) -> ModelFiles:
    folder = models.smollm_made()
    if (folder / "config.json").is_file():
        return _checked(role, models.SMOLLM, folder, question)
    try:
        models.gguf_file()
    except models.ModelUnavailable as unavailable:
        return ModelFiles([failure(role, str(unavailable))])
    return ModelFiles(
        [warning(role, f"{models.SMOLLM} will be converted at the first launch, which takes half a minute")]
    )


def _not_cached(role: str, reference: models.ModelRef) -> Check:
    remedy = hub.download(reference.path_or_hub_id, reference.revision)
    if hub.is_offline():
        variable = hub.offline_by() or "HF_HUB_OFFLINE"
        return failure(role, f"{reference.name} is not in the cache and {variable} is set; {remedy}")
    if not hub.is_reachable(_HUB_SECONDS):
        return failure(role, f"{reference.name} is not in the cache and the hub does not answer; {remedy}")
    return warning(role, f"{reference.name} is not in the cache, so every worker would download it; instead, {remedy}")
