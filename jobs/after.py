"""The only door of jobs to the warehouse, which builds on jobs: it is imported when something is first asked of it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warehouse.results import *  # noqa: F403


def __getattr__(name: str) -> object:
    from warehouse import results

    return getattr(results, name)
