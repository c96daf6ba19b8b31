"""A run's frozen specification: what is run, not where.

Launches with equal specifications have the same run id and share a run folder, so running the same command again
resumes. The specification contains everything that results depend on. The location (cluster, shards, output folder) is
not part of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from pydantic import ConfigDict, TypeAdapter

from harness.engine import Role
from harness.engines import registry
from harness.methods import run_identity, sample_identity
from harness.methods.method import Parameter
from harness.methods.plugins import MethodSource
from harness.problems.problem import DatasetOrigin, Problem
from harness.prompts import BUILT_IN, Prompts
from harness.settings.roles import DataType, ModelSettings
from harness.weights.templates import Conventions
from jobs.run.files import FORMAT, check_format

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_T = TypeVar("_T")

UNKNOWN_SERVER = "unknown server"
"""Placeholder for the devices of a server. Two such placeholders never count as equal (view run_conditions)."""


def derived(default: _T) -> _T:
    """Declare a field that is computed from others or found at the launch, and so is never part of an id."""
    declared: _T = field(default=default, metadata={"is_derived": True})
    return declared


def identity_of(record: DataclassInstance) -> dict[str, object]:
    """Return the fields that identify a record, by name: those that are not derived and differ from their defaults.

    New fields therefore change no id. Defaults must never change: a field with a new meaning needs a new name.
    """
    identity: dict[str, object] = {}
    for known in fields(record):
        value, new = getattr(record, known.name), known.default_factory
        if "is_derived" not in known.metadata and value != (known.default if new is MISSING else new()):
            is_record = is_dataclass(value) and not isinstance(value, type)
            identity[known.name] = identity_of(value) if is_record else value
    return identity


def night_of(tag: str | None) -> date | None:
    """Return the date at the start of the tag of a nightly run; None if the run is not nightly."""
    dated = re.match(r"\d{4}-\d{2}-\d{2}", tag or "")
    try:
        return date.fromisoformat(dated[0]) if dated else None
    except ValueError:  # such as 2026-02-30
        return None


@dataclass(frozen=True)
class AdapterSpec:
    """LoRA adapter of the target for draft selection (SCoT, section 3.4)."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    path: str
    """A local folder, absolute."""
    fingerprint: str
    """Content hash of its weights and configuration."""
    rank: int
    training: str | None = derived(None)
    """Hash of its training data, if recorded in the folder."""


@dataclass(frozen=True, kw_only=True)
class ModelSpec(ModelSettings):
    """A model's settings in a run, and where nodes find it.

    Sampling settings are recorded only if they differ from the run's `temperature` and `top_p`. A model that only
    proposes tokens has no settings.
    """

    model: str
    """Name of the model."""
    path: str
    """A local folder or a hub id in the nodes' cache; for a model on a server, the location of its tokenizer."""
    fingerprint: str
    """Content hash of a local folder's configuration and tokenizer, or hub id and revision."""
    training: str | None = derived(None)
    """Hash of its training data, if recorded in the folder (training.json)."""
    dtype: DataType = "auto"
    adapter: AdapterSpec | None = None  # type: ignore[assignment]  # a launch only has the folder

    @property
    def name(self) -> str:
        """The name used in messages."""
        return self.model


@dataclass(frozen=True)
class EngineSpec:
    """Engine settings that affect speed and so are part of the run."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    kind: str
    """`vllm`, `transformers` or `scripted` if the worker starts engines, otherwise `served`."""
    max_context: int | None = None
    """Maximum prompt plus completion length; None: as needed for prompt and token budget, within the model's limit."""
    spec_decode: str | None = None
    """Proposer of tokens for the target: `draft`, `ngram`, `suffix`, `eagle3` or `mtp`; None: no token-level
    speculation."""
    spec_tokens: int | None = None
    """Number of tokens proposed at a time."""
    spec_sampling: str | None = None
    """Sampling of proposed tokens by a model, `greedy` or `probabilistic`; None: no model proposes."""
    logprobs: bool | None = None
    """Whether mean log-probabilities of candidates are requested; None: only if the method uses them."""
    take_turns: bool = False
    """True if draft and target never run at the same time."""

    @property
    def can(self) -> registry.Capabilities:
        """Capabilities of the engine. Raises ValueError if the engine is unknown."""
        return registry.capabilities(self.kind)


