"""Choose the tensor-parallel size ("width"), the GPUs ("cards") and the memory share of every engine of a worker.

The plan has the smallest widths at which the caches hold all concurrent samples at the full token budget; if there are
none, the widths with the largest caches. Caches on the same GPUs have equal sizes in tokens, because every model reads
the whole chain. An engine has the same share on all of its GPUs, limited by the fullest one. Any number of engines, for
any purpose, can be planned.

Shares depend on models, widths, GPUs and number of sequences, but not on problems or token budgets. Runs of one pair
with equal widths can therefore share engines.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any, Self, TypeVar

from harness.cli.messages import counted
from harness.engine import Role
from harness.engines import placement, registry
from harness.engines.placement import MOST_BYTES_ON_ONE_CORE
from harness.engines.settings import most_requests
from harness.environment import accelerator
from harness.methods import Method
from harness.methods.method import context_to_open
from harness.settings.roles import ModelSettings
from harness.sizing.memory import GIB, Card, EngineMemory, ModelShape, cards_here, engine_memory, shape_of

BLOCK_TOKENS = 16
"""vLLM's block size on a GPU; one block of a cache is unused (the pool's null block)."""
_UNASSIGNED_SHARE = 0.01
"""Share of a GPU that no engine gets, for uncounted memory: other contexts, fragmentation, estimation errors."""
_WORTH_A_CARD_BYTES = GIB // 2
"""Minimum bytes of weights per GPU for splitting a model: reading them takes an H100 0.15 ms per token, while the two
all-reduces per layer, 10 µs each, cost 0.5 ms for 28 layers."""
_SHARE_DIGITS = 1_000_000
_MOST_CARDS = 64
_Name = TypeVar("_Name", bound=str)


class DoesNotFit(ValueError):
    """The engines do not fit on the GPUs; the message is one line with the sizes."""


class NotPlannable(ValueError):
    """A model's size cannot be calculated; the message is one line with the reason."""


@dataclass(frozen=True)
class Demand:
    """What one engine requires."""

    name: str
    """Role, as in messages and flags, such as `draft`."""
    shape: ModelShape
    context_tokens: int
    """Maximum prompt plus output length; vLLM does not start with a smaller cache."""
    sample_tokens: int
    """Maximum number of tokens of one sample in this engine."""
    num_samples: int
    """Number of concurrent samples that the caches must hold."""
    num_logits: int
    """Maximum rows of logits in one batch: sequences times the tokens each may accept at once."""
    dtype: str = "auto"
    companions: tuple[ModelShape, ...] = ()
    """Models that this engine loads as token proposers."""
    adapter_rank: int = 0
    width: int | None = None
    """Tensor-parallel size set by the user."""
    share: float | None = None
    """Memory share set by the user."""
    cards: tuple[int, ...] | None = None
    """Positions of the usable GPUs; None: all of the worker's."""

    def memory(self, width: int) -> EngineMemory:
        """Return the engine's memory on each of `width` GPUs."""
        return engine_memory(
            self.shape,
            width,
            num_logits=self.num_logits,
            dtype=self.dtype,
            companions=self.companions,
            adapter_rank=self.adapter_rank,
        )


@dataclass(frozen=True)
class EnginePlan:
    """Placement and memory plan of one engine."""

    name: str
    model: str
    width: int
    cards: tuple[int, ...]
    """Positions among the worker's GPUs."""
    share: float
    """Share of the memory of each of its GPUs."""
    kv_tokens: int
    """Estimated cache size in tokens; the engine reports the exact size."""
    sample_tokens: int
    memory: EngineMemory

    @property
    def num_samples(self) -> int:
        """Number of samples at the full token budget that fit in the cache."""
        return self.kv_tokens // self.sample_tokens


