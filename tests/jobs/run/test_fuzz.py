"""Hundreds of damaged files: each is named or read as it was, never read as something else, and never a traceback."""

from __future__ import annotations

import pytest

from tests.jobs.run.corpus import KINDS, corpus
from tools.chaos.fuzz import Fuzz

_ACCEPTABLE = {"named", "harmless"}


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Fuzz:
    return Fuzz(corpus(tmp_path_factory.mktemp("fuzz")), seed=20)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mutated_file_is_named_or_read_as_it_was(fuzzed: Fuzz, kind: str) -> None:
    assert {fuzzed.once(kind) for _ in range(30)} <= _ACCEPTABLE, fuzzed.failures


def test_the_warehouse_names_a_mutated_file_or_loads_what_it_was(fuzzed: Fuzz) -> None:
    assert {outcome for _, outcome in fuzzed.load(8)} <= _ACCEPTABLE, fuzzed.failures