@dataclass(frozen=True)
class RunSpec:
    """Everything that a result depends on."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    method: str
    params: Mapping[str, Parameter]
    """All hyper-parameters of the method under the paper's names, including defaults."""
    dataset: str
    dataset_hash: str
    """Hash of the problems that are run, in order."""
    dataset_size: int
    """Problems in the whole dataset; if larger than `num_problems`, the run is partial."""
    num_problems: int
    samples: int
    """Samples per problem (k)."""
    seed: int
    temperature: float
    top_p: float
    token_budget: int
    """Maximum number of emitted tokens per sample, including the final answer."""
    draft: ModelSpec | None
    target: ModelSpec | None
    engine: EngineSpec
    concurrency: int
    """Maximum number of samples in flight per worker."""
    prompt_hash: str
    preset: str | None = None
    tag: str | None = None
    """A label that distinguishes otherwise equal runs, e.g. of two nights; part of the seeds."""
    prompts: Prompts | None = derived(None)
    """All prompts of `--prompts`, so workers do not need the file; None: built-in prompts. The run id uses
    `prompt_hash` instead."""
    speculator: ModelSpec | None = None
    """Weights that propose tokens in the target's engine (`--spec-model`); None: the draft, the target's own layers, or
    no weights. They do not affect the text, and so are not part of sample ids."""
    method_source: MethodSource | None = derived(None)
    """Origin of a method that is not built in. Like other code, its code is not part of the run id."""
    reward: ModelSpec | None = None
    """The process reward model, for methods that use one."""
    dataset_origin: DatasetOrigin | None = derived(None)
    """Origin of custom problems, not part of the run id (their name and hash are); None: a built-in dataset."""
    prompt_date: str | None = derived(None)
    """Date of the first launch (UTC), used as today's date in chat templates throughout the run. Attempts record which
    models' prompts contain it."""
    format: int = FORMAT

    @property
    def limited(self) -> bool:
        """True if not all problems of the dataset are run."""
        return self.num_problems < self.dataset_size

    @property
    def wording(self) -> Prompts:
        """All prompts other than the problem text."""
        return self.prompts or BUILT_IN

    @property
    def settings(self) -> dict[Role, ModelSettings]:
        """The settings of each model; defaults for models that the method does not use."""
        return {role: model or ModelSettings() for role, model in self.models.items()}

    @property
    def selection(self) -> AdapterSpec | None:
        """Adapter of the target for draft selection; None: no adapter."""
        return self.target.adapter if self.target else None

    def conventions(self, role: Role) -> Conventions:
        """Return how the model's prompt differs from its chat template's default."""
        own = self.settings[role]
        return Conventions.of(own.template, own.thinking_tags, self.prompt_date)

    @property
    def sampling(self) -> dict[Role, Mapping[str, int | float]]:
        """Sampling settings by role; values equal to `temperature`, `top_p` or another default are left out."""
        return {role: settings.sampling() for role, settings in self.settings.items()}

    @property
    def is_greedy(self) -> bool:
        """True if no generating model is sampled, so all samples of a problem are identical.

        Only the settings count: engines may still produce slightly different texts by chance.
        """
        if self.method == "rsd" and self.params.get("weighting") == "clipping":
            return False  # draft acceptance depends on each sample's seed
        only_proposes = self.engine.spec_decode == "draft" and self.method in ("vanilla", "specdecode")
        never_draws = self.method == "scot" and self.params.get("greedy_target")
        draft, target = self.draft and not only_proposes, self.target and not never_draws
        own = [*([self.sampling["draft"]] if draft else []), *([self.sampling["target"]] if target else [])]
        return not any(one.get("temperature", self.temperature) > 0 and one.get("top_k", 0) != 1 for one in own)

    @property
    def models(self) -> dict[Role, ModelSpec | None]:
        """The models by role; None if not used."""
        return {"draft": self.draft, "target": self.target, "reward": self.reward}

    @property
    def num_samples(self) -> int:
        """The total number of samples."""
        return self.num_problems * self.samples

    @property
    def run_id(self) -> str:
        """`<dataset>-<method>-<8 hex digits>`: equal for equal specifications, independent of the folder's name."""
        return f"{self.dataset}-{self.method}-{self.digest}"

    @property
    def digest(self) -> str:
        """Hash of the specification, 8 hex digits, which identifies its folder (jobs.run.folder)."""
        identity = {**identity_of(self), "params": run_identity(self.method, self.params, self.method_source)}
        return hashlib.sha256(json.dumps(identity, sort_keys=True, default=dict).encode()).hexdigest()[:8]

    def sample_ids(self, problem: Problem) -> list[str]:
        """Return the ids of a problem's samples, by sample index; 16 hex digits each.

        Ids do not depend on shards, nodes or list positions.
        """
        identity = {
            "problem": [problem.id, problem.content_hash],
            "method": [self.method, sample_identity(self.method, self.params, self.method_source)],
            "models": [m and m.fingerprint for m in (self.draft, self.target)]
            + [used.fingerprint for used in (self.selection, self.reward) if used],
            "sampling": [self.temperature, self.top_p, self.token_budget, *self._of_pair("sampling", self.sampling)],
            "prompts": self.prompt_hash,
            "seed": [self.seed, *([self.tag] if self.tag else []), "index"],
        }
        own = self.settings.items()
        templates = self._of_pair("template", {role: settings.template for role, settings in own})
        tags = self._of_pair("thinking_tags", {role: settings.thinking_tags for role, settings in own})
        if templates or tags:
            identity["conventions"] = [*templates, *tags]
        # Hash the common part only once: a million ids take seconds.
        head, _, tail = json.dumps(identity, sort_keys=True).rpartition('"index"')
        common, ids = hashlib.sha256(head.encode()), []
        for index in range(self.samples):
            whole = common.copy()
            whole.update(f"{index}{tail}".encode())
            ids.append(whole.hexdigest()[:16])
        return ids

    @staticmethod
    def _of_pair(name: str, values: Mapping[Role, object]) -> list[dict[str, dict[str, object]]]:
        """Return a setting of draft and target, by name; empty if neither sets it."""
        given = {str(role): values[role] or None for role in ("draft", "target")}
        return [{name: given}] if any(given.values()) else []

    def drawn_alike(self) -> RunSpec:
        """Return the specification that determines the sample seeds, without adapter and reward model.

        Adapter and reward model judge drafts but write none, so runs with and without them judge the same drafts.
        """
        return self.without_adapter(reward=None)

    def without_adapter(self, **changes: Any) -> RunSpec:
        """Return the specification without the target's adapter, and with other changes."""
        return replace(self, **{"target": self.target and replace(self.target, adapter=None)} | changes)

    def to_json(self) -> str:
        """The specification as indented JSON."""
        return json.dumps(asdict(self), indent=2, sort_keys=True, default=dict)

    @classmethod
    def from_json(cls, text: str, name: str | Path = "spec.json") -> RunSpec:
        """Read the output of `to_json`; `name`: the file, for messages.

        Raises WrongFormat, and ValueError for missing, unknown or mistyped fields.
        """
        record = json.loads(text)
        if isinstance(record, dict):
            check_format(name, record.get("format"))
        return _SPEC.validate_python(record)


