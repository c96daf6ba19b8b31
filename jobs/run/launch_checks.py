"""What would only show once a worker has started, and is refused before it: contexts, hub ids, flags without effect.

A run that exists already is not checked again: its settings are what it was begun with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

from harness.checks import models as model_checks
from harness.checks.models import WORKERS_MAY, findings, loaded_tokenizer
from harness.cli.messages import counted
from harness.cli.program import typed
from harness.engine import Role
from harness.engines import placement
from harness.engines.scripted import ByteTokenizer
from harness.engines.speculation import proposing_roles
from harness.methods import build
from harness.methods import defaults as method_defaults
from harness.methods.method import Text, flag, needs, required_context_tokens
from harness.problems import hub
from harness.problems.problem import Problem
from harness.prompts import demo_prompts
from harness.settings.launch_settings import PartialLaunch
from harness.settings.roles import flat_role_name, role_flag
from harness.sizing.memory import shape_of
from harness.weights.models import BUNDLED, MODELS, PAIR, files_at_hand, hub_cache, pair_folder
from harness.weights.templates import BadTemplate
from harness.weights.tokenizer import HFTokenizer
from jobs.finished.grading import gold_of
from jobs.run.plan import local_folder, unused
from jobs.run.spec import ModelSpec, RunSpec

if TYPE_CHECKING:
    from grading.check import Finding
    from grading.grade import Gold

_ROLES: tuple[Role, ...] = ("draft", "target")
_OF_A_MODEL = ("model", "dtype", "gpus", "memory", "tensor_parallel")
"""Settings of one model that presets, files and suites give to every method alike; typed, they are meant."""
_HUB_SECONDS = 5.0

_QUESTIONS = {"score", "separate_score", "step_choice", "chain_choice", "reward", "equivalence"}
"""Tables of a prompt file that no model alone is asked."""
MOST_GRADED = 2_000
"""Golds that a launch grades, spread over the dataset: a second or two; sentences take longer than answers do."""
_NAMED = 3
_MOST_CHARACTERS = 60
_ALONE = r"give the answer alone, words that an answer must repeat in \text{…}"


def check_typed(launch: PartialLaunch, typed: Collection[str]) -> None:
    """Raise ValueError where a flag on the command line is for a model that the run does not use."""
    if launch.method is None:
        return
    roles = build(launch.method, dict(launch.parameters)).roles
    proposing = launch.spec_decode or ("draft" if launch.method == "specdecode" else None)
    used = (*roles, *proposing_roles(proposing, launch.spec_model))
    for role in _ROLES:
        given = launch.roles[role].given()
        for name in _OF_A_MODEL:
            if role not in used and name in given and flat_role_name(role, name) in typed:
                shown = placement.written(given[name]) if name == "gpus" else given[name]
                raise ValueError(f"{role_flag(role, name)} {shown}: {unused(launch, role)}")


def check_contexts(
    launch: PartialLaunch, spec: RunSpec, problems: Collection[Problem], served: Mapping[Role, int]
) -> Iterator[str]:
    """Yield warnings where a model's context is too short for a prompt and a text behind it (see methods.method).

    `served`: the contexts of the models on servers, where these say so. Raises ValueError where `--max-context` is too
    short, or where a text that was asked for is longer than a model's context.
    """
    method, asked = build(spec.method, dict(spec.params)), spec.engine.max_context
    for role in method.roles:
        if (model := spec.models[role]) is None:
            continue
        own = served.get(role) if model.server is not None else _longest(model)
        limits = [limit for limit in (asked, own) if limit is not None]
        texts = method.texts(role, spec.token_budget) if limits else ()
        for text in texts:
            short = _ShortContext.of(launch, spec, problems, role, text, min(limits))
            if short is None:
                continue
            if asked is not None and (own is None or asked <= own):
                is_refused = short.is_sure
            else:
                is_refused = role in _ROLES and text.tokens > short.limit and _is_asked(launch, text)
                is_refused &= model.name not in PAIR  # whose context is below the papers' settings
            if is_refused:
                raise ValueError(short.refusal(asked, own))
            yield short.warning


@dataclass(frozen=True)
class _ShortContext:
    """A model's context that does not hold some prompt and the text behind it."""

    role: Role
    model: str
    limit: int
    given: str
    """The flags that say how long the text is, with their values."""
    text: Text
    needed: int
    """What holds the longest prompt and the text."""
    num_short: int | None
    """Problems whose prompt leaves too little; None: not known without the tokenizer."""
    num_problems: int

    @classmethod
    def of(
        cls, launch: PartialLaunch, spec: RunSpec, problems: Collection[Problem], role: Role, text: Text, limit: int
    ) -> _ShortContext | None:
        """Return how a context of `limit` tokens is too short; None where it is not."""
        model = spec.models[role]
        assert model is not None
        estimate = required_context_tokens(problems, text.tokens, 0, spec.wording)
        is_scripted = not spec.engine.can.runs_models
        if limit >= estimate and not is_scripted:
            return None
        tokenizer = ByteTokenizer() if is_scripted else _tokenizer_here(spec, model, role)
        has_rubric = role == "target" and build(spec.method, dict(spec.params)).rubric
        needed = needs(text, tokenizer, problems, spec.wording, rubric=has_rubric) if tokenizer is not None else None
        if needed is not None and max(needed) <= limit:
            return None
        values = dict(spec.params) | {"token_budget": spec.token_budget}
        return cls(
            role,
            model.name,
            limit,
            " ".join(f"{flag(name)} {values[name]}" for name in text.settings),
            text,
            max(needed) if needed is not None else estimate,
            sum(tokens > limit for tokens in needed) if needed is not None else None,
            len(problems),
        )

    @property
    def is_sure(self) -> bool:
        """Whether some problem is known not to fit."""
        return self.num_short is not None or self.text.tokens >= self.limit

    def refusal(self, asked: int | None, own: int | None) -> str:
        """Return the line that refuses the launch: because of `--max-context`, or of the model's own context."""
        if asked is None or self.limit < asked:
            most = max(1, self.limit - (self.needed - self.text.tokens))
            together = " tokens together" if len(self.text.settings) > 1 else ""
            return (
                f"{self.given}: the context of the {self.role} {self.model} is {self.limit} tokens, prompt included; "
                f"valid: up to about {most}{together}"
            )
        shorter = f"a smaller {' or '.join(map(flag, self.text.settings))}"
        valid = f"{self.needed} or more, or {shorter}"
        if own is not None and self.needed > own:
            valid = f"{shorter}, because the {self.role} {self.model} reads {own} tokens at most"
        return f"--max-context {asked}: a prompt and {self.given} do not fit; valid: {valid}"

    @property
    def warning(self) -> str:
        """The line that warns of it."""
        some = "" if self.num_short is None else f" in {self.num_short} of {counted(self.num_problems, 'problem')}"
        return (
            f"SHORT CONTEXT: the context of the {self.role} {self.model} is {self.limit} tokens, and a prompt and "
            f"{self.given} may need {self.needed}{some}: a sample that reaches the context ends there (context)"
        )


