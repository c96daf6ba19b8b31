"""What the runner needs to know about a method, with the defaults that most methods share."""

from __future__ import annotations

from dataclasses import Field, dataclass, field
from typing import Any, Protocol, TypeVar

from harness.chain import Chain
from harness.context import Text
from harness.engine import Role

_T = TypeVar("_T")


class Method(Protocol):
    """An algorithm over a draft and a target model: a frozen dataclass that inherits from this protocol."""

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
        """Number of completions of one sample that the target generates at the same time beside a draft."""
        return 1

    @property
    def parallel_verdicts(self) -> int:
        """Most verdicts of one sample that are asked at the same time."""
        return 1

    @property
    def rubric(self) -> bool:
        """True where the target's prompt has to explain what a score is."""
        return False

    @property
    def shows_step_candidates(self) -> bool:
        """True where a verdict's question shows the candidates for a step side by side."""
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

    def verdict_tokens(self, token_budget: int) -> int:
        """Return the tokens that the longest verdict prompt holds beyond problem and chain."""
        return 0

    def texts(self, role: Role, token_budget: int) -> tuple[Text, ...]:
        """Return what a model's context must hold behind a prompt, at full length (see harness/context.py)."""
        return (Text(token_budget, ("token_budget",)),)

    def cached_tokens(self, role: Role, token_budget: int) -> int:
        """Return the most tokens of one sample that a model's cache holds at a time beyond the prompt."""
        return token_budget + (self.verdict_tokens(token_budget) if role != "draft" else 0)

    async def __call__(self, chain: Chain, draft: Any, target: Any) -> None:
        """Fill the chain. `draft` and `target` are Models, or None where `roles` lacks them.

        A reward model is asked through the chain (`Chain.reward`).
        """


def parameter(
    default: _T,
    help: str,  # noqa: A002 - click's word for it
    *,
    changes_text: bool = True,
) -> _T:
    """Declare a hyper-parameter: a dataclass field of a method that carries its own documentation.

    `help` is one or two plain sentences with the unit and the paper's section; the launcher's `--help` prints it.
    `changes_text=False` marks a parameter that changes the speed only: a sample with it is the same sample, drawn with
    the same seed. What stands at its default is left out of the ids of runs and samples, so that a new parameter
    changes none; the default of a parameter is therefore never changed, a new name is.
    """
    metadata = {"help": help, "changes_text": changes_text}
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

    @classmethod
    def read(cls, declared: Field[Any], annotation: Any) -> ParameterField:
        """Read what `parameter` put into a dataclass field; raises KeyError where the field was declared without it."""
        metadata = declared.metadata
        return cls(
            name=declared.name,
            type=annotation,
            default=declared.default,
            help=metadata["help"],
            changes_text=metadata["changes_text"],
        )
