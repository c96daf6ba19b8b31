"""A run's frozen specification: what is run, not where.

Two commands that ask for the same thing have the same run id and so share a run folder: that is how running the same
command again resumes. The specification holds what a number depends on; where it runs (cluster, shards, output folder)
is not part of it.
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


def derived(default: _T) -> _T:
    """Declare a field that follows from the others or is found at the launch, and so is never part of an id."""
    declared: _T = field(default=default, metadata={"is_derived": True})
    return declared


def identity_of(record: DataclassInstance) -> dict[str, object]:
    """Return the fields that tell records apart, by name: those that do not stand at their default and are not derived.

    So a new field changes no id. The default of a field is therefore never changed: what is to mean something else gets
    a new name.
    """
    identity: dict[str, object] = {}
    for known in fields(record):
        value, new = getattr(record, known.name), known.default_factory
        if "is_derived" not in known.metadata and value != (known.default if new is MISSING else new()):
            is_record = is_dataclass(value) and not isinstance(value, type)
            identity[known.name] = identity_of(value) if is_record else value
    return identity


def night_of(tag: str | None) -> date | None:
    """Return the night of runs with a tag: that of a night begins with its date; None: of no night."""
    dated = re.match(r"\d{4}-\d{2}-\d{2}", tag or "")
    try:
        return date.fromisoformat(dated[0]) if dated else None
    except ValueError:  # such as 2026-02-30
        return None


@dataclass(frozen=True)
class AdapterSpec:
    """LoRA weights that the target chooses drafts with (SCoT, section 3.4)."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    path: str
    """A local folder, absolute."""
    fingerprint: str
    """Content hash of its weights and configuration."""
    rank: int
    training: str | None = derived(None)
    """Hash of the data that it was trained on, where its folder says so."""


@dataclass(frozen=True, kw_only=True)
class ModelSpec(ModelSettings):
    """The settings of a model as the run has them, and where the nodes find it.

    Sampling stands here only where it is not by the run's `temperature` and `top_p` alone. A model that only proposes
    tokens has no settings.
    """

    model: str
    """Its name."""
    path: str
    """A local folder, or a hub id that the nodes' cache holds; of a model on a server, that of its tokenizer."""
    fingerprint: str
    """Content hash of a local folder's configuration and tokenizer, or hub id and revision."""
    training: str | None = derived(None)
    """Hash of the data that it was trained on, where its folder says so (training.json)."""
    dtype: DataType = "auto"
    adapter: AdapterSpec | None = None  # type: ignore[assignment]  # a launch has the folder alone

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.model


@dataclass(frozen=True)
class EngineSpec:
    """How the engines are started; part of the run because speed depends on it."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    kind: str
    """`vllm`, `transformers` or `scripted`, of the engines that the worker starts; `served` where it starts none."""
    max_context: int | None = None
    """Longest prompt plus completion; None: as much as prompt and token budget need, within the model's limit."""
    spec_decode: str | None = None
    """Who proposes tokens to the target: `draft`, `ngram`, `suffix`, `eagle3` or `mtp`; None: no token-level
    speculation."""
    spec_tokens: int | None = None
    """Number of tokens proposed at a time."""
    spec_sampling: str | None = None
    """How a model draws the tokens that it proposes, `greedy` or `probabilistic`; None: no model proposes."""
    logprobs: bool | None = None
    """Whether the mean log-probability of candidates is asked for; None: where the method reads it."""
    take_turns: bool = False
    """True if draft and target never run at the same time."""

    @property
    def can(self) -> registry.Capabilities:
        """What the engine can do. Raises ValueError where there is none of this name."""
        return registry.capabilities(self.kind)


