"""The method protocol: hyper-parameters, validation of method classes, and required context lengths.

One rule applies to every method, model and engine: a context must hold each prompt and the full text after it (`Text`).
This text is the chain, up to the token budget, or all of SCoT's drafts, which the target reads at once.

- Without `--max-context`, an engine's context holds the longest prompt, the budget and the longest verdict
  (`context_to_open`), up to the model's own maximum.
- A launch rejects a `--max-context` that is too short for a prompt and its text; the message gives the minimum.
- A launch rejects an explicit `--token-budget` above a model's own maximum. Any other shortage is only a warning.
- In a run, a completion ends at its length limit, the token budget or the end of the context. If no budget or context
  is left, or the context truncates a draft of a whole chain, the sample ends with stop reason `budget` or `context`.

Prompt lengths are exact if the model's tokenizer is available locally (`needs`), otherwise upper estimates. Texts are
counted in tokens of the model that writes them; a model with a different tokenizer may need more or fewer tokens.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, ClassVar, Literal, Protocol, TypeVar, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from harness.chain import Chain
from harness.engine import Role, Tokenizer
from harness.problems.problem import Problem
from harness.prompts import BUILT_IN, Prompts, Question, opening, problem_text, reward_question
from harness.recording import Model
from harness.settings.declaration import Parameter as Parameter
from harness.settings.declaration import flag as flag

_T = TypeVar("_T")


BYTES_PER_TOKEN = 2
"""Lower bound for the mean number of UTF-8 bytes per token in benchmark texts."""
PROMPT_RESERVE_TOKENS = 512
"""Tokens reserved for the chat template, the instructions and a verdict's question."""

SAMPLE = Problem("demo/0", "demo", "1 + 1?", "2")
"""Example problem for checking prompts."""

PromptLength = Callable[[Tokenizer, Problem, Prompts], int]
"""Returns a prompt's length in tokens for a problem."""


@dataclass(frozen=True)
class Text:
    """Text that follows a prompt in a model's context."""

    tokens: int
    """Maximum length of the text."""
    settings: tuple[str, ...]
    """The settings that determine the length: `token_budget`, or names of hyper-parameters."""
    prompt: PromptLength | None = None
    """Computes the length of the prompt before the text; None: the prompt is the one that opens the model's reply."""


class Method(Protocol):
    """An algorithm over a draft and a target model: a frozen dataclass that inherits from this protocol."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def roles(self) -> tuple[Role, ...]:
        """The models that the method needs."""
        return ("draft", "target")

    @property
    def parallel(self) -> int:
        """Number of parallel completions per sample, by the draft or by a single model."""
        return 1

    @property
    def target_parallel(self) -> int:
        """Number of parallel requests per sample to the target of a pair."""
        return 1

    @property
    def rubric(self) -> bool:
        """True if the target's prompt must explain the score."""
        return False

    @property
    def drafts_whole_chains(self) -> bool:
        """True if the parallel completions are whole chains, which grow for most of a sample's time."""
        return False

    @property
    def ends_at_box(self) -> bool:
        """True if the chain ends with the first step that contains an answer, even inside the thought.

        A method does not override this: grading reads the same parameter from the run's specification.
        """
        return getattr(self, "ends_at", None) == "boxed"

    @property
    def asks_equivalence(self) -> bool:
        """True if a model decides whether two steps mean the same thing."""
        return False

    @property
    def reads_logprobs(self) -> bool:
        """True if decisions use the candidates' mean log-probability."""
        return False

    @property
    def step_separator(self) -> str | None:
        """Text that ends a step; None: the separator of the wording, which a prompt file may set."""
        return None

    def worded(self, wording: Prompts) -> Prompts:
        """Return the wording with this method's step separator, unless the wording defines a custom one."""
        if self.step_separator is None or wording.step_separator != BUILT_IN.step_separator:
            return wording
        return wording.model_copy(update={"step_separator": self.step_separator})

    def questions(self, role: Role, tokenizer: Tokenizer, wording: Prompts) -> Iterator[Question]:
        """Yield the questions to a model. A launch uses them to reject a tokenizer that splits an option.

        Default: the question to a reward model. Raises ValueError if an option is not a single token, and BadTemplate.
        """
        if role == "reward":
            yield reward_question(tokenizer, wording)

    def check_questions(self, role: Role, tokenizer: Tokenizer, wording: Prompts) -> None:
        """Build the method's prompts for a model. Raises ValueError as `questions` does, and BadTemplate."""
        if role in self.roles:  # other models only propose tokens and read what the target reads
            opening(tokenizer, SAMPLE, wording)
            list(self.questions(role, tokenizer, wording))

    def verdict_tokens(self, token_budget: int) -> int:
        """Return the maximum number of tokens that a verdict's prompt adds to problem and chain."""
        return 0

    def texts(self, role: Role, token_budget: int) -> tuple[Text, ...]:
        """Return the texts that a model's context must hold, at full length (see the module's docstring)."""
        return (Text(token_budget, ("token_budget",)),)

    def cached_tokens(self, role: Role, token_budget: int) -> int:
        """Return the maximum number of tokens per sample in a model's cache, besides the prompt."""
        return token_budget + (self.verdict_tokens(token_budget) if role != "draft" else 0)

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        """Fill the chain. A model missing from `roles` is None; a reward model is used through `Chain.reward`."""


