"""The only module of jobs that imports warehouse, which depends on jobs; the import is lazy."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warehouse.results import *  # noqa: F403


def __getattr__(name: str) -> object:
    from warehouse import results

    return getattr(results, name)