@dataclass(frozen=True)
class RunSpec:
    """Everything that a result depends on."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    method: str
    params: Mapping[str, Parameter]
    """The method's hyper-parameters under the paper's names, all of them, defaults included."""
    dataset: str
    dataset_hash: str
    """Hash of the problems that are run, in order."""
    dataset_size: int
    """Problems in the whole dataset; above `num_problems` the run is limited and says so."""
    num_problems: int
    samples: int
    """Samples per problem (k)."""
    seed: int
    temperature: float
    top_p: float
    token_budget: int
    """Emitted tokens a sample may have, its final answer included."""
    draft: ModelSpec | None
    target: ModelSpec | None
    engine: EngineSpec
    concurrency: int
    """Samples in flight at once on one worker."""
    prompt_hash: str
    preset: str | None = None
    tag: str | None = None
    """A label that makes runs distinct that are otherwise equal, such as two nights'; it is part of the seeds."""
    prompts: Prompts | None = derived(None)
    """The whole wording of `--prompts`, so that no worker needs the file; None: the built-in one. In the run id,
    `prompt_hash` stands for it."""
    speculator: ModelSpec | None = None
    """Weights that propose tokens in the target's engine (`--spec-model`); None: the draft, the target's own layers, or
    no weights at all. They have no part in what is written, and so none in sample ids."""
    method_source: MethodSource | None = derived(None)
    """Where a method that is not built in came from. As other code, its code is no part of the run id."""
    reward: ModelSpec | None = None
    """The model that rates steps, for methods that have one."""
    dataset_origin: DatasetOrigin | None = derived(None)
    """None: a known dataset. In the run id, name and hash of the problems stand for it, wherever the file lies."""
    prompt_date: str | None = derived(None)
    """The day of the first launch (UTC), which chat templates take for today in all prompts of the run. Attempts record
    which models' prompts hold it."""
    format: int = FORMAT

    @property
    def limited(self) -> bool:
        """True where not every problem of the dataset is run."""
        return self.num_problems < self.dataset_size

    @property
    def wording(self) -> Prompts:
        """Every text that the models are given beside the problem."""
        return self.prompts or BUILT_IN

    @property
    def settings(self) -> dict[Role, ModelSettings]:
        """The settings of each model; of one that the method does not have, those of a launch that says nothing."""
        return {role: model or ModelSettings() for role, model in self.models.items()}

    @property
    def selection(self) -> AdapterSpec | None:
        """Adapter of the target for choosing among drafts; None: the target chooses without one."""
        return self.target.adapter if self.target else None

    def conventions(self, role: Role) -> Conventions:
        """Return how a model is talked to, where it is not as its chat template says by itself."""
        own = self.settings[role]
        return Conventions.of(own.template, own.thinking_tags, self.prompt_date)

    @property
    def sampling(self) -> dict[Role, Mapping[str, int | float]]:
        """How each model draws its tokens, where it does not by `temperature` and `top_p` alone."""
        return {role: settings.sampling() for role, settings in self.settings.items()}

    @property
    def is_greedy(self) -> bool:
        """True where no model that writes is sampled, so that every sample of a problem repeats the first.

        The settings decide: of texts that repeat each other, engines may write one a little differently by chance.
        """
        if self.method == "rsd" and self.params.get("weighting") == "clipping":
            return False  # which drafts are kept is drawn from each sample's seed
        only_proposes = self.engine.spec_decode == "draft" and self.method in ("vanilla", "specdecode")
        never_draws = self.method == "scot" and self.params.get("greedy_target")
        writers: dict[Role, ModelSpec | None] = {
            "draft": None if only_proposes else self.draft,
            "target": None if never_draws else self.target,
        }
        own = [self.sampling[role] for role, model in writers.items() if model is not None]
        return not any(one.get("temperature", self.temperature) > 0 and one.get("top_k", 0) != 1 for one in own)

    @property
    def models(self) -> dict[Role, ModelSpec | None]:
        """The models by role; None where the method has none."""
        return {"draft": self.draft, "target": self.target, "reward": self.reward}

    @property
    def num_samples(self) -> int:
        """The number of samples of all problems."""
        return self.num_problems * self.samples

    @property
    def run_id(self) -> str:
        """`<dataset>-<method>-<8 hex digits>`: equal for equal specifications, whatever the run's folder is called."""
        return f"{self.dataset}-{self.method}-{self.digest}"

    @property
    def digest(self) -> str:
        """The hash of the specification, 8 hex digits, by which its folder is found (jobs.run.folder)."""
        identity = {**identity_of(self), "params": run_identity(self.method, self.params, self.method_source)}
        return hashlib.sha256(json.dumps(identity, sort_keys=True, default=dict).encode()).hexdigest()[:8]

    def sample_ids(self, problem: Problem) -> list[str]:
        """Return the ids of all samples of a problem, by sample index; 16 hex digits each.

        A sample's identity does not depend on shards, nodes or its place in any list.
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
        # Hashed once up to the index, which comes last: a million identities take seconds.
        head, _, tail = json.dumps(identity, sort_keys=True).rpartition('"index"')
        common, ids = hashlib.sha256(head.encode()), []
        for index in range(self.samples):
            whole = common.copy()
            whole.update(f"{index}{tail}".encode())
            ids.append(whole.hexdigest()[:16])
        return ids

    @staticmethod
    def _of_pair(name: str, values: Mapping[Role, object]) -> list[dict[str, dict[str, object]]]:
        """Return a setting of both models, named; empty where neither says anything."""
        given = {str(role): values[role] or None for role in ("draft", "target")}
        return [{name: given}] if any(given.values()) else []

    def drawn_alike(self) -> RunSpec:
        """The run whose samples this one's are seeded like: an adapter or a reward model judges drafts and has no part
        in writing them, so that with and without it the same drafts are judged."""
        return self.without_adapter(reward=None)

    def without_adapter(self, **changes: Any) -> RunSpec:
        """Return the run without the target's adapter, and with other changes."""
        return replace(self, **{"target": self.target and replace(self.target, adapter=None)} | changes)

    def to_json(self) -> str:
        """The specification as indented JSON."""
        return json.dumps(asdict(self), indent=2, sort_keys=True, default=dict)

    @classmethod
    def from_json(cls, text: str, name: str | Path = "spec.json") -> RunSpec:
        """Read what `to_json` wrote; `name` is that of the file, for messages.

        Raises WrongFormat, and ValueError where a field is missing, unknown or of another type.
        """
        record = json.loads(text)
        if isinstance(record, dict):
            check_format(name, record.get("format"))
        return _SPEC.validate_python(record)