def parameter(
    default: _T,
    help: str,  # noqa: A002 - click's name for it
    *,
    changes_text: bool = True,
    is_usual: bool = True,
) -> _T:
    """Declare a hyper-parameter: a dataclass field of a method with its documentation.

    `help`: one or two plain sentences with the unit and the paper's section, printed by the launcher's `--help`.
    `changes_text=False`: the parameter changes only the speed; samples keep their identity and seed.
    `is_usual=False`: the parameter is part of a run only if it is set.
    Values equal to the default are left out of run and sample ids, so a new parameter does not change existing ids.
    Therefore never change a default: introduce a new name.
    """
    metadata = {"help": help, "changes_text": changes_text, "is_usual": is_usual}
    declared: _T = field(default=default, metadata=metadata)
    return declared


@dataclass(frozen=True)
class ParameterField:
    """A hyper-parameter as declared by its method."""

    name: str
    type: Any
    """The resolved annotation, e.g. `int` or `Literal["greedy", "average"]`."""
    default: Any
    help: str
    changes_text: bool
    is_usual: bool


@cache
def fields_of(method: type[Method]) -> tuple[ParameterField, ...]:
    """Return the hyper-parameters of a method class. Raises KeyError if a field was declared without `parameter`."""
    annotations, told = get_type_hints(method), ("help", "changes_text", "is_usual")
    return tuple(
        ParameterField(one.name, annotations[one.name], one.default, *(one.metadata[name] for name in told))
        for one in fields(method)
    )


def required_context_tokens(
    problems: Iterable[Problem], token_budget: int, verdict_tokens: int, wording: Prompts = BUILT_IN
) -> int:
    """Return an upper estimate of the context of the longest sample, in tokens, including its longest verdict prompt.

    Works without a tokenizer. `token_budget`: maximum number of tokens a sample may emit. `verdict_tokens`: length of a
    verdict prompt beyond problem and chain (see `Method.verdict_tokens`). Wordings longer than the built-in one add
    their extra length. Raises ValueError if there are no problems.
    """
    prompt_bytes = max(len(problem_text(problem, wording).encode()) for problem in problems)
    prompt_bytes += max(0, wording.num_bytes - BUILT_IN.num_bytes)
    return prompt_bytes // BYTES_PER_TOKEN + PROMPT_RESERVE_TOKENS + token_budget + verdict_tokens


def context_to_open(method: Method, prompt_tokens: int, token_budget: int, asked: int | None = None) -> int:
    """Return the context for which engines are started, in tokens: `asked`, or enough for the longest request."""
    return asked or prompt_tokens + token_budget + method.verdict_tokens(token_budget)


def needs(
    text: Text, tokenizer: Tokenizer, problems: Iterable[Problem], wording: Prompts = BUILT_IN, *, rubric: bool = False
) -> Sequence[int]:
    """Return the context, in tokens, that each problem's prompt needs together with this text.

    `rubric`: whether the prompt explains the score (see `harness.prompts.opening`).
    """

    def opened(tokenizer: Tokenizer, problem: Problem, wording: Prompts) -> int:
        return len(opening(tokenizer, problem, wording, rubric=rubric)[0])

    length = text.prompt or opened
    return [length(tokenizer, problem, wording) + text.tokens for problem in problems]