@dataclass(frozen=True)
class Plan:
    """Placement and memory plan of all engines of a worker."""

    engines: Mapping[str, EnginePlan]
    cards: tuple[Card, ...]

    @property
    def num_cards(self) -> int:
        """Number of GPUs used by the engines."""
        return len({card for engine in self.engines.values() for card in engine.cards})

    @property
    def num_samples(self) -> int:
        """Number of samples at the full token budget that fit in all caches."""
        return min(engine.num_samples for engine in self.engines.values())

    @property
    def kv_tokens(self) -> int:
        """Size of the smallest cache, in tokens."""
        return min(engine.kv_tokens for engine in self.engines.values())


def check_known(demand: Demand) -> None:
    """Raise NotPlannable if the size of a cache or of weights cannot be calculated."""
    for shape in (demand.shape, *demand.companions):
        if shape.kv_unknown is not None:
            raise NotPlannable(f"the KV cache size of {shape.name} is unknown: {shape.kv_unknown}")
        if shape.weights_unknown is not None and shape.file_bytes is None:
            raise NotPlannable(f"the weight size of {shape.name} is unknown: {shape.weights_unknown}")
        if shape.is_quantized and shape.file_bytes is None:
            raise NotPlannable(
                f"the weight size of {shape.name} is unknown: the model is quantized, and its files are not available"
            )


def check_width(demand: Demand, num_cards: int | None = None) -> None:
    """Raise ValueError if the requested width is impossible. `num_cards`: the worker's GPUs; None if unknown."""
    if demand.width is None:
        return
    widths = [str(width) for width in _widths(demand, num_cards or _MOST_CARDS)]
    if demand.cards is None:
        flag, valid = f"--{demand.name}.tensor-parallel {demand.width}", ", ".join(widths)
    else:  # the width follows from the cards
        flag, valid = f"--{demand.name}.gpus {placement.written(demand.cards)}", f"{' or '.join(widths)} of them"
    if num_cards is not None and demand.width > num_cards:
        raise ValueError(f"{flag}: a worker has {counted(num_cards, 'GPU')}; valid: {valid}")
    for shape in (demand.shape, *demand.companions):
        if (reason := shape.refusal(demand.width)) is not None:
            raise ValueError(f"{flag}: cannot split {shape.name} this way: {reason}; valid: {valid}")


def check_shares(shares: Mapping[_Name, float | None], cards: Mapping[_Name, tuple[int, ...] | None]) -> None:
    """Raise ValueError if requested shares add up to more than 1 on the same GPUs.

    `cards`: usable positions by engine name; None or no entry: all.
    """
    for names in placement.on_each_card({name: cards.get(name) for name in shares}):
        together = {name: share for name in names if (share := shares[name]) is not None}
        if sum(together.values()) > 1 + 1e-9:
            flags = " and ".join(f"--{other}.memory {share:g}" for other, share in together.items())
            raise ValueError(f"{flags} add up to more than 1, the whole memory of a GPU")


def lacking(demands: Sequence[Demand], candidate: Plan) -> list[Demand]:
    """Return the engines whose cache is too small for one request of the maximum length.

    Engines with a user-defined share are excluded: vLLM checks these itself.
    """
    return [d for d in demands if d.share is None and candidate.engines[d.name].kv_tokens < d.context_tokens]


def largest(cards: Sequence[Card], demands: Sequence[Demand]) -> Plan | None:
    """Return the plan with the smallest widths that fits all concurrent samples; else the one with the largest caches.

    The largest caches may be empty. None if the weights do not fit.
    """
    # An engine has the same share on all of its GPUs, so every GPU counts as the smallest.
    smallest = min((card.total_bytes for card in cards), default=0)
    cards = [replace(card, total_bytes=smallest) for card in cards]
    options = [list(_placements(demand, len(cards))) for demand in demands]
    plans = (_filled(cards, demands, positions) for positions in product(*options))
    return max((candidate for candidate in plans if candidate is not None), key=partial(_worth, demands), default=None)


def _worth(demands: Sequence[Demand], candidate: Plan) -> tuple[bool, bool, int, int]:
    width = sum(engine.width for engine in candidate.engines.values())
    if all(candidate.engines[demand.name].num_samples >= demand.num_samples for demand in demands):
        return not lacking(demands, candidate), True, -width, candidate.kv_tokens
    return not lacking(demands, candidate), False, candidate.kv_tokens, -width