_SPEC = TypeAdapter(RunSpec)


@dataclass(frozen=True, slots=True)
class Unit:
    """One problem × sample index: what a shard lists and a worker runs."""

    sample_id: str
    problem_id: str
    sample_index: int


def units(spec: RunSpec, problems: list[Problem]) -> list[Unit]:
    """All units of a run: sample index first, so that a run cut short has seen every problem equally often."""
    ids = [spec.sample_ids(problem) for problem in problems]
    return [
        Unit(own[i], problem.id, i) for i in range(spec.samples) for problem, own in zip(problems, ids, strict=True)
    ]


def assign_to_shards(
    units: Sequence[Unit], shards: int, lengths: Mapping[str, int] | None = None, *, in_order: bool = False
) -> list[list[Unit]]:
    """Deal units to shards like cards, those of the longest problems first; empty shards are left out.

    So every shard has about as many samples of long problems as of short ones. `lengths`: of the problems, by id.
    `in_order`: each shard has units that follow each other instead.
    """
    if in_order:
        ends = [len(units) * number // shards for number in range(shards + 1)]
        return [[*units[start:end]] for start, end in pairwise(ends) if end > start]
    known = lengths or {}
    place = {length: number for number, length in enumerate(sorted({*known.values(), 0}, reverse=True))}
    rounds = 1 + max((unit.sample_index for unit in units), default=0)

    def rank(unit: Unit) -> tuple[int, int, str]:
        # Each length begins with another round: otherwise one shard would have sample 0 of every problem.
        longer = place[known.get(unit.problem_id, 0)]
        return longer, (unit.sample_index + longer) % rounds, unit.sample_id

    dealt = sorted(units, key=rank)
    # Round by round: then a run that is cut short has run every problem about equally often, which its results need.
    return [
        sorted(dealt[number::shards], key=lambda unit: (unit.sample_index, rank(unit)))
        for number in range(min(shards, len(dealt)))
    ]


class AttemptRow(TypedDict, total=False):
    """What is read of the record of an attempt, in the first line of a journal and in a trace file's metadata."""

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
    """When its journal was last written to; in trace files alone."""


@dataclass(frozen=True)
class Attempt:
    """One worker's attempt at one shard: where and with what it ran. Kept in the metadata of its trace file."""

    attempt_id: str
    """Name of the journal: time, host, process and restart count."""
    run_id: str
    shard: int
    hostname: str
    pid: int
    started_at: float
    """UTC, seconds since the epoch."""
    git_commit: str | None
    slurm_job_id: str | None = None
    device: str = "cpu"
    """`cpu`, or the name of the first GPU that the engines hold; `gpu` where its name is unknown; `unknown server` for
    what a server holds."""
    num_devices: int = 1
    """Number of GPUs that the engines hold together."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Package versions."""
    hardware: Mapping[str, Any] = field(default_factory=dict)
    engines: Mapping[str, Any] = field(default_factory=dict)
    """Per model: KV-cache and context tokens; on GPUs the width, memory share and cards that it has; under token-level
    speculation by a model also how vLLM samples drafts (`draft_sample_method`), which of vLLM's model runners computes
    (`model_runner`), which start of the engine it used (`engine_start`) and its seconds; `startup_seconds` of the
    starts that this attempt waited for."""
    code_hash: str | None = None
    """Hash of the code that decides results (harness.code_hash)."""
    code_archive: str | None = None
    """SHA-256 of the archive that the job imported its code from; None where no job ran it."""
    other_codes: Sequence[str] = ()
    """Hashes of the other codes that worked on the run, or may do so at the same time (jobs.run.codes)."""
    load_at_start: float | None = None
    """Load of the machine (`harness.environment.load`) before the attempt opened its engines."""
    load_at_end: float | None = None
    """Load of the machine when the attempt ended, its own work included; None while it is under way, and where it was
    killed."""


def check_model(run_id: str, model: ModelSpec) -> None:
    """Raise ValueError where a model was a folder that this machine does not have. A hub id is not looked up."""
    if Path(model.path).is_absolute() and not Path(model.path).exists():
        raise ValueError(
            f"{run_id} names the model {model.name} by the folder {model.path}, which does not exist on this machine: "
            "put the model there, or run the command where it is"
        )