def _is_asked(launch: PartialLaunch, text: Text) -> bool:
    """Return whether a text's length was asked for; the default lengths are those of the papers' models."""
    defaults = method_defaults(str(launch.method))
    return any(
        launch.token_budget != PartialLaunch.token_budget
        if name == "token_budget"
        else launch.parameters.get(name) != defaults[name]
        for name in text.settings
    )


def _tokenizer_here(spec: RunSpec, model: ModelSpec, role: Role) -> HFTokenizer | None:
    """Return a model's tokenizer; None where it cannot be loaded here: the doctor and the workers say why."""
    folder = local_folder(model)
    return None if folder is None else loaded_tokenizer(str(folder), None, spec.conventions(role))


def check_prompts(launch: PartialLaunch, spec: RunSpec) -> Iterator[str]:
    """Yield a warning for a model that does not read the instruction of a wording of one's own.

    Raises ValueError where a model that is here would be sent another prompt than its chat template means, or where a
    wording asks for answers that are not one token of it.
    """
    instructed = {path.split(".")[1] for path in spec.wording.changes if path.startswith("instruction.")}
    for role in build(spec.method, dict(spec.params)).roles if spec.engine.can.runs_models else ():
        model = spec.models[role]
        tokenizer = None if model is None or _is_known(spec, role, model) else _tokenizer_here(spec, model, role)
        if model is None or tokenizer is None:  # a copy without all of its files: the doctor and the workers name them
            continue
        own = f"--{role} {model.name}"
        try:
            model_checks.check_prompts(tokenizer, role, spec.method, spec.params, spec.wording)
        except BadTemplate as error:
            raise ValueError(f"{own}: {error}") from error
        except ValueError as error:
            source = f"--prompts {launch.prompts}: for the {role} {model.name}," if launch.prompts else f"{own}:"
            raise ValueError(f"{source} {error}") from error
        if tags := tokenizer.unopened_tags:
            yield (
                f"PLAIN MODEL: the prompt of the {role} {model.name} opens no thought, and its vocabulary has "
                f"{','.join(tags)}: if it thinks, --{role}.thinking-tags '{','.join(tags)}'; if not, none."
            )
        read, kind = ("thinking", "reasoning") if tokenizer.thinks else ("plain", "plain")
        if instructed and read not in instructed and role != "reward":
            yield (
                f"OWN PROMPTS: the {role} {model.name} is a {kind} model and reads instruction.{read}, which "
                f"{launch.prompts} leaves as it is built in."
            )


