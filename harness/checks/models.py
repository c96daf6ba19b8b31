"""Checks of what a run reads: its models' files or their servers, tokenizers, the weights that propose, the dataset.

Files must be whole and be ones that an engine can write with; servers must answer every kind of request; tokenizers
must load, and give each option of a verdict a single token; token-level speculation needs a device, a vLLM and
weights for it; a dataset has the expected number of problems and the expected hash.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from harness import environment, prompts
from harness.checks.finding import Check, Question, failure, ok, warning
from harness.cli.messages import counted
from harness.engine import EngineDied, Role
from harness.engines import registry, speculation
from harness.engines.served.address import ServerAddress
from harness.engines.speculation import Proposer, draft_sampling, greedy_drafts_notice, unsupported_reason
from harness.methods import build
from harness.problems import benchmarks, hub, sources
from harness.problems.problem import Problem, dataset_hash
from harness.prompts import Prompts, of_stored
from harness.settings.declaration import Parameter
from harness.weights import adapter, models
from harness.weights.templates import BadTemplate, Conventions
from harness.weights.tokenizer import HFTokenizer

_ANOTHER_LOADER = frozenset({"load_format", "config_format", "hf_overrides"})
"""Arguments of vLLM's engine that have it read other files than these, or read them otherwise."""
_HUB_SECONDS = 5.0
_LONGEST_PROBLEM = 500
"""Characters of a line about a model's files."""


Found = tuple[list[Check], Path | None]
"""What the checks of a model's files say, and their folder, complete or not; None: it is not on this machine."""


def find_model(role: Role, name: str) -> Found:
    """Find a model by name, hub id or folder, and check its files. Nothing is downloaded or converted."""
    if (folder := models.folder_named(name)) is not None:
        return _checked(role, name, folder)
    if Path(name).is_absolute():
        return [failure(role, f"{name} is not on this machine: put it on a filesystem that the nodes share")], None
    try:
        if name.lower() in models.BUNDLED:
            return _checked(role, name.lower(), models.pair_folder(name.lower()))
    except models.ModelUnavailable as unavailable:
        return [failure(role, str(unavailable))], None
    reference = models.resolve(name)
    folder = models.files_at_hand(reference.path_or_hub_id, reference.revision)
    if folder is None:
        return [_not_cached(role, reference)], None
    return _checked(role, reference.name, folder)


def check_adapter(name: str) -> Check:
    """Check that a folder has LoRA weights for the target that can be served."""
    try:
        selection = adapter.read(name)
    except ValueError as error:
        return failure("selection adapter", f"{error}: put it on a filesystem that the nodes share")
    text = f"{name}: LoRA of rank {selection.rank}, {adapter.fingerprint(Path(selection.path))}"
    return ok("selection adapter", text)


def faults_of(
    folder: Path, *, to_download: bool = False, proposes: bool = False, arguments: Collection[str] = ()
) -> list[str]:
    """Return what keeps engines from loading the model in a folder and writing with it, as far as its files tell.

    One line each, which names the file and what helps. `to_download`: engines fetch what is missing. `proposes`: its
    weights are loaded beside the target's, which needs no tokenizer. `arguments`: the engine's own.
    """

    def of(problem: str) -> str:
        join = " " if problem.startswith("has ") else ": " if problem[0].isdigit() else "/"
        # It quotes what the files say, which may be anything.
        shown = problem if problem.isprintable() else problem.encode("unicode_escape").decode()
        return f"{folder}{join}{shown[:_LONGEST_PROBLEM]}"

    if proposes:
        weights = models.weight_files(folder)
        return [of(problem) for problem in (weights.damaged if to_download else weights.problems)]
    faults = [of(problem) for problem in models.folder_problems(folder, to_download=to_download)]
    if faults or not (folder / "config.json").is_file() or not _ANOTHER_LOADER.isdisjoint(arguments):
        return faults
    return [of(nothing)] if (nothing := models.writes_nothing(folder)) is not None else []


def _checked(role: Role, name: str, folder: Path) -> Found:
    checks = [failure(role, fault) for fault in faults_of(folder)]
    return checks or [ok(role, f"{name}: {_described(models.weight_files(folder))}")], folder


