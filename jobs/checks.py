"""Checks of `harness.doctor`, here and on a node: the machine, and the run as a launch would prepare it."""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

from harness import environment
from harness.checks import machine
from harness.checks.finding import Check, Question, failure, ok, warning
from harness.cli.messages import counted
from harness.engine import Role
from harness.engines import registry
from harness.engines.served.address import is_address
from harness.methods import build
from harness.problems import hub, sources
from harness.problems.benchmarks import KNOWN_HASHES, DatasetNotFound
from harness.problems.problem import dataset_hash
from harness.settings.launch_settings import Cluster, Launch, PartialLaunch
from harness.weights import adapter, models
from harness.weights.templates import NO_CONVENTIONS
from jobs import graders
from jobs.preparation import check_cards, sbatch_options
from jobs.run import plan, sizing
from jobs.run.spec import ModelSpec
from jobs.slurm.client import resolve

Group = Callable[[], Iterable[Check]]


def question_of(launch: PartialLaunch, typed: Collection[str] = (), *, on_node: bool = False) -> Question:
    """Return the inputs for checking a launch; `typed`: the flags on its command line. Raises a one-line ValueError."""
    try:
        cluster = "slurm" if on_node else resolve(launch.cluster)
    except ValueError:  # reported as a failed check
        cluster = "slurm"
    plan.check_used(launch, typed)
    for role in launch.roles:
        plan.recorded_settings(launch, role, "vllm" if launch.engine == registry.AUTO else launch.engine)
    sizing.addresses(launch, tuple(launch.roles))
    graders.resolve(launch.grader)
    names: dict[Role, str | None] = {role: name and _absolute(name) for role, name in launch.models.items()}
    if launch.method is not None and registry.capabilities(launch.engine).runs_models:
        method = build(launch.method, dict(launch.parameters))
        device = "gpu" if cluster == "slurm" else environment.accelerator()
        chosen, _ = models.by_role(launch.method, method.roles, names, device, compares=method.asks_equivalence)
        names |= chosen  # a node may have other defaults
    dataset, lora = launch.dataset, launch.target.adapter
    if dataset is not None and sources.is_own(dataset) and not dataset.startswith(sources.HUB):
        dataset = str(Path(dataset).absolute())
    roles = {
        role: replace(own, model=names[role], tokenizer=own.tokenizer and _absolute_folder(own.tokenizer))
        for role, own in launch.roles.items()
    }
    roles["target"] = replace(roles["target"], adapter=lora and adapter.read(lora).path)
    data_dir = str(launch.data_dir.absolute()) if launch.data_dir else None
    launch = launch.changed(
        **roles,
        output=launch.output.absolute(),
        prompts=launch.prompts and launch.prompts.absolute(),
        dataset=dataset,
        data_dir=None,
        spec_model=launch.spec_model and _absolute(launch.spec_model),
    )
    return Question(launch, data_dir, cluster, sbatch_options(launch))


def _absolute(name: str) -> str:
    """Return a folder as an absolute path, other names unchanged. Raises ValueError for an invalid model name."""
    if not is_address(name) and models.folder_named(name) is None and name.lower() not in models.BUNDLED:
        models.resolve(name)
    return _absolute_folder(name)


def _absolute_folder(name: str) -> str:
    folder = models.folder_named(name)
    return name if folder is None else str(folder.absolute())


def checks(question: Question, additional: dict[str, Group]) -> list[Check]:
    """Run the checks concurrently and return their results in a fixed order, with `additional` groups last.

    A check that raises an exception is reported as a failure.
    """
    groups: dict[str, Group] = {
        "python": lambda: [ok("python", platform.python_version())],
        "packages": machine.check_packages,
        "engine": lambda: machine.check_engine(question),
        "devices": lambda: machine.check_devices(question),
        "driver": lambda: machine.check_driver(question),
        "same environment": lambda: machine.check_same_environment(question),
        "run": lambda: check_run(question),
        "output": lambda: machine.check_storage(question),
        **additional,
    }
    if not question.packages_are_here:  # jobs do not use these packages
        del groups["packages"]
    pool = ThreadPoolExecutor(len(groups))
    futures = {name: pool.submit(lambda group: list(group()), group) for name, group in groups.items()}
    pool.shutdown(wait=False)
    wait(futures.values(), timeout=question.limit_seconds)
    return [check for name, future in futures.items() for check in _outcome(name, future, question)]