def check_range(name: str, value: float, low: float, high: float | None) -> None:
    """Raise ValueError with the flag and the valid range if a value is outside [low, high]. None: no limit."""
    if value < low or (high is not None and value > high):
        valid = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{flag(name)} must be {valid}, not {value}")


MODEL = (
    "a method is a @dataclass(frozen=True) subclass of harness.methods.Method with `async def __call__(self, chain, "
    "draft, target)`"
)
"""The definition of a valid method, for messages."""
_NAME = re.compile("[a-z][a-z0-9_-]{0,29}")
_FIELD = re.compile("[a-z][a-z0-9_]*")


def problem_of(found: type) -> str | None:
    """Return a short description of why a class is not a valid method; None if it is valid."""
    if Method not in found.__mro__ or found is Method:
        return f"is not a method; {MODEL}"
    return next(_problems(found), None)


class BadMethod(ValueError):
    """A reference does not lead to a valid method; the message is one line."""


def name_of(method: type[Method], name: str | None = None) -> str:
    """Return `name`, otherwise the class's `name = "..."`, otherwise the class name in lower case.

    Raises BadMethod if the name is not valid in run ids and tables.
    """
    is_field = "name" in {declared.name for declared in fields(method)}
    declared = name or (None if is_field else vars(method).get("name"))
    found = declared if isinstance(declared, str) else method.__name__.lower()
    if not _NAME.fullmatch(found):
        valid = "1 to 30 characters (a-z, 0-9, _, -), starting with a letter"
        raise BadMethod(f'the name {found!r} is invalid: use {valid}; set it in the class: name = "..."')
    return found


def _problems(method: type[Method]) -> Iterator[str]:
    if not is_dataclass(method) or "__dataclass_params__" not in vars(method):
        yield "is not a dataclass: write @dataclass(frozen=True) above it"
        return
    if not vars(method)["__dataclass_params__"].frozen:
        yield "is not frozen: write @dataclass(frozen=True) above it"
    if method.__call__ is Method.__call__ or not inspect.iscoroutinefunction(inspect.unwrap(method.__call__)):
        yield f"has no `async def __call__`; {MODEL}"
    try:
        inspect.signature(method.__call__).bind(None, None, None, None)
    except TypeError:
        yield "has the wrong arguments; valid: `async def __call__(self, chain, draft, target)`"
    yield from _problems_of_fields(method)
    try:
        roles = method().roles
    except Exception as error:  # noqa: BLE001 a user's code may raise anything
        yield f"cannot be built with its defaults: {type(error).__name__}: {error}"
        return
    valid = get_args(Role)
    if not isinstance(roles, tuple) or not roles or not set(roles) <= set(valid) or len(set(roles)) < len(roles):
        yield f"has invalid roles {roles!r}; valid: a tuple of one or more of {', '.join(map(repr, valid))}"


def _problems_of_fields(method: type[Method]) -> Iterator[str]:
    try:
        annotations = get_type_hints(method)
    except Exception as error:  # noqa: BLE001 a user's annotation may be anything
        yield f"has an invalid annotation: {type(error).__name__}: {error}"
        return
    for declared in fields(method):
        name, kind, default = declared.name, annotations[declared.name], cast(Parameter, declared.default)
        is_choice = get_origin(kind) is Literal and all(isinstance(value, str) for value in get_args(kind))
        if "help" not in declared.metadata:
            yield f"declares {name} without `parameter`: write {name}: TYPE = parameter(DEFAULT, help=...)"
        elif not _FIELD.fullmatch(name):
            yield f"has a parameter with an invalid name, {name!r}: use a-z, 0-9 and _, starting with a letter"
        elif not is_choice and kind not in (int, float, str, bool):
            written = kind.__name__ if isinstance(kind, type) else kind
            yield f"declares {name} as {written}; valid: int, float, str, bool, or a Literal of strings"
        else:
            try:
                typed(kind, default)
            except ValueError as error:
                yield f"has an invalid default for {name}: {error}"


def typed(kind: type[Parameter], value: Parameter) -> Parameter:
    """Return a value converted to a hyper-parameter's type. Raises ValueError."""
    if isinstance(value, bool) and kind is not bool:
        raise ValueError("expected a value, not true or false")
    try:
        checked: Parameter = TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"]) from error
    if isinstance(checked, float) and not math.isfinite(checked):
        raise ValueError("expected a finite number")
    return checked