def _described(weights: models.WeightFiles) -> str:
    return f"{counted(len(weights.files), 'complete weight file')}, {weights.num_bytes / 2**30:.1f} GiB"


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
    fingerprints = set()
    for role, folder in folders.items():
        try:
            check, fingerprint = _check_tokenizer(role, folder, question)
        except Exception as problem:  # noqa: BLE001 the library raises bare Exceptions
            kind = "" if isinstance(problem, BadTemplate) else f"{type(problem).__name__}: "
            own = f"change --{role}.template, " if question.models[role].template else ""
            remedy = f"{own}use another model, or download its tokenizer again"
            check, fingerprint = failure(f"{role} tokenizer", f"{f'{kind}{problem}'[:600]}: {remedy}"), None
        yield check
        if role != "reward":
            fingerprints.add(fingerprint)
    if {"draft", "target"} <= folders.keys() and None not in fingerprints:
        is_shared = len(fingerprints) == 1
        shared, different = "draft and target share one", "draft and target have different ones: steps pass as text"
        yield ok("vocabularies", shared if is_shared else different)


def _check_tokenizer(role: Role, folder: Path, question: Question) -> tuple[Check, str]:
    """Return the check of a tokenizer, and its fingerprint. Raises whatever it raises."""
    own, launch = question.models[role], question.launch
    tokenizer = HFTokenizer(str(folder), None, Conventions.of(own.template, own.thinking_tags))
    options = check_prompts(tokenizer, role, launch.method, dict(launch.parameters), of_stored(question.prompts))
    kind = "reasoning model" if tokenizer.thinks else "plain model"
    if tags := tokenizer.unopened_tags:
        kind += f", or it thinks unasked: --{role}.thinking-tags '{','.join(tags)}'"
    labels = f"one token for each of {' '.join(options)}" if options else "it gives no verdicts"
    text = f"{kind}; {labels}"
    if tokenizer.has_chat_template:
        return ok(f"{role} tokenizer", text), tokenizer.fingerprint
    remedy = "add its chat_template.jinja if it was trained with another format"
    line = f"{text}; no chat template, so it reads a plain dialogue: {remedy}"
    return warning(f"{role} tokenizer", line), tokenizer.fingerprint


def check_servers(question: Question) -> Iterator[Check]:
    """Check each role's server: that it can be reached, what it runs, and every kind of request."""
    from harness.engines.served import discovery

    for role, asked in question.served.items():
        address, subject = ServerAddress.parse(f"--{role}", str(asked.model)), f"{role} server"
        if not question.workers_run_here and address.is_loopback:
            yield warning(subject, f"{address.shown} is this machine only: the jobs look for a server on their nodes")
        try:
            found = discovery.find_here(address, role, asked.served_model)
            own = discovery.own_tokenizer(role, found.model, found.root, asked.tokenizer)
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
    "gsm8k": "ffbf5c954908d37f", "gsm8k-train": "0aa7b1a709f11e33", "gsm8k-scot": "f2883fa5230c82ca",
    "math": "04ddf179ec7ef3de", "math-scot": "85d88a7db63e96dd", "math500": "be72afb0ea37f83c",
    "gaokao2023en": "3a99490cfb6252af", "college_math": "8fa9de6bd67def51", "olympiadbench": "106c020cd510a51e",
    "olympiadbench-scot": "59aae0963716c116", "amc23": "82c7dfde9aa67c83", "aime24": "6a04042f3aa77476",
    "demo": "94fed6ccf3080869", "demo-train": "e6bf2b9ca3a90417",
}  # fmt: skip
"""Hashes of whole datasets, from JSON Lines files of known upstream commits: the authors' own files for GSM8K and MATH,
those of Qwen2.5-Math's evaluation for the others. A hub copy in another row order has another hash."""


def of_question(question: Question) -> sources.Dataset:
    """Return the dataset that is asked about. Raises what `harness.problems.sources.load` raises."""
    folder = Path(question.data_dir) if question.data_dir else None
    launch = question.launch
    assert launch.dataset is not None
    return sources.load(launch.dataset, folder, launch.seed, launch.split, launch.columns)


def check_dataset(question: Question) -> Iterator[Check]:
    """Check that the dataset can be read, and its number of problems and hash."""
    if question.launch.dataset is None:
        return
    try:
        loaded = of_question(question)
    except (benchmarks.DatasetNotFound, ValueError, OSError) as problem:
        yield failure("dataset", str(problem))
        return
    actual_hash, expected_hash = dataset_hash(loaded.problems), KNOWN_HASHES.get(loaded.name)
    text = f"{loaded.name}: {len(loaded.problems)} problems, hash {actual_hash}, {loaded.source}"
    if loaded.origin is None and expected_hash not in (None, actual_hash):
        yield warning("dataset", f"{text}, not {expected_hash}: problems or answers differ; download the file again")
    else:
        yield ok("dataset", text)
    yield from (warning("dataset", notice) for notice in loaded.notices)