def _outcome(name: str, future: Future[list[Check]], question: Question) -> list[Check]:
    if not future.done():
        return [warning(name, f"not checked within {question.limit_seconds:.0f} s: {machine.SLOW}")]
    error = future.exception()
    return [failure(name, f"the check raised an exception: {error!r}")] if error else future.result()


def check_run(question: Question) -> Iterator[Check]:
    """Check the dataset and, with a method, everything that a launch validates before it starts a worker."""
    subject, is_here = "dataset", question.packages_are_here
    try:
        launch = question.launch.changed(data_dir=question.data_dir)
        if launch.dataset is not None:
            yield from _dataset(launch)
        if launch.method is None:
            yield from _named(launch, is_here)
            return
        subject = "run"
        whole = Launch(**{**vars(launch), "dataset": launch.dataset or "demo"})
        cluster: Cluster = "local" if question.workers_run_here else "slurm"
        planned = plan.plan(whole, cluster, is_own_python=not is_here)
        spec = planned.spec
        named = [*spec.models.items(), ("speculator", spec.speculator)] if spec.engine.can.runs_models else []
        of_models = [check for name, model in named if model is not None for check in _model(name, model, is_here)]
        yield from of_models
        if any(check.status == "failure" for check in of_models):
            return
        notices = [*planned.notices, *plan.check_new(whole, planned, (), is_here=is_here)]
        yield from (warning("run", notice) for notice in notices)
        if cluster == "slurm":
            check_cards(whole, spec, question.sbatch)
        sizes = sizing.lines_for_launch(whole, spec, planned.problems, cluster, question.sbatch)
    except (ValueError, OSError, models.ModelUnavailable, DatasetNotFound) as problem:
        yield failure(subject, str(problem))
    else:
        yield ok("run", "; ".join(sizes) or "ready to launch")


def _named(launch: PartialLaunch, is_here: bool) -> Iterator[Check]:
    """Check the given models if no method determines which are used."""
    if not registry.capabilities(launch.engine).runs_models:
        return
    for name, model in (*launch.models.items(), ("speculator", launch.spec_model)):
        if model is None or is_address(model):
            continue
        try:
            yield from _model(name, plan.model_spec(model), is_here)
        except (ValueError, OSError, models.ModelUnavailable) as problem:
            yield failure(name, str(problem))


def _dataset(launch: PartialLaunch) -> Iterator[Check]:
    assert launch.dataset is not None
    loaded = sources.load(launch.dataset, launch.data_dir, launch.seed, launch.split, launch.columns)
    found, expected = dataset_hash(loaded.problems), KNOWN_HASHES.get(loaded.name)
    text = f"{loaded.name}: {len(loaded.problems)} problems, hash {found}, {loaded.source}"
    if loaded.origin is None and expected not in (None, found):
        yield warning("dataset", f"{text}; expected hash {expected}: the content differs; download the file again")
    else:
        yield ok("dataset", text)


def _model(name: str, model: ModelSpec, is_here: bool) -> Iterator[Check]:
    """Check a model's files unless a server runs it; also load the tokenizer if workers use this Python (`is_here`)."""
    folder = plan.local_folder(model)
    if model.server is not None:
        yield ok(name, f"{model.server} with {model.model}: token ids and verdicts work")
    elif folder is None:
        remedy = hub.download(model.path, model.revision)
        text = f"{model.name} is not in the cache, so every worker would download it; to avoid this, {remedy}"
        yield warning(name, text)
    elif faults := models.faults_of(folder, proposes=name == "speculator", rates=name == "reward"):
        yield from (failure(name, fault) for fault in faults)
    else:
        found = models.weight_files(folder)
        size = f"{found.num_bytes / 2**30:.1f} GiB"
        yield ok(name, f"{model.name}: {counted(len(found.files), 'complete weight file')}, {size}")
        if name != "speculator" and is_here:
            try:
                plan.tokenizer_of(model, NO_CONVENTIONS)
            except ValueError as problem:
                yield failure(f"{name} tokenizer", str(problem))
