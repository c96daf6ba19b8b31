"""Reading of training data from run folders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.finished.training_data import check, graded_drafts, target_chains
from jobs.run.spec import AdapterSpec, units
from jobs.work.shard_run import seed_of
from tests.harness.conftest import save_tiny_model
from tests.harness.training import folders
from tests.jobs.runs import plan
from tests.shared import with_settings


@pytest.fixture(scope="module")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {role: save_tiny_model(root / role, seed=seed) for seed, role in enumerate(("draft", "target"))}


def test_a_targets_chains_are_read_in_the_order_of_the_problems(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    run = folders.vanilla(tmp_path, tiny_models["target"], 4)
    check(run, "align")
    chains = list(target_chains(run))
    assert [chain.text for chain in chains] == [folders.chain(i) for i in range(4)]
    assert [chain.finish for chain in chains] == ["eos", "eos", "eos", "length"]


def test_drafts_are_read_as_they_were_offered_with_their_grades(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    right = [(True, False, True), (False, False)]
    run = folders.scot(tmp_path, tiny_models["draft"], tiny_models["target"], right)
    check(run, "select")
    graded = list(graded_drafts(run))
    verdicts = [tuple(draft.verdict == "correct" for draft in drafts.offered) for drafts in graded]
    assert verdicts == right
    assert all(draft.text.startswith(f"Way {i}") for drafts in graded for i, draft in enumerate(drafts.offered))


def test_with_a_selection_adapter_the_same_drafts_are_drawn(tmp_path: Path) -> None:
    run = plan(tmp_path, method="scot")
    spec, problems = run.spec(), {problem.id: problem for problem in run.problems()}
    tuned = with_settings(spec, "target", adapter=AdapterSpec("selector", "/selector", "f" * 16, 8))
    seeds = [
        [seed_of(s, unit, problems[unit.problem_id], str) for unit in units(s, run.problems())]
        for s in (spec, tuned, replace(tuned, seed=1))
    ]
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == len(seeds[0])
    assert not set(seeds[0]) & set(seeds[2])


def test_a_run_of_another_kind_or_that_is_not_finished_is_refused(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    vanilla = folders.vanilla(tmp_path, tiny_models["target"])
    with pytest.raises(ValueError, match=r"select needs a run of scot, but .* is a run of vanilla with the target"):
        check(vanilla, "select")
    with pytest.raises(ValueError, match="scripted engines"):
        check(plan(tmp_path, method="vanilla"), "align")
    with pytest.raises(ValueError, match="is a run of vanilla with the draft"):
        check(plan(tmp_path, method="vanilla", model="draft"), "align")
    for part in vanilla.trace_files_dir.iterdir():
        part.unlink()
    with pytest.raises(ValueError, match=r"has 6 unfinished samples: python -m jobs resume"):
        check(vanilla, "align")
