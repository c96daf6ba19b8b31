"""`python -m harness.sizing`: the widths, memory shares and caches of two models on several choices of GPUs.

Nothing is loaded and no GPU is needed: the models' configurations and the cards' memory decide.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table

from harness.cli.command import OneLineErrors
from harness.engine import Role
from harness.methods import METHODS, Method, build
from harness.sizing.cards import Card, parse_cards
from harness.sizing.plan import DoesNotFit, NotPlannable, Plan
from harness.sizing.refusal import describe_cards
from harness.sizing.run_sizing import ModelFiles, RunSizing, assumed_models, check_plannable, most_tokens, planned
from harness.weights import models

_TYPES = ("L40S", "A100-40", "A100-80", "H100-80")
_COUNTS = (1, 2, 4, 8)
_PROMPT_TOKENS = 1024
"""What launches reserve for a problem of two short paragraphs, its template and its instructions."""
_WIDTH_OF_A_FILE = 180
_EXAMPLES = """\b
Examples:
  python -m harness.sizing
  python -m harness.sizing --gpus 4xH100-80 --gpus 8xL40S \\
    --draft r1-distill-qwen-1.5b --target qwq-32b --token-budget 32768
"""


@click.command(cls=OneLineErrors, epilog=_EXAMPLES)
@click.option("--gpus", "choices", multiple=True, metavar="4xH100-80", help="Cards of one worker; may be repeated.")
@click.option(
    "--method",
    type=click.Choice(list(METHODS)),
    default="speccot",
    show_default=True,
    help="Decides which engines a worker has and how much a sample holds in each.",
)
@click.option("--draft", metavar="MODEL", help="A known name, a Hugging Face id, or a folder.")
@click.option("--target", metavar="MODEL", help="A known name, a Hugging Face id, or a folder.")
@click.option(
    "--token-budget", type=click.IntRange(1), default=8192, show_default=True, help="New tokens of a sample at most."
)
@click.option(
    "--prompt-tokens",
    type=click.IntRange(1),
    default=_PROMPT_TOKENS,
    show_default=True,
    help="Tokens of the problem with its template and instructions.",
)
@click.option("--concurrency", type=click.IntRange(1), default=64, show_default=True, help="Samples in flight.")
@click.option("--draft-tensor-parallel", type=click.IntRange(1), help="Width to use instead of the chosen one.")
@click.option("--target-tensor-parallel", type=click.IntRange(1), help="Width to use instead of the chosen one.")
def main(
    choices: Sequence[str],
    method: str,
    draft: str | None,
    target: str | None,
    token_budget: int,
    prompt_tokens: int,
    concurrency: int,
    draft_tensor_parallel: int | None,
    target_tensor_parallel: int | None,
) -> None:
    """Print which tensor parallel sizes and memory shares are chosen for a draft and a target, and what fits.

    The exit code is 1 where the models fit on none of the choices.
    """
    try:
        cards = [parse_cards(choice) for choice in choices] or [
            parse_cards(f"{count}x{name}") for name in _TYPES for count in _COUNTS
        ]
        built = build(method, {})
        sizing = RunSizing(
            models=_models(built, draft, target),
            context_tokens=prompt_tokens + token_budget + built.verdict_tokens(token_budget),
            sample_tokens=most_tokens(built, prompt_tokens, token_budget),
            concurrency=concurrency,
            candidates=built.parallel,
            widths={"draft": draft_tensor_parallel, "target": target_tensor_parallel},
        )
        check_plannable(sizing)
    except (ValueError, models.ModelUnavailable) as error:
        raise click.UsageError(str(error)) from error
    sys.exit(not _print(sizing, cards, token_budget))


def _models(method: Method, draft: str | None, target: str | None) -> dict[Role, ModelFiles]:
    names = models.by_role(method.__class__.__name__.lower(), method.roles, draft, target, "gpu").names
    references = {role: models.resolve(name) for role, name in names.items()}
    return {role: ModelFiles(ref.name, ref.path_or_hub_id, ref.revision) for role, ref in references.items()}


def _print(sizing: RunSizing, choices: Sequence[Sequence[Card]], token_budget: int) -> bool:
    """Print the table, and return whether the models fit on any of the choices."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH_OF_A_FILE)
    table = Table(
        "GPUs of a worker", "tensor parallel", "memory share", "KV tokens", f"samples at budget {token_budget}"
    )
    fitting = [_row(table, sizing, cards) for cards in choices]
    names = " / ".join(f"{role} {model.name}" for role, model in sizing.models.items())
    console.print(f"{names}; a sample has at most {' / '.join(f'{n:,}' for n in sizing.sample_tokens.values())} tokens")
    console.print(table)
    for name in assumed_models(sizing):
        console.print(f"assumed: the sizes of {name}, whose config.json is not on this machine", soft_wrap=True)
    return any(fitting)


def _row(table: Table, sizing: RunSizing, cards: Sequence[Card]) -> bool:
    where = describe_cards(cards)
    try:
        plan = planned(sizing, cards)
    except (DoesNotFit, NotPlannable) as reason:
        table.add_row(where, "–", "–", "–", f"0: {_short(str(reason))}")
        return False
    except ValueError as reason:
        table.add_row(where, "–", "–", "–", str(reason))
        return False
    table.add_row(where, *_cells(plan), str(plan.num_samples))
    return True


def _cells(plan: Plan) -> list[str]:
    engines = plan.engines.values()
    return [
        " / ".join(str(engine.width) for engine in engines),
        " / ".join(f"{engine.share:.3f}" for engine in engines),
        " / ".join(f"{engine.kv_tokens:,}" for engine in engines),
    ]


def _short(reason: str) -> str:
    """Return the advice at the end of a refusal; the table names the models and the cards already."""
    return reason.partition("; ")[2] or reason


if __name__ == "__main__":
    main(prog_name="python -m harness.sizing")
