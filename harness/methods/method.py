"""What a method is: the protocol, its hyper-parameters, which classes are valid, and how long contexts must be.

Contexts: one rule for every method, model and engine. What a method writes or shows to a model stands behind a prompt
(`Text`): the chain, which may be as long as the token budget, or SCoT's drafts, which the target reads all at once.
Each has to fit at its full length.

- Without `--max-context` an engine is opened with room for the longest prompt, the budget and the longest verdict
  (`context_to_open`), at most the model's own maximum.
- A `--max-context` that does not hold every prompt and text is refused at the launch, with the least that does.
- Where the model's own maximum is shorter, a text that was asked for and is longer than the whole context is refused.
  For any other a warning says how many problems it concerns.
- Inside a run a text is as long as asked, as long as budget and context allow. Where they leave nothing, or the context
  cut a draft of a whole chain, the sample ends with the stop reason `budget` or `context`.

Lengths of prompts are those of the model's tokenizer where it is at hand (`needs`), else estimates from above. Texts
are counted in the tokens of their author; a reader with another tokenizer may need more or fewer.
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
"""Fewer UTF-8 bytes than a token of any benchmark's text has on average."""
PROMPT_RESERVE_TOKENS = 512
"""Room for the chat template, the instructions and a verdict's question."""

SAMPLE = Problem("demo/0", "demo", "1 + 1?", "2")
"""A problem to try prompts with."""

PromptLength = Callable[[Tokenizer, Problem, Prompts], int]
"""Returns the tokens of a prompt for a problem."""


@dataclass(frozen=True)
class Text:
    """What stands behind a prompt in a model's context."""

    tokens: int
    """Its full length."""
    settings: tuple[str, ...]
    """The settings that say how long it is: `token_budget`, or names of hyper-parameters."""
    prompt: PromptLength | None = None
    """The prompt that it stands behind; None: the one that opens the model's reply."""


class Method(Protocol):
    """An algorithm over a draft and a target model: a frozen dataclass that inherits from this protocol."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def roles(self) -> tuple[Role, ...]:
        """The models that the method needs."""
        return ("draft", "target")

    @property
    def parallel(self) -> int:
        """Number of completions of one sample that are generated at the same time: by the draft where there are two."""
        return 1

    @property
    def target_parallel(self) -> int:
        """Number of requests of one sample that the target has at the same time beside a draft."""
        return 1

    @property
    def rubric(self) -> bool:
        """True where the target's prompt has to explain what a score is."""
        return False

    @property
    def drafts_whole_chains(self) -> bool:
        """True where the parallel completions are whole chains, which grow for most of a sample's time."""
        return False

    @property
    def ends_at_box(self) -> bool:
        """True where the chain ends with the first step that holds an answer, also inside the thought."""
        return False

    @property
    def asks_equivalence(self) -> bool:
        """True where a model is asked whether two steps mean the same."""
        return False

    @property
    def reads_logprobs(self) -> bool:
        """True where a decision reads the mean log-probability of candidates."""
        return False

    @property
    def step_separator(self) -> str | None:
        """Text that ends a step; None: that of the wording, which a prompt file may set."""
        return None

    def worded(self, wording: Prompts) -> Prompts:
        """Return a wording with this method's step separator, unless the wording has one of its own."""
        if self.step_separator is None or wording.step_separator != BUILT_IN.step_separator:
            return wording
        return wording.model_copy(update={"step_separator": self.step_separator})

    def questions(self, role: Role, tokenizer: Tokenizer, wording: Prompts) -> Iterator[Question]:
        """Yield what a model is asked beside writing, so that a launch refuses a tokenizer that lacks an answer.

        By itself, what a reward model is asked. Raises ValueError where an option is no single token, and BadTemplate.
        """
        if role == "reward":
            yield reward_question(tokenizer, wording)

    def check_questions(self, role: Role, tokenizer: Tokenizer, wording: Prompts) -> None:
        """Build what the method sends a model. Raises ValueError as `questions` does, and BadTemplate."""
        if role in self.roles:  # others propose tokens, and read what the target does
            opening(tokenizer, SAMPLE, wording)
            list(self.questions(role, tokenizer, wording))

    def verdict_tokens(self, token_budget: int) -> int:
        """Return the tokens that the longest verdict prompt holds beyond problem and chain."""
        return 0

    def texts(self, role: Role, token_budget: int) -> tuple[Text, ...]:
        """Return what a model's context must hold behind a prompt, at full length (see above)."""
        return (Text(token_budget, ("token_budget",)),)

    def cached_tokens(self, role: Role, token_budget: int) -> int:
        """Return the most tokens of one sample that a model's cache holds at a time beyond the prompt."""
        return token_budget + (self.verdict_tokens(token_budget) if role != "draft" else 0)

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        """Fill the chain. A model that `roles` lacks is None.

        A reward model is asked through the chain (`Chain.reward`).
        """


