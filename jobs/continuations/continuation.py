"""A run that continues another run's chains: one model of that run alone, on problems that start inside the chains.

It is sharded, resumed, graded and loaded like any other run, in a folder next to the continued run, whose metrics it
does not affect. The same command plans the same run and resumes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from harness.engine import Role
from harness.methods import method_parameters
from harness.methods.method import Parameter
from harness.methods.references import resolve
from harness.problems.problem import DatasetOrigin, Problem, dataset_hash
from harness.prompts import prompt_hash
from harness.settings.declaration import Flags
from harness.settings.launch_settings import Launch
from jobs import graders
from jobs.preparation import PreparedLaunch, sbatch_options
from jobs.run import codes, derived, sizing, trust
from jobs.run.folder import RunFolder, run_folder
from jobs.run.plan import RunPlan
from jobs.run.sizing import ServedRole, lines_for_launch
from jobs.run.spec import check_model
from jobs.slurm.client import resolve as resolve_cluster

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_METHOD = "vanilla"
_OF_THE_OTHERS = ("draft", "target", "reward", "speculator", "method_source", "preset", "tag")
"""Fields of a specification that do not apply to a single-model run."""
_OF_THE_PAIRS_ENGINES = ("spec_decode", "spec_tokens", "spec_sampling", "logprobs")


@dataclass(frozen=True)
class Continuation:
    """A planned continuation of a run."""

    source: RunFolder
    kind: derived.ContinuationKind
    role: Role
    """Role of the model that continues the chains."""
    problems: Sequence[Problem]
    rows: Sequence[Mapping[str, Any]]
    """Rows of the derived file `kind`, with each problem's start position in the continued run."""
    params: Mapping[str, Parameter]
    """Hyper-parameters of the method, besides the model."""
    changes: Mapping[str, Any]
    """Fields of the specification that differ from the continued run's."""
    keeps_order: bool = False
    """Whether problems run in order, so that problems with the same beginning are adjacent."""

    def write(self, run: RunFolder) -> None:
        if not derived.rows_to_extend(run, self.kind, "1"):  # also empty if the file is damaged
            derived.write(run, self.kind, "1", self.rows)


def dataset_of(source: RunFolder, word: Literal["probe", "budgets"]) -> str:
    """Return the name of a dataset whose problems continue a run's chains from points within them."""
    return f"{word}-{source.path.name if _NAME.fullmatch(source.path.name) else source.spec().run_id}"


def prepare(continued: Continuation, flags: Flags, notices: Sequence[str]) -> PreparedLaunch:
    """Prepare the run without writing anything.

    `flags`: launch flags, e.g. for the location. Raises ValueError and the errors of a launch.
    """
    source, spec, problems = continued.source, continued.source.spec(), list(continued.problems)
    model = spec.models.get(continued.role)
    if model is None:
        raise ValueError(f"{source.path.name} has no {continued.role} to continue its chains")
    check_model(source.path.name, model)
    trust.require(source, trust.arguments(spec.settings))
    where = {"output": str(source.path.parent), **flags, "method": _METHOD, "dataset": "demo"}  # replaced below
    launch = Launch.from_flags(where)
    name, content = problems[0].dataset, dataset_hash(problems)
    origin = DatasetOrigin(name.replace("-", " of ", 1), content)
    none: dict[str, Any] = dict.fromkeys(_OF_THE_PAIRS_ENGINES)
    of_one: dict[str, Any] = dict.fromkeys(_OF_THE_OTHERS)
    own = replace(
        spec,
        **of_one | {continued.role: replace(model, memory=None, adapter=None)},
        method=_METHOD,
        params=method_parameters(resolve(_METHOD), {"model": continued.role, **continued.params}),
        dataset=name,
        dataset_hash=content,
        dataset_size=len(problems),
        num_problems=len(problems),
        engine=replace(spec.engine, take_turns=False, **none),
        prompt_hash=prompt_hash(spec.wording),
        concurrency=launch.concurrency,
        **{"samples": launch.samples, "dataset_origin": origin, **continued.changes},
    )
    served: dict[Role, ServedRole] = {}
    if address := sizing.recorded_servers(source).get(continued.role):
        trust.require(source, trust.servers({continued.role: address}))
        served[continued.role] = ServedRole(model, address, [])
    sbatch, cluster = sbatch_options(launch), resolve_cluster(launch.cluster)
    sizes = lines_for_launch(launch, own, problems, cluster, sbatch)
    run = run_folder(launch.output, own)
    notice = codes.check(run, accept=launch.accept_code_change)
    planned = RunPlan(own, problems, [*notices, *([notice] if notice else [])], served)
    return PreparedLaunch(
        launch, cluster, planned, run, sbatch, sizes, notice, graders.code_of(source), continued.write,
        keeps_order=continued.keeps_order,
    )  # fmt: skip
