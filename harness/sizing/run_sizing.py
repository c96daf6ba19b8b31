"""What planning needs to know about a run: its models, its longest request, its samples in flight, the user's flags.

A login node, doctor and the worker fill it in, and get the same plan for the same cards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

from harness.cli.toml_file import read_toml
from harness.context import context_to_open
from harness.engine import Role
from harness.engines import placement, registry
from harness.engines.placement import MOST_BYTES_ON_ONE_CORE
from harness.engines.settings import most_requests
from harness.engines.speculation import config_at_hand
from harness.environment import accelerator
from harness.methods import Method
from harness.settings.roles import ModelSettings
from harness.sizing.card_plan import Demand, NotPlannable, Plan, check_known, check_shares, check_width, choose
from harness.sizing.cards import Card, cards_here
from harness.sizing.engine_memory import Config, ModelShape, read_shape
from harness.weights import models

_USUAL_CANDIDATES = 5
"""Candidates of the papers' methods. Room is reserved for as many with every method, so that the shares of a pair do
not depend on the method and its engines can be shared."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model by name, and where its files are."""

    name: str
    path: str
    """A local folder, or a hub id."""
    revision: str | None = None


@dataclass(frozen=True)
class RunSizing:
    """A run, as far as its engines' sizes depend on it."""

    models: Mapping[Role, ModelFiles]
    """Of the engines that the worker starts."""
    context_tokens: int
    """Longest prompt plus output; the models' own limits apply as well."""
    sample_tokens: Mapping[Role, int]
    """Most tokens of one sample in each engine; see `most_tokens`."""
    concurrency: int
    candidates: int = 1
    target_candidates: int = 1
    """Completions of one sample that the target writes in parallel beside a draft."""
    settings: Mapping[Role, ModelSettings] = field(default_factory=dict)
    """Data types, and the widths, memory shares and cards that the user asked for."""
    speculator: ModelFiles | None = None
    """Weights that the target's engine loads to propose tokens."""
    speculative_tokens: int = 0
    adapter_rank: int = 0
    """Rank that the target's engine serves LoRA weights with; 0 without."""

    @classmethod
    def for_method(
        cls,
        method: Method,
        files: Mapping[Role, ModelFiles],
        settings: Mapping[Role, ModelSettings],
        *,
        prompt_tokens: int,
        token_budget: int,
        max_context: int | None = None,
        **others: Any,
    ) -> Self:
        """Return the sizing of a method's run. `files`: of models that it does not have, too; `others`: fields."""
        return cls(
            models={role: files[role] for role in method.roles if role in files},
            context_tokens=context_to_open(method, prompt_tokens, token_budget, max_context),
            sample_tokens=most_tokens(method, prompt_tokens, token_budget),
            candidates=method.parallel,
            target_candidates=method.target_parallel,
            settings={role: settings[role] for role in method.roles if role in settings},
            **others,
        )

    @property
    def roles(self) -> tuple[Role, ...]:
        """The engines that the worker starts."""
        return tuple(self.models)

    def of(self, role: Role) -> ModelSettings:
        """Return the settings of an engine's model."""
        return self.settings.get(role) or ModelSettings()

    @property
    def placement(self) -> placement.Placement:
        """Positions of the cards that each engine may use; None: all of the worker's."""
        return {role: own.gpus for role, own in self.settings.items()}


def most_tokens(method: Method, prompt_tokens: int, token_budget: int) -> dict[Role, int]:
    """Return the most tokens that one sample holds in the cache of each of the method's models.

    Planning calls it with an upper estimate of the prompt, admission with a sample's own prompt.
    """
    return {role: prompt_tokens + method.cached_tokens(role, token_budget) for role in method.roles}


def planned(sizing: RunSizing, cards: Sequence[Card]) -> Plan:
    """Return the plan for these cards.

    Raises DoesNotFit, NotPlannable, and ValueError where a flag or a model's configuration is not valid.
    """
    placement.check(sizing.placement, len(cards), "a worker has")
    return choose(cards, demands(sizing))


def check_flags(sizing: RunSizing, num_cards: int | None) -> None:
    """Raise ValueError where cards, widths or shares that the user asked for are impossible, as far as can be told.

    `num_cards` is None where their number is not known. A model of which nothing is known is not checked.
    """
    placement.check(sizing.placement, num_cards, "a worker has")
    check_shares({role: sizing.of(role).memory for role in sizing.roles}, sizing.placement)
    try:
        wanted = demands(sizing)
    except NotPlannable:
        return
    for demand in wanted:
        check_width(demand, num_cards)


def assumed_models(sizing: RunSizing) -> Iterator[str]:
    """Yield the names of models whose sizes are this project's figures, because their files are not here; each once."""
    files = (*sizing.models.values(), *([sizing.speculator] if sizing.speculator else ()))
    for model in dict.fromkeys(files):
        known = shape_of(model.name, model.path, model.revision)
        if known is not None and known.is_assumed:
            yield model.name


def small_models(sizing: RunSizing) -> frozenset[Role]:
    """Return the roles whose weights have at most MOST_BYTES_ON_ONE_CORE; a model of unknown size is not small."""
    return frozenset(role for role, model in sizing.models.items() if _is_small(model, sizing.of(role).dtype or "auto"))