def _placements(demand: Demand, num_cards: int) -> Iterator[tuple[int, ...]]:
    """Yield the possible sets of GPUs for an engine: for every width, the first of its usable GPUs, as in vLLM."""
    allowed = demand.cards if demand.cards is not None else tuple(range(num_cards))
    if demand.width is not None:
        yield allowed[: demand.width]
        return
    for width in _widths(demand, len(allowed)):
        if width == 1 or demand.shape.weight_bytes(width, demand.dtype) >= _WORTH_A_CARD_BYTES:
            yield allowed[:width]


def _widths(demand: Demand, most: int) -> list[int]:
    kinds = [set(shape.widths(most)) for shape in (demand.shape, *demand.companions)]
    return sorted(set.intersection(*kinds))


@dataclass(frozen=True)
class _Seat:
    demand: Demand
    cards: tuple[int, ...]
    memory: EngineMemory
    total_bytes: int
    """Memory of each GPU."""

    def tokens_of_share(self, share: float) -> float:
        """Return the cache tokens that fit in a user-defined share; negative if the weights do not fit.

        If the weights fit, the result is at least 0, even if the other requirements seem not to fit: these are
        estimates, and vLLM measures them at its start.
        """
        tokens = (share * self.total_bytes - self.memory.fixed) / self.memory.kv_per_token
        return tokens if self.memory.weights > share * self.total_bytes else max(0.0, tokens)


def _filled(cards: Sequence[Card], demands: Sequence[Demand], positions: Sequence[tuple[int, ...]]) -> Plan | None:
    """Assign every engine its share; None if requirements other than the cache do not fit.

    GPUs are filled evenly: all engines grow by equally many tokens until a GPU is full. The engines on this GPU then
    keep their size, and the others continue.
    """
    seats = [
        _Seat(demand, on, demand.memory(len(on)), cards[on[0]].total_bytes)
        for demand, on in zip(demands, positions, strict=True)
    ]
    tokens = {s.demand.name: s.tokens_of_share(s.demand.share) for s in seats if s.demand.share is not None}
    while waiting := [seat for seat in seats if seat.demand.name not in tokens]:
        levels = {s.demand.name: min(_level(c, cards[c], seats, tokens) for c in s.cards) for s in waiting}
        tokens |= {name: level for name, level in levels.items() if level <= min(levels.values())}
    if min(tokens.values()) < 0:
        return None
    return Plan({s.demand.name: _engine(s, tokens[s.demand.name]) for s in seats}, tuple(cards))


def _level(position: int, card: Card, seats: Sequence[_Seat], tokens: Mapping[str, float]) -> float:
    """Return how many cache tokens a GPU can give to each of its engines that has no entry in `tokens`.

    All these engines get equally many tokens.
    """
    here = [seat for seat in seats if position in seat.cards]
    room = card.usable_bytes - int(card.total_bytes * _UNASSIGNED_SHARE)
    room -= sum(seat.memory.outside + seat.memory.fixed for seat in here)
    settled = sum(tokens[s.demand.name] * s.memory.kv_per_token for s in here if s.demand.name in tokens)
    return (room - settled) / sum(s.memory.kv_per_token for s in here if s.demand.name not in tokens)


def _engine(seat: _Seat, tokens: float) -> EnginePlan:
    demand, memory = seat.demand, seat.memory
    share = demand.share
    if share is None:
        wanted = memory.fixed + tokens * memory.kv_per_token
        share = math.floor(wanted / seat.total_bytes * _SHARE_DIGITS) / _SHARE_DIGITS
    blocks = max(0, int(share * seat.total_bytes) - memory.fixed) // (memory.kv_per_token * BLOCK_TOKENS)
    return EnginePlan(
        name=demand.name,
        model=demand.shape.name,
        width=len(seat.cards),
        cards=seat.cards,
        share=share,
        kv_tokens=max(0, blocks - 1) * BLOCK_TOKENS,
        sample_tokens=demand.sample_tokens,
        memory=memory,
    )