def parameter(
    default: _T,
    help: str,  # noqa: A002 - click's word for it
    *,
    changes_text: bool = True,
    is_usual: bool = True,
) -> _T:
    """Declare a hyper-parameter: a dataclass field of a method that carries its own documentation.

    `help` is one or two plain sentences with the unit and the paper's section; the launcher's `--help` prints it.
    `changes_text=False` marks a parameter that changes the speed only: a sample with it is the same sample, drawn with
    the same seed. `is_usual=False`: a run has it only where it is set. What stands at its default is left out of the
    ids of runs and samples, so that a new parameter changes none; the default of a parameter is therefore never
    changed, a new name is.
    """
    metadata = {"help": help, "changes_text": changes_text, "is_usual": is_usual}
    declared: _T = field(default=default, metadata=metadata)
    return declared


@dataclass(frozen=True)
class ParameterField:
    """A hyper-parameter as its method declares it."""

    name: str
    type: Any
    """The resolved annotation, e.g. `int` or `Literal["greedy", "average"]`."""
    default: Any
    help: str
    changes_text: bool
    is_usual: bool


@cache
def fields_of(method: type[Method]) -> tuple[ParameterField, ...]:
    """Return the hyper-parameters of a method's class. Raises KeyError where a field was declared without help."""
    annotations, told = get_type_hints(method), ("help", "changes_text", "is_usual")
    return tuple(
        ParameterField(one.name, annotations[one.name], one.default, *(one.metadata[name] for name in told))
        for one in fields(method)
    )


def required_context_tokens(
    problems: Iterable[Problem], token_budget: int, verdict_tokens: int, wording: Prompts = BUILT_IN
) -> int:
    """Return the tokens that the longest sample and its longest verdict prompt may need.

    Estimated from above, without a tokenizer. `token_budget` is what a sample may emit, `verdict_tokens` what a verdict
    prompt holds beyond problem and chain (see `Method.verdict_tokens`). A wording with longer texts than the built-in
    one needs as much more. Raises ValueError without any problem.
    """
    prompt_bytes = max(len(problem_text(problem, wording).encode()) for problem in problems)
    prompt_bytes += max(0, wording.num_bytes - BUILT_IN.num_bytes)
    return prompt_bytes // BYTES_PER_TOKEN + PROMPT_RESERVE_TOKENS + token_budget + verdict_tokens


def context_to_open(method: Method, prompt_tokens: int, token_budget: int, asked: int | None = None) -> int:
    """Return the context that engines are opened with: as asked for, else what the longest request may need."""
    return asked or prompt_tokens + token_budget + method.verdict_tokens(token_budget)


def needs(
    text: Text, tokenizer: Tokenizer, problems: Iterable[Problem], wording: Prompts = BUILT_IN, *, rubric: bool = False
) -> Sequence[int]:
    """Return the context, in tokens, that holds each problem's prompt and this text behind it.

    `rubric`: the prompt explains what a score is (see `harness.prompts.opening`).
    """

    def opened(tokenizer: Tokenizer, problem: Problem, wording: Prompts) -> int:
        return len(opening(tokenizer, problem, wording, rubric=rubric)[0])

    length = text.prompt or opened
    return [length(tokenizer, problem, wording) + text.tokens for problem in problems]


def check_range(name: str, value: float, low: float, high: float | None) -> None:
    """Raise ValueError, naming the flag and the valid range, where a value is outside [low, high]. None: no limit."""
    if value < low or (high is not None and value > high):
        valid = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{flag(name)} must be {valid}, not {value}")


