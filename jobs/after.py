"""The only module of jobs that imports warehouse. The import is lazy, because warehouse depends on jobs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warehouse.results import *  # noqa: F403


def __getattr__(name: str) -> object:
    from warehouse import results

    return getattr(results, name)
