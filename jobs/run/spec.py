"""A run's frozen specification: what is run, not where.

Two commands that ask for the same thing have the same run id and so share a run folder: that is how running the same
command again resumes. The specification holds what a number depends on; where it runs (cluster, shards, output folder)
is not part of it.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from harness.engine import Role
from harness.methods import run_identity, sample_identity
from harness.methods.method import Parameter
from harness.methods.plugins import MethodSource
from harness.problems.problem import DatasetOrigin, Problem
from harness.prompt_file import BUILT_IN, Prompts
from harness.weights.templates import Conventions
from jobs.run.identity import added_later, derived, digest_of, identity_of
from jobs.run.model_spec import AdapterSpec, EngineSpec, ModelSpec

SPEC_VERSION = 1

_LEFT_OUT = (
    "prompts", "speculator", "reward", "draft_sampling", "target_sampling", "draft_template", "target_template",
    "draft_thinking_tags", "target_thinking_tags", "method_source", "dataset_origin", "prompt_date",
)  # fmt: skip
_MODELS, _LEFT_OUT_OF_MODEL = ("draft", "target", "speculator"), ("server",)
_LEFT_OUT_OF_ENGINE = (
    "spec_sampling", "logprobs", "draft_gpus", "target_gpus", "draft_tensor_parallel", "target_tensor_parallel",
    "draft_arguments", "target_arguments", "reward_gpus", "reward_memory", "reward_tensor_parallel",
)  # fmt: skip
"""Fields that are not written where they are None, because versions that do not know them read the file too."""


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
    tag: str | None = added_later(None)
    """A label that makes runs distinct that are otherwise equal, such as two nights'; it is part of the seeds."""
    selection: AdapterSpec | None = added_later(None)
    """Adapter of the target for choosing among drafts; None: the target chooses without one."""
    prompts: Prompts | None = derived(None)
    """The whole wording of `--prompts`, so that no worker needs the file; None: the built-in one. In the run id,
    `prompt_hash` stands for it."""
    speculator: ModelSpec | None = added_later(None)
    """Weights that propose tokens in the target's engine (`--spec-model`); None: the draft, the target's own layers, or
    no weights at all. They have no part in what is written, and so none in sample ids."""
    draft_sampling: Mapping[str, int | float] | None = added_later(None)
    """How the draft draws tokens where it does not by `temperature` and `top_p` alone, by the names of
    harness.engine.Sampling; None: by these."""
    target_sampling: Mapping[str, int | float] | None = added_later(None)
    draft_template: Mapping[str, Any] | None = added_later(None)
    """Variables of the draft's chat template (`--draft-template`); None: none but those that every template gets."""
    target_template: Mapping[str, Any] | None = added_later(None)
    draft_thinking_tags: str | None = added_later(None)
    """What opens and closes the draft's thoughts, `OPEN,CLOSE`, or `none` for a plain model; None: what its chat
    template has."""
    target_thinking_tags: str | None = added_later(None)
    method_source: MethodSource | None = derived(None)
    """Where a method that is not built in came from. As other code, its code is no part of the run id."""
    reward: ModelSpec | None = added_later(None)
    """The model that rates steps, for methods that have one."""
    dataset_origin: DatasetOrigin | None = derived(None)
    """None: a known dataset. In the run id, name and hash of the problems stand for it, wherever the file lies."""
    prompt_date: str | None = derived(None)
    """The day of the first launch (UTC), which chat templates take for today in all prompts of the run. Attempts record
    which models' prompts hold it."""
    version: int = SPEC_VERSION

    @property
    def limited(self) -> bool:
        """True where not every problem of the dataset is run."""
        return self.num_problems < self.dataset_size

    @property
    def wording(self) -> Prompts:
        """Every text that the models are given beside the problem."""
        return self.prompts or BUILT_IN

    def conventions(self, role: Role) -> Conventions:
        """Return how a model is talked to, where it is not as its chat template says by itself."""
        tables = {"draft": self.draft_template, "target": self.target_template}
        tags = {"draft": self.draft_thinking_tags, "target": self.target_thinking_tags}
        return Conventions.of(tables.get(role), tags.get(role), self.prompt_date)

    @property
    def sampling(self) -> dict[Role, Mapping[str, int | float]]:
        """How each model draws its tokens, where it does not by `temperature` and `top_p` alone."""
        return {"draft": self.draft_sampling or {}, "target": self.target_sampling or {}, "reward": {}}

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
        """The hash of the specification, 8 hex digits, by which its folder is found (jobs.run.folder_name)."""
        identity = {**identity_of(self), "params": run_identity(self.method, self.params, self.method_source)}
        return digest_of(identity)[:8]

    def sample_ids(self, problem: Problem) -> list[str]:
        """Return the ids of all samples of a problem, by sample index; 16 hex digits each.

        A sample's identity does not depend on shards, nodes or its place in any list.
        """
        identity = {
            "problem": [problem.id, problem.content_hash],
            "method": [self.method, sample_identity(self.method, self.params, self.method_source)],
            "models": [m and m.fingerprint for m in self._weights()],
            "sampling": [self.temperature, self.top_p, self.token_budget, *self._by_role("sampling")],
            "prompts": self.prompt_hash,
            "seed": [self.seed, *([self.tag] if self.tag else []), "index"],
        }
        if conventions := [*self._by_role("template"), *self._by_role("thinking_tags")]:
            identity["conventions"] = conventions
        # Hashed once up to the index, which comes last: a million identities take seconds.
        head, _, tail = json.dumps(identity, sort_keys=True).rpartition('"index"')
        common, ids = hashlib.sha256(head.encode()), []
        for index in range(self.samples):
            whole = common.copy()
            whole.update(f"{index}{tail}".encode())
            ids.append(whole.hexdigest()[:16])
        return ids

    def _weights(self) -> list[ModelSpec | AdapterSpec | None]:
        return [self.draft, self.target, *(used for used in (self.selection, self.reward) if used)]

    def _by_role(self, name: str) -> list[Any]:
        """Return a setting of both models, named; empty where both have its default."""
        values = {role: getattr(self, f"{role}_{name}") for role in ("draft", "target")}
        return [] if set(map(repr, values.values())) == {"None"} else [{name: values}]

    def drawn_alike(self) -> RunSpec:
        """The run whose samples this one's are seeded like: an adapter or a reward model judges drafts and has no part
        in writing them, so that with and without it the same drafts are judged."""
        return replace(self, selection=None, reward=None)

    def to_json(self) -> str:
        """The specification as indented JSON.

        Without prompts of its own, without token-level speculation by a model, and with widths that the node chooses,
        a run has no key of these, so that versions that do not know them read it too: their workers share the
        warehouse, and rebuild it from all runs.
        """
        record = asdict(self)
        models = [record[name] for name in _MODELS if record.get(name) is not None]
        for table, name in [
            *((model, n) for model in models for n in _LEFT_OUT_OF_MODEL),
            *((record, n) for n in _LEFT_OUT),
            *((record["engine"], n) for n in _LEFT_OUT_OF_ENGINE),
        ]:
            if table[name] is None:
                del table[name]
        return json.dumps(record, indent=2, sort_keys=True, default=dict)

    @classmethod
    def from_json(cls, text: str) -> RunSpec:
        """Read what `to_json` wrote; raises ValueError where a field is missing, unknown or of another type."""
        return _spec_adapter().validate_json(text)

    @classmethod
    def read(cls, path: Path) -> RunSpec:
        """Read a run folder's `spec.json`."""
        return cls.from_json(path.read_text(encoding="utf-8"))


@functools.cache
def _spec_adapter() -> TypeAdapter[RunSpec]:
    return TypeAdapter(RunSpec)


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
    """Hash of the code that decides results (harness.code_hash); None where the version did not record it."""
    code_archive: str | None = None
    """SHA-256 of the archive that the job's code was unpacked from; None where no job ran it."""
    other_codes: Sequence[str] = ()
    """Hashes of the other codes that worked on the run, or may do so at the same time (jobs.run.codes)."""
    load_at_start: float | None = None
    """Load of the machine (`harness.environment.load`) before the attempt opened its engines."""
    load_at_end: float | None = None
    """Load of the machine when the attempt ended, its own work included; None while it is under way, and where it was
    killed."""
