"""Checks of what a run reads: its models' files or their servers, tokenizers, the weights that propose, the dataset.

Files must be whole and be ones that an engine can write with; servers must answer every kind of request; tokenizers
must load, and give each option of a verdict a single token; token-level speculation needs a device, a vLLM and
weights for it; a dataset has the expected number of problems and the expected hash.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import environment
from harness.checks.finding import Check, Question, failure, ok, warning
from harness.engine import EngineDied, Role
from harness.engines import libraries, registry, speculation
from harness.engines.served import discovery
from harness.engines.served.address import ServerAddress
from harness.engines.speculation import (
    draft_sampling,
    greedy_drafts_notice,
    unsupported_reason,
)
from harness.plural import counted
from harness.problems import benchmarks, hub, sources
from harness.problems.problem import dataset_hash
from harness.weights import adapter, models
from harness.weights.templates import BadTemplate, Conventions

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


def find_model(role: Role, name: str, question: Question) -> ModelFiles:
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
    weights = models.weight_files(folder)
    if not found.faults:
        checks.insert(0, ok(role, f"{name}: {_described(weights)}"))
    return ModelFiles(checks, folder)


def _engine(question: Question) -> str:
    return registry.resolved(question.engine)


def _has_the_workers_packages(question: Question) -> bool:
    return question.on_node or not (question.has_own_python or (question.sbatch or {}).get("setup"))


def _described(weights: models.WeightFiles) -> str:
    return f"{counted(len(weights.files), 'complete weight file')}, {weights.num_bytes / 2**30:.1f} GiB"


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


def check_tokenizers(folders: Mapping[Role, Path], question: Question) -> Iterator[Check]:
    """Check the tokenizer of each model, and whether the two share their vocabulary."""
    if not folders:
        return
    found = {role: _try_tokenizer(role, folder, question) for role, folder in folders.items()}
    for role in folders:
        yield _checked_tokenizer(role, found[role], has_variables=bool(question.templates.get(role)))
    pair = [role for role in folders if role != "reward"]
    fingerprints = {found[role].get("fingerprint") for role in pair}
    if len(pair) == 2 and None not in fingerprints:
        is_shared = len(fingerprints) == 1
        shared, different = "draft and target share one", "draft and target have different ones: steps pass as text"
        yield ok("vocabularies", shared if is_shared else different)


def _checked_tokenizer(role: Role, answer: Mapping[str, Any], *, has_variables: bool) -> Check:
    if "problem" in answer:
        own = f"change --{role}.template, " if has_variables else ""
        remedy = f"{own}use another model, or download its tokenizer again"
        return failure(f"{role} tokenizer", f"{answer['problem']}: {remedy}")
    kind = "reasoning model" if answer["thinks"] else "plain model"
    if tags := answer["unopened_tags"]:
        kind += f", or it thinks unasked: --{role}.thinking-tags '{','.join(tags)}'"
    text = f"{kind}; {answer['labels']}"
    if not answer["has_template"]:
        remedy = "add its chat_template.jinja if it was trained with another format"
        return warning(f"{role} tokenizer", f"{text}; no chat template, so it reads a plain dialogue: {remedy}")
    return ok(f"{role} tokenizer", text)


def _try_tokenizer(role: Role, folder: Path, question: Question) -> dict[str, Any]:
    try:
        return _properties(role, folder, question)
    except BadTemplate as problem:
        return {"problem": f"{problem}"[:600]}
    except Exception as problem:  # noqa: BLE001 the library raises bare Exceptions
        return {"problem": f"{type(problem).__name__}: {problem}"[:600]}


def _properties(role: Role, folder: Path, question: Question) -> dict[str, Any]:
    from harness import prompt_file
    from harness.weights.prompt_trial import check_prompts
    from harness.weights.tokenizer import HFTokenizer

    asked = Conventions.of(question.templates.get(role), question.thinking_tags.get(role))
    tokenizer = HFTokenizer(str(folder), None, asked)
    wording = prompt_file.of_stored(question.prompts)
    options = check_prompts(tokenizer, role, question.method, dict(question.params or {}), wording)
    labels = f"one token for each of {' '.join(options)}" if options else "it gives no verdicts"
    return {
        "fingerprint": tokenizer.fingerprint,
        "thinks": tokenizer.thinks,
        "unopened_tags": tokenizer.unopened_tags,
        "labels": labels,
        "has_template": tokenizer.has_chat_template,
    }


def check_servers(question: Question) -> Iterator[Check]:
    """Check each role's server: that it can be reached, what it runs, and every kind of request."""
    for role, text in question.servers.items():
        address, subject = ServerAddress.parse(f"--{role}", text), f"{role} server"
        if not question.workers_run_here and address.is_loopback:
            yield warning(subject, f"{address.shown} is this machine only: the jobs look for a server on their nodes")
        try:
            found = discovery.find_here(address, role, question.served_models.get(role))
            own = discovery.own_tokenizer(role, found.model, found.root, question.tokenizers.get(role))
            notices = discovery.check_here(address, role, found, own)
        except EngineDied as error:
            where = "" if question.workers_run_here else " from here; --on-node asks from a node"
            yield (failure if question.workers_run_here else warning)(subject, f"{error}{where}")
            continue
        except ValueError as error:
            yield failure(subject, str(error))
            continue
        context = f"a context of {found.context_tokens} tokens" if found.context_tokens else "an unknown context"
        yield ok(subject, f"{found.kind} {found.version or ''} with {found.model}, {context}; token ids, verdicts work")
        yield from (warning(subject, notice) for notice in notices)


