"""`python -m harness.sizing`: the widths, memory shares and caches of two models on several choices of GPUs.

Nothing is loaded and no GPU is needed: the models' configurations and the cards' memory decide.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from harness.cli.command import FurtherOption, OneLineErrors
from harness.engine import Role
from harness.engines.speculation import proposer, proposing_roles, tokens_at_a_time
from harness.methods import build
from harness.methods.method import required_context_tokens
from harness.methods.references import FORMS, resolve
from harness.problems import benchmarks, sources
from harness.settings.declaration import ROLES
from harness.settings.roles import ROLE_SETTINGS, ModelSettings, flat_role_name
from harness.sizing.card_plan import (
    DoesNotFit,
    ModelFiles,
    NotPlannable,
    RunSizing,
    assumed_models,
    check_flags,
    check_known,
    demands,
    describe_cards,
    planned,
    short_contexts,
)
from harness.sizing.memory import Card, parse_cards
from harness.weights import models

_TYPES = ("L40S", "A100-40", "A100-80", "H100-80")
_COUNTS = (1, 2, 4, 8)
_PROMPT_TOKENS = 1024
"""What launches reserve for a problem of two short paragraphs, its template and its instructions."""
_WIDTH_OF_A_FILE = 180
_COLUMNS = ("tensor parallel", "memory share", "KV tokens")
_HELP_OF_MODELS = "A known name, a Hugging Face id, or a folder.  [default: the method's, as in harness.launch]"
_EXAMPLES = """\b
Examples:
  python -m harness.sizing
  python -m harness.sizing --gpus 4xH100-80 --gpus 8xL40S \\
    --draft r1-distill-qwen-1.5b --target qwq-32b --token-budget 32768
"""


def _widths(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flag of each model's width."""
    for role in reversed(ROLES):
        one = ROLE_SETTINGS[flat_role_name(role, "tensor_parallel")]
        flags = [one.spelled, *one.aliases, one.name]
        command = click.option(*flags, cls=FurtherOption, type=click.IntRange(1), help=one.flag.help)(command)
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
@click.option("--method", default="speccot", show_default=True, metavar="NAME", help=f"Known method, or {FORMS}.")
@click.option("--draft", metavar="MODEL", help=_HELP_OF_MODELS)
@click.option("--target", metavar="MODEL", help=_HELP_OF_MODELS)
@click.option("--reward", metavar="MODEL", help="The model that rates steps, for methods with one.")
@click.option(
    "--token-budget", type=click.IntRange(1), default=8192, show_default=True, help="Emitted tokens per sample."
)
@click.option(
    "--prompt-tokens",
    type=click.IntRange(1),
    help=f"Tokens of the problem with its template and instructions.  [default: {_PROMPT_TOKENS}, or --dataset's]",
)
@click.option(
    "--dataset", metavar="NAME", help=f"Known dataset, or {sources.VALID}: its longest problem is the prompt."
)
@click.option("--split", cls=FurtherOption, help="Split of a dataset of the hub.  [default: test]")
@click.option("--columns", multiple=True, metavar="FIELD=COLUMN", help="Columns of an own dataset, as of a launch.")
@click.option(
    "--concurrency", type=click.IntRange(1), default=64, show_default=True, help="Samples in flight per worker."
)
@_widths
def main(
    choices: Sequence[str],
    dataset: str | None,
    split: str | None,
    columns: Sequence[str],
    prompt_tokens: int | None,
    **options: Any,
) -> None:
    """Print which tensor parallel sizes and memory shares are chosen for a draft and a target, and what fits.

    The exit code is 1 where the models fit on none of the choices.
    """
    try:
        cards = [parse_cards(choice) for choice in choices] or [
            parse_cards(f"{count}x{name}") for name in _TYPES for count in _COUNTS
        ]
        sizing = _sizing(prompt_tokens=_tokens_of_prompt(prompt_tokens, dataset, split, columns), **options)
        for demand in demands(sizing):
            check_known(demand)
        check_flags(sizing, None)
    except (ValueError, models.ModelUnavailable, benchmarks.DatasetNotFound, benchmarks.BadDataset) as error:
        raise click.UsageError(str(error)) from error
    sys.exit(not _print(sizing, cards, options["token_budget"]))


def _tokens_of_prompt(tokens: int | None, dataset: str | None, split: str | None, columns: Sequence[str]) -> int:
    """Return the tokens of the longest prompt: as given, or of a dataset. Raises ValueError and what loading raises."""
    if dataset is None:
        if split is not None or columns:
            raise ValueError("--split and --columns are for --dataset")
        return tokens or _PROMPT_TOKENS
    if tokens is not None:
        raise ValueError("--prompt-tokens and --dataset both say how long a prompt is: leave one of them out")
    sources.check(dataset, split, columns)
    return required_context_tokens(sources.load(dataset, split=split, columns=columns).problems, 0, 0)


def _sizing(method: str, token_budget: int, prompt_tokens: int, concurrency: int, **asked: Any) -> RunSizing:
    method = resolve(method)
    built, proposing = build(method, {}), proposer(method, None)
    widths = {role: asked[flat_role_name(role, "tensor_parallel")] for role in ROLES}
    roles = (*built.roles, *proposing_roles(proposing, None))
    named: dict[Role, str | None] = {role: asked[role] for role in ROLES}
    for role in ROLES:
        if role not in roles and (named[role] or (role == "reward" and widths[role])):
            raise ValueError(f"--{role}: {method} uses no such model; it uses: {', '.join(dict.fromkeys(roles))}")
    names = models.by_role(method, roles, named, "gpu").names
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
    """Print the table and the reasons of what does not fit; return whether the models fit on any of the choices."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = _WIDTH_OF_A_FILE
    table = Table("GPUs of a worker", *_COLUMNS, f"samples at budget {token_budget}")
    reasons: dict[str, list[str]] = {}
    for cards in choices:
        where = describe_cards(cards)
        try:
            plan = planned(sizing, cards)
        except ValueError as reason:
            table.add_row(where, *("–" for _ in _COLUMNS), "0")
            # The table names the models and the cards already.
            text = str(reason).partition("; ")[2] if isinstance(reason, DoesNotFit | NotPlannable) else ""
            reasons.setdefault(text or str(reason), []).append(where)
            continue
        engines = plan.engines.values()
        table.add_row(
            where,
            " / ".join(str(engine.width) for engine in engines),
            " / ".join(f"{engine.share:.3f}" for engine in engines),
            " / ".join(f"{engine.kv_tokens:,}" for engine in engines),
            str(plan.num_samples),
        )
    names = " / ".join(f"{role} {model.name}" for role, model in sizing.models.items())
    if sizing.speculator is not None:
        names += f", which loads {sizing.speculator.name} to propose tokens"
    tokens = " / ".join(f"{n:,}" for n in sizing.sample_tokens.values())
    console.print(f"{names}; a sample has at most {tokens} tokens", soft_wrap=True)
    console.print(table)
    small = sorted({card.name for cards in choices for card in cards if card.is_assumed})
    for line in (
        *(f"not on {', '.join(cards)}: {reason}" for reason, cards in reasons.items()),
        *(f"assumed: {name}, the smaller of two cards with this name" for name in small),
        *(f"assumed: the sizes of {name}, whose config.json is not here" for name in assumed_models(sizing)),
        *short_contexts(sizing),
    ):
        console.print(line, soft_wrap=True)
    return bool(sum(map(len, reasons.values())) < len(choices))


if __name__ == "__main__":
    main(prog_name="python -m harness.sizing")
