"""The recorded runs, made once for all snapshots."""

from __future__ import annotations

import pytest

from tests.snapshots.corpus import Corpus, make


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make(tmp_path_factory.mktemp("snapshots"))