_SPECULATION = "speculation"


def check_speculation(question: Question) -> Iterator[Check]:
    """Check what `--spec-decode` needs; nothing without it."""
    if (proposing := question.spec_decode) is None:
        return
    is_here, temperature = question.packages_are_here, question.launch.temperature_of("target")
    kind = registry.resolved(question.engine, is_here=is_here)
    device = environment.accelerator() if question.workers_run_here else "gpu"
    if reason := unsupported_reason(kind, device, temperature, proposing, is_here=is_here):
        yield failure(_SPECULATION, reason)
        return
    yield from _weights(question, proposing)
    sampling = draft_sampling(proposing, question.launch.spec_sampling)
    if notice := greedy_drafts_notice(sampling, temperature):
        yield warning(_SPECULATION, notice)


def _weights(question: Question, proposing: Proposer) -> Iterator[Check]:
    """Check the files of the proposing weights, as far as they are at hand."""
    own = question.launch.spec_model
    named = own or (question.named.get("draft") if proposing == "draft" else None)
    weights = models.resolve(named) if named else None
    if own is not None and weights is not None:
        cached = models.files_at_hand(weights.path_or_hub_id, weights.revision)
        if cached is None:
            yield _not_cached("speculator", weights)
        elif faults := faults_of(cached, proposes=True):
            yield from (failure("speculator", fault) for fault in faults)
        else:
            yield ok("speculator", f"{weights.name}: {_described(models.weight_files(cached))}")
    if not (named_target := question.named.get("target")):
        return
    try:
        speculation.check_pair(proposing, models.resolve(named_target), weights)
    except ValueError as problem:
        yield failure(_SPECULATION, str(problem))


_TRIED = Problem("demo/0", "demo", "1 + 1?", "2")


def loaded_tokenizer(path: str, revision: str | None, asked: Conventions) -> HFTokenizer | None:
    """Return a model's tokenizer; None where it cannot be loaded, which the doctor and the engines explain."""
    with contextlib.suppress(Exception):  # the library raises bare Exceptions
        return HFTokenizer(path, revision, asked)
    return None


def check_prompts(
    tokenizer: HFTokenizer, role: Role, method: str | None, params: Mapping[str, Parameter], wording: Prompts
) -> list[str]:
    """Build what a method, or with None any method, sends a model, and return the options of its verdicts.

    Raises BadTemplate where that is not what the chat template means, and ValueError where an option is not a single
    token.
    """
    built = build(method, dict(params)) if method is not None else None
    if built is not None and role not in built.roles:  # it proposes tokens, and reads what the target does
        return []
    prompts.opening(tokenizer, _TRIED, wording)
    asks_equivalence = built is None or built.asks_equivalence
    judge = "reward" if params.get("judge") == "reward" else "target"
    questions = []
    if role == "reward" and not (built is not None and asks_equivalence):
        questions.append(prompts.reward_question(tokenizer, wording))
    if role == judge and asks_equivalence:
        questions.append(prompts.equivalence_question(tokenizer, "1", "2", wording))
    if role == "target":
        questions += _questions_about_candidates(tokenizer, method, params, wording)
    return sorted({label for question in questions for label in question.labels})


def _questions_about_candidates(
    tokenizer: HFTokenizer, method: str | None, params: Mapping[str, Parameter], wording: Prompts
) -> Iterator[prompts.Question]:
    candidates, form = [str(i) for i in range(int(params.get("drafts", 5)))], params.get("verdict", "joint")
    if method in {None, "specreason"}:
        yield prompts.score_question(tokenizer, wording)
    if method is None or (method == "speccot" and form == "joint"):
        yield prompts.step_choice_question(tokenizer, candidates, wording)
    if method is None or (method == "speccot" and form == "separate"):
        yield prompts.short_score_question(tokenizer, wording)
    if method in {None, "scot"}:
        reject = bool(params.get("error_correction", True))
        yield prompts.chain_choice_question(tokenizer, _TRIED, candidates, wording, may_reject=reject)