MODEL = (
    "a method is a @dataclass(frozen=True) class of harness.methods.Method with `async def __call__(self, chain, "
    "draft, target)`"
)
"""What is valid, for messages."""
_NAME = re.compile("[a-z][a-z0-9_-]{0,29}")
_FIELD = re.compile("[a-z][a-z0-9_]*")


def problem_of(found: type) -> str | None:
    """Return what is wrong with a class as a method, in a few words that say what is valid; None where nothing is."""
    if Method not in found.__mro__ or found is Method:
        return f"is not a method; {MODEL}"
    return next(_problems(found), None)


class BadMethod(ValueError):
    """What was named is not a method that can be run; the message is one line that says what is valid."""


def name_of(method: type[Method], name: str | None = None) -> str:
    """Return `name`, else what a class calls itself (`name = "..."`), else its own name in lower case.

    Raises BadMethod where that cannot be the name of a method in run ids and tables.
    """
    is_field = "name" in {declared.name for declared in fields(method)}
    declared = name or (None if is_field else vars(method).get("name"))
    found = declared if isinstance(declared, str) else method.__name__.lower()
    if not _NAME.fullmatch(found):
        valid = "1 to 30 of a-z, 0-9, _ and -, a letter first"
        raise BadMethod(f'the name {found!r} is not {valid}; set one in the class: name = "..."')
    return found


def _problems(method: type[Method]) -> Iterator[str]:
    if not is_dataclass(method) or "__dataclass_params__" not in vars(method):
        yield "is not a dataclass: write @dataclass(frozen=True) above it"
        return
    if not vars(method)["__dataclass_params__"].frozen:
        yield "can be changed while it runs: write @dataclass(frozen=True) above it"
    if method.__call__ is Method.__call__ or not inspect.iscoroutinefunction(inspect.unwrap(method.__call__)):
        yield f"has no `async def __call__`; {MODEL}"
    try:
        inspect.signature(method.__call__).bind(None, None, None, None)
    except TypeError:
        yield "takes other arguments than `async def __call__(self, chain, draft, target)`"
    yield from _problems_of_fields(method)
    try:
        roles = method().roles
    except Exception as error:  # noqa: BLE001 a user's code may raise anything
        yield f"cannot be built with its defaults: {type(error).__name__}: {error}"
        return
    valid = get_args(Role)
    if not isinstance(roles, tuple) or not roles or not set(roles) <= set(valid) or len(set(roles)) < len(roles):
        yield f"has the roles {roles!r}; valid: a tuple of one or more of {', '.join(map(repr, valid))}"


def _problems_of_fields(method: type[Method]) -> Iterator[str]:
    try:
        annotations = get_type_hints(method)
    except Exception as error:  # noqa: BLE001 a user's annotation may be anything
        yield f"has an annotation that cannot be read: {type(error).__name__}: {error}"
        return
    for declared in fields(method):
        name, kind, default = declared.name, annotations[declared.name], cast(Parameter, declared.default)
        is_choice = get_origin(kind) is Literal and all(isinstance(value, str) for value in get_args(kind))
        if "help" not in declared.metadata:
            yield f"declares {name} without `parameter`: write {name}: TYPE = parameter(DEFAULT, help=...)"
        elif not _FIELD.fullmatch(name):
            yield f"has a parameter {name!r}, whose name is not of a-z, 0-9 and _, a letter first"
        elif not is_choice and kind not in (int, float, str, bool):
            written = kind.__name__ if isinstance(kind, type) else kind
            yield f"declares {name} as {written}; valid: int, float, str, bool, or Literal of words"
        else:
            try:
                typed(kind, default)
            except ValueError as error:
                yield f"has a default for {name} that is not valid: {error}"


def typed(kind: type[Parameter], value: Parameter) -> Parameter:
    """Return a value in the type of a hyper-parameter. Raises ValueError."""
    if isinstance(value, bool) and kind is not bool:
        raise ValueError("expected a value, not true or false")
    try:
        checked: Parameter = TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"]) from error
    if isinstance(checked, float) and not math.isfinite(checked):
        raise ValueError("expected a finite number")
    return checked