def _is_small(model: ModelFiles, dtype: str) -> bool:
    try:
        known = shape_of(model.name, model.path, model.revision)
    except ValueError:  # whoever needs the configuration refuses it
        return False
    return known is not None and known.shape.weight_bytes(1, dtype) <= MOST_BYTES_ON_ONE_CORE


def short_contexts(sizing: RunSizing) -> Iterator[str]:
    """Yield a line for each model that cannot read a sample of the whole token budget. Raises NotPlannable."""
    for demand in demands(sizing):
        if demand.context_tokens < sizing.context_tokens:
            yield (
                f"the context of {demand.shape.name} is {demand.context_tokens:,} tokens, and the longest request of "
                f"this token budget has {sizing.context_tokens:,}: samples end before they have spent it"
            )


def demands(sizing: RunSizing) -> list[Demand]:
    """Return what every engine has to hold. Raises NotPlannable where nothing is known of a model."""
    return [_demand(sizing, role) for role in sizing.roles]


def check_plannable(sizing: RunSizing) -> None:
    """Raise NotPlannable where a model's size cannot be calculated."""
    for demand in demands(sizing):
        check_known(demand)


def _demand(sizing: RunSizing, role: Role) -> Demand:
    shape, own = _shape(sizing.models[role]), sizing.of(role)
    context = min(sizing.context_tokens, shape.max_positions or sizing.context_tokens)
    loads = role == "target" and sizing.speculator is not None
    candidates = max(_USUAL_CANDIDATES, sizing.candidates)
    sequences = most_requests(role, sizing.roles, sizing.concurrency, candidates, sizing.target_candidates)
    return Demand(
        name=role,
        shape=shape,
        context_tokens=context,
        sample_tokens=sizing.sample_tokens[role],
        num_samples=sizing.concurrency,
        num_logits=sequences * (1 + (sizing.speculative_tokens if role == "target" else 0)),
        dtype=own.dtype or "auto",
        companions=(_shape(sizing.speculator),) if loads and sizing.speculator is not None else (),
        adapter_rank=sizing.adapter_rank if role == "target" else 0,
        width=own.tensor_parallel,
        share=own.memory,
        cards=own.gpus,
    )


def _shape(model: ModelFiles) -> ModelShape:
    known: KnownShape | None = shape_of(model.name, model.path, model.revision)
    if known is None:
        raise NotPlannable(f"the size of {model.name} is unknown: its config.json is not on this machine")
    return known.shape


@dataclass(frozen=True, slots=True)
class KnownShape:
    """A model's shape, and whether its own files say so."""

    shape: ModelShape
    is_assumed: bool
    """True where the figures are this project's, because the model's files are not on this machine."""


def shape_of(name: str, path_or_hub_id: str, revision: str | None = None) -> KnownShape | None:
    """Return the shape of a model in a folder or at the hub; None where nothing about it is known here.

    A config.json in the folder or in the hub's cache decides; without one, the figures in `models.toml` are assumed.
    Raises ValueError, with one line, where the configuration is not valid.
    """
    reference = models.ModelRef(name, path_or_hub_id, revision, None)
    config = config_at_hand(reference)
    if config is not None:
        return KnownShape(
            read_shape(name, config, _file_bytes(models.files_at_hand(path_or_hub_id, revision))), is_assumed=False
        )
    figures = _figures().get(path_or_hub_id)
    return None if figures is None else KnownShape(read_shape(name, figures), is_assumed=True)


@cache
def _figures() -> Mapping[str, Config]:
    return read_toml(Path(__file__).with_name("models.toml"))


def _file_bytes(folder: Path | None) -> int | None:
    """Return the bytes of the weight files; None where they are not all here."""
    weights = models.weight_files(folder) if folder is not None else models.WeightFiles()
    return None if weights.missing else weights.num_bytes or None


@dataclass(frozen=True)
class Chosen:
    """What `pair_settings` takes."""

    tensor_parallel: dict[Role, int]
    memory: dict[Role, float | None]
    """Memory shares; None: the default."""


def chosen_here(kind: str, sizing: RunSizing) -> Chosen:
    """Return the widths and shares on this machine's GPUs; those that were asked for, without GPUs or a plan.

    Raises DoesNotFit, and ValueError where what was asked for is not possible.
    """
    plan = plan_here(kind, sizing)
    if plan is not None:
        engines = {role: plan.engines[role] for role in sizing.roles}
        return Chosen({r: e.width for r, e in engines.items()}, {r: e.share for r, e in engines.items()})
    return asked_for(sizing)


def asked_for(sizing: RunSizing) -> Chosen:
    """Return the widths and shares that were asked for, and the defaults where nothing was."""
    asked = {role: sizing.of(role) for role in sizing.roles}
    widths = {role: own.tensor_parallel or len(own.gpus or (0,)) for role, own in asked.items()}
    return Chosen(widths, {role: own.memory for role, own in asked.items()})


def plan_here(kind: str, sizing: RunSizing) -> Plan | None:
    """Return the plan for this machine's GPUs; None without GPUs, for other engines, and where it is not calculable.

    Raises DoesNotFit, and ValueError where what was asked for is not possible.
    """
    if not registry.capabilities(kind).is_planned or accelerator() != "gpu" or not (cards := cards_here()):
        return None
    try:
        return planned(sizing, cards)
    except NotPlannable:
        return None