KNOWN_HASHES = {
    "gsm8k": "ffbf5c954908d37f",
    "gsm8k-train": "0aa7b1a709f11e33",
    "gsm8k-scot": "f2883fa5230c82ca",
    "math": "04ddf179ec7ef3de",
    "math-scot": "85d88a7db63e96dd",
    "math500": "be72afb0ea37f83c",
    "gaokao2023en": "3a99490cfb6252af",
    "college_math": "8fa9de6bd67def51",
    "olympiadbench": "106c020cd510a51e",
    "olympiadbench-scot": "59aae0963716c116",
    "amc23": "82c7dfde9aa67c83",
    "aime24": "6a04042f3aa77476",
    "demo": "94fed6ccf3080869",
    "demo-train": "e6bf2b9ca3a90417",
}
"""Hashes of whole datasets, from JSON Lines files of known upstream commits: the authors' own files for GSM8K and MATH,
those of Qwen2.5-Math's evaluation for the others. A hub copy in another row order has another hash."""


def of_question(question: Question) -> sources.Dataset:
    """Return the dataset that is asked about. Raises what `harness.problems.sources.load` raises."""
    folder = Path(question.data_dir) if question.data_dir else None
    assert question.dataset is not None
    return sources.load(question.dataset, folder, question.seed, question.split, question.columns)


def check_dataset(question: Question) -> Iterator[Check]:
    """Check that the dataset can be read, and its number of problems and hash."""
    if question.dataset is None:
        return
    try:
        loaded = of_question(question)
    except (benchmarks.DatasetNotFound, ValueError, OSError) as problem:
        yield failure("dataset", str(problem))
        return
    name = loaded.name
    actual_hash = dataset_hash(loaded.problems)
    text = f"{name}: {len(loaded.problems)} problems, hash {actual_hash}, {loaded.source}"
    expected_hash = KNOWN_HASHES.get(name)
    if loaded.origin is not None:
        yield ok("dataset", text)
        yield from (warning("dataset", notice) for notice in loaded.notices)
    elif expected_hash not in (None, actual_hash):
        yield warning("dataset", f"{text}, not {expected_hash}: problems or answers differ; download the file again")
    else:
        yield ok("dataset", text if expected_hash is None else f"{text}, as expected")


_SPECULATION = "speculation"


def check_speculation(question: Question) -> Iterator[Check]:
    """Check what `--spec-decode` needs; nothing without it."""
    if question.spec_decode is None:
        return
    is_here = question.packages_are_here
    kind = registry.resolved(question.engine, is_here=is_here)
    device = environment.accelerator() if question.workers_run_here else "gpu"
    if reason := unsupported_reason(kind, device, question.temperature, question.spec_decode, is_here=is_here):
        yield failure(_SPECULATION, reason)
        return
    yield from _weights(question)
    sampling = draft_sampling(question.spec_decode, question.spec_sampling)
    if notice := greedy_drafts_notice(sampling, question.temperature):
        yield warning(_SPECULATION, notice)


def _weights(question: Question) -> Iterator[Check]:
    """Check the files of the proposing weights, and that they are for the target, as far as files are at hand."""
    assert question.spec_decode is not None
    target = models.resolve(question.models["target"]) if "target" in question.models else None
    named = question.speculator or (question.models.get("draft") if question.spec_decode == "draft" else None)
    weights = speculation.resolve(named) if named else None
    if question.speculator is not None and weights is not None:
        yield from check_speculator(weights)
    if target is None:
        return
    try:
        samples_drafts = question.spec_sampling == "probabilistic"
        speculation.check_pair(question.spec_decode, target, weights, samples_drafts=samples_drafts)
    except ValueError as problem:
        yield failure(_SPECULATION, str(problem))
        return