def _is_known(spec: RunSpec, role: Role, model: ModelSpec) -> bool:
    """Return whether a model is bundled and talked to as it always is: to load its tokenizer takes seconds."""
    asked = spec.prompts or spec.conventions(role).variables or spec.conventions(role).thinking_tags
    return not asked and model.name in BUNDLED and Path(model.path) == pair_folder(model.name)


def check_taught(spec: RunSpec) -> Iterator[str]:
    """Yield a warning where the bundled pair reads prompts that it was not taught with."""
    taught = [model.name for model in spec.models.values() if model is not None and model.name in PAIR]
    is_alone = spec.draft is None or spec.target is None
    demo = demo_prompts().changes
    own = [key for key, text in spec.wording.changes.items() if demo.get(key) != text]
    read = [key for key in own if not is_alone or key.split(".")[0] not in _QUESTIONS]
    if taught and read and spec.engine.can.runs_models:
        yield (
            f"OWN PROMPTS: the toy model{'s' * (len(taught) > 1)} {' and '.join(taught)} learned from the built-in "
            "wording and the demo's alone, and the answer to another one is mostly chance. This shows that the prompts "
            "arrive, not how good they are."
        )


def _longest(model: ModelSpec) -> int | None:
    known = shape_of(model.name, model.path, model.revision)
    return None if known is None else known.max_positions


def check_models(spec: RunSpec, *, is_here: bool) -> Iterator[str]:
    """Yield a warning where this machine's packages do not know a model that the workers' may know.

    `is_here`: whether the workers have this Python with its variables. Raises ValueError where files of a model are
    damaged or missing, where it is not in the cache and the hub is not asked, and where no engine could write with it.
    """
    named = [(role, model, spec.settings[role].engine) for role, model in spec.models.items()]
    for name, model, arguments in (*named, ("spec-model", spec.speculator, {})):
        if not spec.engine.can.runs_models or model is None or model.server is not None:
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
    pinned = {known.path_or_hub_id for known in MODELS.values()}
    named = [*spec.models.items(), ("spec-model", spec.speculator)]
    for name, model in named if spec.engine.can.runs_models else ():
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


