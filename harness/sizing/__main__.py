"""`python -m harness.sizing`: tensor-parallel sizes, memory shares and caches of two models on various GPUs.

No model is loaded and no GPU is needed: only model configurations and GPU memory sizes are used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from harness.cli.command import FurtherOption, OneLineErrors
from harness.cli.screen import Column, Line, Screen, Table
from harness.engine import Role
from harness.engines.speculation import proposer, proposing_roles, tokens_at_a_time
from harness.methods import build
from harness.methods.references import FORMS, resolve
from harness.settings.declaration import ROLES
from harness.settings.roles import ROLE_SETTINGS, ModelSettings, flat_role_name
from harness.sizing.card_plan import (
    DoesNotFit,
    ModelFiles,
    RunSizing,
    assumed_models,
    check_flags,
    check_known,
    demands,
    describe_cards,
    planned,
)
from harness.sizing.memory import Card, parse_cards
from harness.weights import models

_TYPES = ("L40S", "A100-40", "A100-80", "H100-80")
_COUNTS = (1, 2, 4, 8)
_PROMPT_TOKENS = 1024
"""Tokens that launches reserve for a problem of two short paragraphs with its template and instructions."""
_COLUMNS = ("tensor parallel", "memory share", "KV tokens")
_HELP_OF_MODELS = "model: a known name, a Hugging Face id, or a folder.  [default: as in harness.launch]"
_EXAMPLES = """\b
Examples:
  python -m harness.sizing
  python -m harness.sizing --gpus 4xH100-80 --gpus 8xL40S \\
    --draft r1-distill-qwen-1.5b --target qwq-32b --token-budget 32768
"""


def _widths(command: Callable[..., None]) -> Callable[..., None]:
    for role in reversed(ROLES):
        one = ROLE_SETTINGS[flat_role_name(role, "tensor_parallel")]
        option = click.option(one.spelled, one.name, cls=FurtherOption, type=click.IntRange(1), help=one.flag.help)
        command = option(command)
    return command


@click.command(cls=OneLineErrors, epilog=_EXAMPLES)
@click.option(
    "--gpus",
    "choices",
    multiple=True,
    metavar="4xH100-80",
    help="GPUs of one worker, also as h100:4; may be repeated.  "
    f"[default: {', '.join(map(str, _COUNTS))} of {', '.join(_TYPES)}]",
)
@click.option("--method", default="speccot", show_default=True, metavar="NAME", help=f"Name of a method, or {FORMS}.")
@click.option("--draft", metavar="MODEL", help=f"Draft {_HELP_OF_MODELS}")
@click.option("--target", metavar="MODEL", help=f"Target {_HELP_OF_MODELS}")
@click.option("--reward", metavar="MODEL", help="Process reward model, for methods that use one.")
@click.option(
    "--token-budget", type=click.IntRange(1), default=8192, show_default=True, help="Maximum emitted tokens per sample."
)
@click.option(
    "--prompt-tokens",
    type=click.IntRange(1),
    default=_PROMPT_TOKENS,
    show_default=True,
    help="Number of prompt tokens: a problem with chat template and instructions.",
)
@click.option(
    "--concurrency", type=click.IntRange(1), default=64, show_default=True, help="Concurrent samples per worker."
)
@_widths
def main(
    choices: Sequence[str], method: str, token_budget: int, prompt_tokens: int, concurrency: int, **asked: Any
) -> None:
    """Print the tensor-parallel sizes and memory shares of a draft and a target, and the samples that fit.

    The exit code is 1 if the models do not fit on any of the GPUs.
    """
    try:
        cards = [parse_cards(choice) for choice in choices] or [
            parse_cards(f"{count}x{name}") for name in _TYPES for count in _COUNTS
        ]
        sizing = _sizing(method, token_budget, prompt_tokens, concurrency, **asked)
        for demand in demands(sizing):
            check_known(demand)
        check_flags(sizing, None)
    except (ValueError, models.ModelUnavailable) as error:
        raise click.UsageError(str(error)) from error
    sys.exit(not _print(sizing, cards, token_budget))


def _sizing(method: str, token_budget: int, prompt_tokens: int, concurrency: int, **asked: Any) -> RunSizing:
    method = resolve(method)
    built, proposing = build(method, {}), proposer(method, None)
    widths = {role: asked[flat_role_name(role, "tensor_parallel")] for role in ROLES}
    roles = (*built.roles, *proposing_roles(proposing, None))
    named: dict[Role, str | None] = {role: asked[role] for role in ROLES}
    for role in ROLES:
        if role not in roles and (named[role] or (role == "reward" and widths[role])):
            raise ValueError(f"--{role}: not used by {method}, which uses: {', '.join(dict.fromkeys(roles))}")
    names = models.by_role(method, roles, named, "gpu")[0]
    references = {role: models.resolve(name) for role, name in names.items()}
    files = {role: ModelFiles(ref.name, ref.path_or_hub_id, ref.revision) for role, ref in references.items()}
    return RunSizing.for_method(
        built,
        files,
        {role: ModelSettings(tensor_parallel=width) for role, width in widths.items()},
        prompt_tokens=prompt_tokens,
        token_budget=token_budget,
        concurrency=concurrency,
        speculator=files["draft"] if proposing == "draft" else None,
        speculative_tokens=tokens_at_a_time(proposing, None) or 0,
    )


def _print(sizing: RunSizing, choices: Sequence[Sequence[Card]], token_budget: int) -> bool:
    rows: list[list[str]] = []
    reasons: dict[str, list[str]] = {}
    for cards in choices:
        where = describe_cards(cards)
        try:
            plan = planned(sizing, cards)
        except ValueError as reason:
            rows.append([where, *("–" for _ in _COLUMNS), "0"])
            if not isinstance(reason, DoesNotFit):  # already visible in the row
                reasons.setdefault(str(reason), []).append(where)
            continue
        engines = plan.engines.values()
        cells = [(str(engine.width), f"{engine.share:.3f}", f"{engine.kv_tokens:,}") for engine in engines]
        rows.append([where, *map(" / ".join, zip(*cells, strict=True)), str(plan.num_samples)])
    names = " / ".join(f"{role} {model.name}" for role, model in sizing.models.items())
    if sizing.speculator is not None:
        names += f", which also loads {sizing.speculator.name} to propose tokens"
    tokens = " / ".join(f"{n:,}" for n in sizing.sample_tokens.values())
    small = sorted({card.name for cards in choices for card in cards if card.is_assumed})
    notes = [
        *(f"no plan for {', '.join(cards)}: {reason}" for reason, cards in reasons.items()),
        *(f"assumed: {name}, the variant of this GPU with less memory" for name in small),
        *(f"assumed: built-in sizes for {name}; its config.json is not available" for name in assumed_models(sizing)),
    ]
    columns = [Column(name) for name in ("GPUs of a worker", *_COLUMNS, f"samples at budget {token_budget}")]
    Screen(sys.stdout).show([Line(f"{names}; a sample has at most {tokens} tokens"), Table(columns, rows, notes)])
    return any(row[1] != "–" for row in rows)


if __name__ == "__main__":
    main(prog_name="python -m harness.sizing")