def choose(cards: Sequence[Card], demands: Sequence[Demand]) -> Plan:
    """Choose widths, GPUs and shares. Raises DoesNotFit, NotPlannable, and ValueError for impossible user settings."""
    check_shares({d.name: d.share for d in demands}, {d.name: d.cards for d in demands})
    for demand in demands:
        check_known(demand)
        check_width(demand, len(cards))
    best = largest(cards, demands)
    if best is None or lacking(demands, best):
        raise DoesNotFit(explain(cards, demands, best))
    return best


def explain(cards: Sequence[Card], demands: Sequence[Demand], best: Plan | None) -> str:
    """Return one line with the required and the available memory.

    `best` is the plan with the largest caches; None if the weights do not fit.
    """
    there = describe_cards(cards)
    models = ", ".join(f"{d.name} {d.shape.name} ({d.shape.weight_bytes(1, d.dtype) / GIB:.1f} GiB)" for d in demands)
    if best is None:
        reason = f"the weights of {models} plus engine overhead do not fit on {there}"
    else:
        held = ", ".join(
            f"the {d.name}'s KV cache holds only {best.engines[d.name].kv_tokens:,} tokens; a request may need "
            f"{d.context_tokens:,}"
            for d in lacking(demands, best)
        )
        reason = f"{models} on {there}: {held}"
    return f"{reason}; run python -m harness.sizing to see which GPUs fit"


def describe_cards(cards: Sequence[Card]) -> str:
    """Return a description such as `4 × H100 of 78.8 GiB`."""
    if not cards:
        return "no GPU"
    smallest = min(cards, key=lambda card: card.usable_bytes)
    used = f", {smallest.used_bytes / GIB:.1f} GiB of it in use" if smallest.used_bytes > GIB // 2 else ""
    return f"{len(cards)} × {smallest.name} of {smallest.total_bytes / GIB:.1f} GiB{used}"


def plan_lines(plan: Plan, concurrency: int) -> Iterator[str]:
    """Yield the lines of a dry run: weights, width, share and cache of each engine, and the samples that fit.

    Runs with more concurrent samples than that still work: the worker admits as many as fit, and most samples stay
    below the token budget.
    """
    for engine in plan.engines.values():
        yield (
            f"{engine.name} {engine.model}: tensor parallel {engine.width}, "
            f"{engine.memory.weights / GIB:.1f} GiB of weights per GPU, memory share {engine.share:.4f}, "
            f"KV cache of about {engine.kv_tokens:,} tokens ({engine.memory.kv_per_token / 1024:g} KiB each), "
            f"room for {counted(engine.num_samples, 'sample')} of at most {engine.sample_tokens:,} tokens"
        )
    room = f"room for {counted(plan.num_samples, 'sample')} at the full token budget (concurrency {concurrency})"
    yield f"{room} on {describe_cards(plan.cards)}"


_USUAL_CANDIDATES = 5
"""Number of candidates in the papers' methods. Every method reserves memory for this many, so a pair's shares do not
depend on the method, and engines can be shared."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model's name and the location of its files."""

    name: str
    path: str
    """A local folder, or a hub id."""
    revision: str | None = None


@dataclass(frozen=True)
class RunSizing:
    """The settings of a run that determine its engines' sizes."""

    models: Mapping[Role, ModelFiles]
    """Models of the engines started by the worker."""
    context_tokens: int
    """Maximum prompt plus output length; the models' own limits also apply."""
    sample_tokens: Mapping[Role, int]
    """Maximum number of tokens of one sample in each engine; see `most_tokens`."""
    concurrency: int
    candidates: int = 1
    target_candidates: int = 1
    """Parallel requests per sample to every engine besides the draft, if there are several engines."""
    settings: Mapping[Role, ModelSettings] = field(default_factory=dict)
    """Data types, and widths, memory shares and GPUs set by the user."""
    speculator: ModelFiles | None = None
    """Weights that the target's engine loads as token proposer."""
    speculative_tokens: int = 0
    adapter_rank: int = 0
    """LoRA rank in the target's engine; 0 without LoRA."""

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
        """Return the sizing of a method's run. `files` may contain unused models; `others`: further fields."""
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
        """Roles of the engines started by the worker."""
        return tuple(self.models)

    def of(self, role: Role) -> ModelSettings:
        """Return the settings of an engine's model."""
        return self.settings.get(role) or ModelSettings()

    @property
    def placement(self) -> placement.Placement:
        """Positions of each engine's usable GPUs; None: all of the worker's."""
        return {role: own.gpus for role, own in self.settings.items()}