def check_golds(launch: PartialLaunch, problems: Sequence[Problem]) -> Iterator[str]:
    """Yield warnings that name the golds of an own dataset that no answer meets, or that are prose.

    Golds are graded as answers before a model runs. Refused is what would give silently wrong numbers: golds that are
    solutions where a rule reads the answer, and datasets of which no gold can be met. Single golds of other kinds are
    named, and the run goes on: a dataset may have a few.

    Raises ValueError where a rule reads the answers of golds that are solutions, and where no gold can be met.
    """
    from grading.check import conclusion, to_grade

    dataset = launch.dataset
    golds = tuple(gold_of(problem) for problem in problems)
    doubtful = to_grade(golds)
    chosen = tuple(doubtful[:: -(-len(doubtful) // MOST_GRADED) or 1])
    found = _findings(golds, chosen)
    some = "at least " if len(chosen) < len(doubtful) else ""

    def names(indexes: Sequence[int]) -> str:
        first, *others = indexes[:_NAMED]
        shown = [_shown(problems[first], found[first]), *(problems[index].id for index in others)]
        return f"{', '.join(shown)}{', …' if len(indexes) > _NAMED else ''}"

    def count(indexes: Sequence[int]) -> str:
        return f"{some}{len(indexes):,} of {len(problems):,} golds"

    unmet = [index for index, finding in found.items() if not finding.is_met]
    rules = Counter(end.rule for index in unmet if (end := found[index].conclusion) is not None and end.rule)
    if rules:
        [(rule, _)] = rules.most_common(1)
        solutions = [index for index in unmet if (end := found[index].conclusion) is not None and end.rule == rule]
        reads = sum((end := conclusion(problem.answer)) is not None and end.rule == rule for problem in problems)
        raise ValueError(
            f"--dataset {dataset}: the right answer would be graded wrong, because {count(solutions)} are solutions: "
            f"{names(solutions)}; {_remedy(rule, reads, len(problems))}"
        )
    if unmet and len(unmet) == len(chosen) and len(doubtful) == len(problems):
        raise ValueError(f"--dataset {dataset}: no answer would be graded correct: {names(unmet)}; {_ALONE}")
    rejected = [index for index in unmet if found[index].rejected]
    prose = sorted((index for index in found if not found[index].rejected), key=lambda index: found[index].is_met)
    columns, split = ",".join(launch.columns), launch.split or ""
    given = {"--dataset": dataset, "--columns": columns, "--split": split}
    flags = [word for name, value in given.items() if value for word in (name, value)]
    more = f"all: {typed('grading.check')} {join(flags)}"
    if rejected:
        yield f"GOLDS THAT NO ANSWER MEETS: {count(rejected)}: {names(rejected)}; {more}"
    if prose:
        yield f"PROSE AS GOLDS: {count(prose)} are sentences or several lines: {names(prose)}; {_ALONE}; {more}"


@lru_cache(maxsize=4)  # the runs of a suite have the same problems
def _findings(golds: tuple[Gold, ...], chosen: tuple[int, ...]) -> dict[int, Finding]:
    from grading.check import findings as graded

    return graded(golds, chosen)


def _shown(problem: Problem, finding: Finding) -> str:
    text = problem.answer if len(problem.answer) <= _MOST_CHARACTERS else f"{problem.answer[: _MOST_CHARACTERS - 1]}…"
    end = finding.conclusion
    verdict = "graded correct" if finding.is_met else "graded wrong"
    reason = finding.rejected if end is None else f"{_printable(end.answer[:_MOST_CHARACTERS])} is {verdict}"
    return f'{problem.id} "{_printable(text)}" ({reason})'


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _remedy(rule: str, reads: int, num_golds: int) -> str:
    told = f'answer_rule = "{rule}" in a TOML file for the dataset'
    if reads < num_golds:
        return f"{told} reads {reads:,} of {num_golds:,}, so that rows have two forms: give the answer alone in all"
    return f"{told} reads all"
