"""What would only show once a worker has started, and is refused before it: contexts, hub ids, flags without effect.

A run that exists already is not checked again: its settings are what it was begun with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from http import HTTPStatus
from pathlib import Path

from harness.checks.model_files import WORKERS_MAY, findings
from harness.checks.tokenizers import verdict_labels
from harness.context import required_context_tokens
from harness.demo_pair.wording import DEMO_PROMPTS
from harness.engine import Role
from harness.engines.speculation import proposing_roles
from harness.launch_options import PartialLaunch
from harness.methods import build
from harness.methods.ranges import flag
from harness.problems import hub
from harness.problems.problem import Problem
from harness.sizing.model_files import shape_of
from harness.weights.models import MODELS, PAIR, files_at_hand, hub_cache
from harness.weights.tokenizer import HFTokenizer
from jobs.run.model_settings import conventions_of, local_folder, unused
from jobs.run.model_spec import ModelSpec
from jobs.run.spec import RunSpec

_ROLES: tuple[Role, ...] = ("draft", "target")
_OF_A_MODEL = ("{}", "{}_gpus", "{}_memory", "{}_tensor_parallel")
"""Flags of one model that presets, files and suites give to every method alike; typed, they are meant."""
_HUB_SECONDS = 5.0

_QUESTIONS = {"score", "separate_score", "step_choice", "chain_choice", "reward", "equivalence"}
"""Tables of a prompt file that no model alone is asked."""


def check_typed(launch: PartialLaunch, typed: Collection[str]) -> None:
    """Raise ValueError where a flag on the command line is for a model that the run does not use."""
    if launch.method is None:
        return
    roles = build(launch.method, dict(launch.parameters)).roles
    proposing = launch.spec_decode or ("draft" if launch.method == "specdecode" else None)
    used = (*roles, *proposing_roles(proposing, launch.spec_model))
    for role in _ROLES:
        for name in (pattern.format(role) for pattern in _OF_A_MODEL):
            if role not in used and name in typed:
                raise ValueError(f"{flag(name)} {getattr(launch, name)}: {unused(launch, role)}")


def check_contexts(launch: PartialLaunch, spec: RunSpec, problems: Collection[Problem]) -> Iterator[str]:
    """Yield warnings where samples may end at a model's context before they have spent the token budget, or where the
    target cannot read the whole chains that it is to choose among.

    Raises ValueError where a budget that was asked for is longer than the context: no sample could spend it. The
    default budget is that of the papers' models, so that for a smaller model it is only warned of.
    """
    is_asked = "token_budget" in launch.model_fields_set
    budget, asked = spec.token_budget, spec.engine.max_context
    needed = required_context_tokens(problems, budget, 0, spec.wording)
    if asked is not None and asked <= budget:
        raise ValueError(
            f"--max-context {asked}: a prompt and --token-budget {budget} do not fit; valid: {needed} or more, "
            f"or a smaller --token-budget"
        )
    if spec.engine.kind == "scripted":
        return
    yield from _unread_choices(spec, needed - budget)
    for role, model in spec.models.items():
        if model is not None and model.server is not None:
            continue  # the server says its own limit
        limit = None if model is None else _longest(model)
        if model is None or limit is None or limit >= needed:
            continue
        if is_asked and limit < budget and role in _ROLES and model.name not in PAIR:
            raise ValueError(
                f"--token-budget {budget}: the context of the {role} {model.name} is {limit} tokens, prompt included; "
                f"valid: up to about {max(1, limit - (needed - budget))}"
            )
        yield (
            f"SHORT CONTEXT: the context of the {role} {model.name} is {limit} tokens, and prompt and token budget may "
            f"need {needed}: such samples end before they have spent their budget."
        )


def _unread_choices(spec: RunSpec, prompt_tokens: int) -> Iterator[str]:
    """Yield a warning where whole chains may be too long for the target that is asked to choose one of them."""
    method, target = build(spec.method, dict(spec.params)), spec.target
    if not method.drafts_whole_chains or target is None:
        return
    limits = [spec.engine.max_context, None if target.server is not None else _longest(target)]
    limit = min((limit for limit in limits if limit is not None), default=None)
    needed = prompt_tokens + method.cached_tokens("draft", spec.token_budget)
    if limit is not None and limit < needed:
        yield (
            f"SHORT CONTEXT: the target reads {limit} tokens, and the chains that it chooses among may need {needed}: "
            "a sample whose chains do not fit ends without an answer; shorter ones: --draft-tokens"
        )


def check_wording(launch: PartialLaunch, spec: RunSpec) -> Iterator[str]:
    """Yield a warning for a model that does not read the instruction of a wording of one's own.

    Raises ValueError where that asks for answers that are not one token of a model that is here.
    """
    instructed = {path.split(".")[1] for path in spec.wording.changes if path.startswith("instruction.")}
    for role, model in spec.models.items() if spec.prompts is not None and spec.engine.kind != "scripted" else ():
        folder = None if model is None else local_folder(model)
        if model is None or folder is None:
            continue
        try:
            tokenizer = HFTokenizer(str(folder), None, conventions_of(launch, role))
        except (OSError, ValueError):  # a copy without all of its files: the doctor and the workers name them
            continue
        try:
            verdict_labels(tokenizer, role, spec.method, spec.params, spec.prompts)
        except ValueError as error:
            raise ValueError(f"--prompts {launch.prompts}: for the {role} {model.name}, {error}") from error
        read, kind = ("thinking", "reasoning") if tokenizer.thinks else ("plain", "plain")
        if instructed and read not in instructed and role != "reward":
            yield (
                f"OWN PROMPTS: the {role} {model.name} is a {kind} model and reads instruction.{read}, which "
                f"{launch.prompts} leaves as it is built in."
            )


def check_taught(spec: RunSpec) -> Iterator[str]:
    """Yield a warning where the bundled pair reads prompts that it was not taught with."""
    taught = [model.name for model in spec.models.values() if model is not None and model.name in PAIR]
    is_alone = spec.draft is None or spec.target is None
    own = [key for key, text in spec.wording.changes.items() if DEMO_PROMPTS.changes.get(key) != text]
    read = [key for key in own if not is_alone or key.split(".")[0] not in _QUESTIONS]
    if taught and read and spec.engine.kind != "scripted":
        yield (
            f"OWN PROMPTS: the toy model{'s' * (len(taught) > 1)} {' and '.join(taught)} learned from the built-in "
            "wording and the demo's alone, and the answer to another one is mostly chance. This shows that the prompts "
            "arrive, not how good they are."
        )


def _longest(model: ModelSpec) -> int | None:
    known = shape_of(model.name, model.path, model.revision)
    return None if known is None else known.shape.max_positions


def check_models(spec: RunSpec, *, is_here: bool) -> Iterator[str]:
    """Yield a warning where this machine's packages do not know a model that the workers' may know.

    `is_here`: whether the workers have this Python with its variables. Raises ValueError where files of a model are
    damaged or missing, where it is not in the cache and the hub is not asked, and where no engine could write with it.
    """
    named = [(role, model, spec.engine.arguments[role]) for role, model in spec.models.items()]
    for name, model, arguments in (*named, ("spec-model", spec.speculator, {})):
        if spec.engine.kind == "scripted" or model is None or model.server is not None:
            continue
        folder, is_own = files_at_hand(model.path, model.revision), Path(model.path).is_absolute()
        variable = hub.offline_by() if is_here and not is_own else None
        fetched = f"; {variable} is set: {hub.download(model.path, model.revision)}" if variable else ""
        if folder is None:
            if variable:
                raise ValueError(f"--{name} {model.name}: it is not in the cache{fetched}")
            continue
        found = findings(
            folder,
            spec.engine.kind,
            is_here=is_here,
            to_download=not (is_own or variable),
            proposes=name == "spec-model",
            arguments=arguments,
        )
        if found.faults:
            raise ValueError(f"--{name} {model.name}: {found.faults[0]}{fetched}")
        yield from (f"NOT KNOWN HERE: --{name} {model.name}: {doubt}; {WORKERS_MAY}." for doubt in found.doubts)


def check_hub_ids(spec: RunSpec) -> Iterator[str]:
    """Yield a warning for each model that is not on this machine where the hub does not answer.

    Raises ValueError where it says that it has no such model.
    """
    pinned = {known.hub_id for known in MODELS.values()}
    named = [*spec.models.items(), ("spec-model", spec.speculator)]
    for name, model in named if spec.engine.kind != "scripted" else ():
        if model is None or model.server is not None or model.path in pinned or "/" not in model.path:
            continue
        is_here = Path(model.path).is_absolute() or hub_cache(model.path).is_dir()
        if not is_here and not _is_at_hub(f"--{name} {model.name}", model):
            yield (
                f"NOT CHECKED: --{name} {model.name} is not in this machine's cache, and the hub does not answer. The "
                "workers need the model in theirs."
            )


def _is_at_hub(given: str, model: ModelSpec) -> bool:
    """Return False where the hub does not say. Raises ValueError where it has no such model."""
    if hub.is_offline() or not hub.is_reachable(_HUB_SECONDS):
        return False
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        HfApi().model_info(model.path, revision=model.revision, timeout=_HUB_SECONDS)
    except GatedRepoError:  # it exists, and whoever may not read it is told so when it is loaded
        return True
    except RevisionNotFoundError as error:
        raise ValueError(f"{given}: the hub has no revision {model.revision} of this model") from error
    except HfHubHTTPError as error:
        if isinstance(error, RepositoryNotFoundError) or error.response.status_code == HTTPStatus.NOT_FOUND:
            raise ValueError(
                f"{given}: the hub has no such model, or it is private: give HF_TOKEN for it in the environment"
            ) from error
        return False
    except Exception:  # noqa: BLE001 whatever keeps the hub from answering is met by the worker, as without this check
        return False
    return True