_SPEC = TypeAdapter(RunSpec)


@dataclass(frozen=True, slots=True)
class Unit:
    """One problem × sample index, the unit of work in a shard."""

    sample_id: str
    problem_id: str
    sample_index: int


def units(spec: RunSpec, problems: list[Problem]) -> list[Unit]:
    """Return all units of a run, ordered by sample index so an interrupted run covers all problems equally."""
    ids = [(problem.id, spec.sample_ids(problem)) for problem in problems]
    return [Unit(own[index], problem_id, index) for index in range(spec.samples) for problem_id, own in ids]


def assign_to_shards(
    units: Sequence[Unit], shards: int, lengths: Mapping[str, int] | None = None, *, in_order: bool = False
) -> list[list[Unit]]:
    """Distribute units over shards round-robin, longest problems first; empty shards are left out.

    Samples of long and of short problems are thus spread evenly over the shards. `lengths`: problem lengths by id.
    If `in_order`, each shard gets consecutive units instead.
    """
    if in_order:
        ends = [len(units) * number // shards for number in range(shards + 1)]
        return [[*units[start:end]] for start, end in pairwise(ends) if end > start]
    known = lengths or {}
    place = {length: number for number, length in enumerate(sorted({*known.values(), 0}, reverse=True))}
    rounds = 1 + max((unit.sample_index for unit in units), default=0)

    def rank(unit: Unit) -> tuple[int, int, str]:
        # Start each length at another index: otherwise one shard would get sample 0 of every problem.
        longer = place[known.get(unit.problem_id, 0)]
        return longer, (unit.sample_index + longer) % rounds, unit.sample_id

    dealt = sorted(units, key=rank)
    # Sort by sample index: an interrupted run must cover all problems about equally often.
    return [
        sorted(dealt[number::shards], key=lambda unit: (unit.sample_index, rank(unit)))
        for number in range(min(shards, len(dealt)))
    ]


class AttemptRow(TypedDict, total=False):
    """Fields that are read from an attempt's record, in a journal's first line or a trace file's metadata."""

    attempt_id: str
    run_id: str
    shard: int
    hostname: str
    pid: int
    started_at: float
    device: str
    num_devices: int
    engines: Mapping[str, Any]
    load_at_end: float | None
    ended_at: float
    """Time of the journal's last write; only in trace files."""


@dataclass(frozen=True)
class Attempt:
    """One worker's attempt at shards of a run, of which `shard` is the first; stored in the trace file's metadata."""

    attempt_id: str
    """Name of the journal: time, host, process and shard assignment."""
    run_id: str
    shard: int
    hostname: str
    pid: int
    started_at: float
    """UTC, seconds since the epoch."""
    git_commit: str | None
    slurm_job_id: str | None = None
    device: str = "cpu"
    """`cpu`, or the name of the engines' first GPU (`gpu` if unknown); `unknown server` for engines on a server. Both
    are joined by ` and `."""
    num_devices: int = 1
    """Total number of GPUs of the engines."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Package versions."""
    hardware: Mapping[str, Any] = field(default_factory=dict)
    engines: Mapping[str, Any] = field(default_factory=dict)
    """For each engine: tokens in KV cache and context, id (`engine_start`) and duration of its start; on GPUs also
    tensor-parallel size, memory share and GPU indices; with token-level speculation by a model also vLLM's draft
    sampling (`draft_sample_method`) and model runner (`model_runner`). `startup_seconds`: total duration of the starts
    that this attempt waited for."""
    code_hash: str | None = None
    """Hash of the code that affects results (harness.code_hash)."""
    code_archive: str | None = None
    """SHA-256 of the job's code archive; None outside of jobs."""
    other_codes: Sequence[str] = ()
    """Hashes of other code versions that worked on the run, or may do so concurrently (jobs.run.codes)."""
    load_at_start: float | None = None
    """Load of the machine (`harness.environment.load`) before the attempt opened its engines."""
    load_at_end: float | None = None
    """Load of the machine at the end of the attempt, including its own work; None while running or if killed."""


def check_model(run_id: str, model: ModelSpec) -> None:
    """Raise ValueError if a model's folder does not exist on this machine. Hub ids are not checked."""
    if Path(model.path).is_absolute() and not Path(model.path).exists():
        raise ValueError(
            f"{run_id} uses the model {model.name} from the folder {model.path}, which does not exist on this machine: "
            "copy the model there, or run the command on the original machine"
        )