def most_tokens(method: Method, prompt_tokens: int, token_budget: int) -> dict[Role, int]:
    """Return the maximum number of tokens of one sample in each model's cache.

    `prompt_tokens`: an upper estimate for the run's prompts.
    """
    return {role: prompt_tokens + method.cached_tokens(role, token_budget) for role in method.roles}


def planned(sizing: RunSizing, cards: Sequence[Card]) -> Plan:
    """Return the plan for these GPUs.

    Raises DoesNotFit, NotPlannable, and ValueError for an invalid flag or model configuration.
    """
    placement.check(sizing.placement, len(cards), "a worker has")
    return choose(cards, demands(sizing))


def check_flags(sizing: RunSizing, num_cards: int | None) -> None:
    """Raise ValueError if requested GPUs, widths or shares are impossible, as far as known.

    `num_cards` is None if unknown. Models of unknown size are not checked.
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
    """Yield, without duplicates, the names of models with built-in sizes, because their files are not available."""
    files = (*sizing.models.values(), *([sizing.speculator] if sizing.speculator else ()))
    for model in dict.fromkeys(files):
        known = shape_of(model.name, model.path, model.revision)
        if known is not None and known.is_assumed:
            yield model.name


def small_models(sizing: RunSizing) -> frozenset[Role]:
    """Return the roles whose weights have at most MOST_BYTES_ON_ONE_CORE; unknown sizes are not small."""
    small = set()
    for role, model in sizing.models.items():
        with contextlib.suppress(ValueError):  # an invalid configuration is rejected elsewhere
            known = shape_of(model.name, model.path, model.revision)
            if known and known.weight_bytes(1, sizing.of(role).dtype or "auto") <= MOST_BYTES_ON_ONE_CORE:
                small.add(role)
    return frozenset(small)


def demands(sizing: RunSizing) -> list[Demand]:
    """Return the requirements of every engine. Raises NotPlannable if a model's size is unknown."""
    return [_demand(sizing, role) for role in sizing.roles]


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
    known = shape_of(model.name, model.path, model.revision)
    if known is None:
        raise NotPlannable(f"the size of {model.name} is unknown: its config.json is not available locally")
    return known


def chosen_here(kind: str, sizing: RunSizing) -> dict[Role, ModelSettings]:
    """Return the models' settings with widths and shares for this machine's GPUs.

    Without GPUs, or if the engines cannot be planned, return the result of `asked_for`. Raises DoesNotFit, and
    ValueError for impossible settings.
    """
    cards = cards_here() if registry.capabilities(kind).is_planned and accelerator() == "gpu" else ()
    with contextlib.suppress(NotPlannable):
        if cards:
            plan = planned(sizing, cards)
            engines = {role: plan.engines[role] for role in sizing.roles}
            return {r: replace(sizing.of(r), tensor_parallel=e.width, memory=e.share) for r, e in engines.items()}
    return asked_for(sizing)


def asked_for(sizing: RunSizing) -> dict[Role, ModelSettings]:
    """Return the models' settings with the requested widths: as set, else the number of listed GPUs, else 1."""
    asked = {role: sizing.of(role) for role in sizing.roles}
    widths = {role: own.tensor_parallel or len(own.gpus or (0,)) for role, own in asked.items()}
    return {role: replace(own, tensor_parallel=widths[role]) for role, own in asked.items()}
