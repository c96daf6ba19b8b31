"""The report's table of settings and environment: what differs between the runs, and once what they have in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from warehouse.comparison.manifests import own_wording
from warehouse.formatting import NOTHING
from warehouse.report.facts import RunFacts
from warehouse.report.tables import Table


def conditions(runs: Sequence[RunFacts]) -> Table:
    """Return the table with what differs, in a column for each run, and behind it what all runs have in common."""
    different: list[tuple[str, ...]] = []
    common: list[tuple[str, ...]] = []
    differs: set[int] = set()
    for name, read in _LINES:
        cells = [_cell(read(run)) for run in runs]
        if len(set(cells)) > 1:
            if name not in _EXPECTED and _is_marked(name, runs, cells):
                differs.add(len(different))
            different.append((name, "", *cells))
        elif cells[0] != NOTHING:
            common.append((name, cells[0], *("" for _ in runs)))
    rows = [*different, *common] if len(runs) > 1 else [row[:2] for row in common]
    caption = (
        "Marked lines differ between the runs and can explain differences in the results."
        if differs
        else (
            "The runs differ only in the method, its parameters and the time of the run."
            if len(runs) > 1
            else "The run's specification, and the environment of its workers."
        )
    )
    columns = ("setting", "all runs", *(run.label for run in runs)) if len(runs) > 1 else ("setting", runs[0].label)
    title = "Settings and environment"
    return Table("conditions", title, columns, rows, caption, is_sortable=False, differs=frozenset(differs))


def _is_marked(name: str, runs: Sequence[RunFacts], cells: Sequence[str]) -> bool:
    """Return whether the cells of a line differ. The code of a method of one's own is part of its runs' code."""
    by_method: dict[object, set[str]] = {}
    for run, cell in zip(runs, cells, strict=True):
        by_method.setdefault(run.conditions["method_code"] if name == _CODE else None, set()).add(cell)
    return any(len(values - {NOTHING}) > 1 for values in by_method.values())


def model(run: RunFacts, role: str) -> str:
    """Return name and revision of a run's draft or target model."""
    name, revision = run.conditions[f"{role}_name"], run.conditions[f"{role}_revision"]
    return f"{name} @ {str(revision)[:10]}" if name and revision else name or NOTHING


def _tensor_parallel(run: RunFacts) -> str:
    c = run.conditions
    return f"{c['engine_draft_tensor_parallel']} / {c['engine_target_tensor_parallel']}"


def _speculation(run: RunFacts) -> str | None:
    setting = run.summary.token_speculation
    if setting is None:
        return None
    model = f" ({setting.model})" if setting.model else ""
    return f"{setting.proposer}{model}, {setting.num_tokens} tokens"


def _versions(run: RunFacts) -> str:
    versions = [json.loads(text) for text in run.conditions["versions"] or () if text]
    return " | ".join(", ".join(f"{name} {version}" for name, version in packages.items()) for packages in versions)


def _cell(value: object) -> str:
    return NOTHING if value is None or value == "" else str(value)


_CODE = "hash of the code"
_LINES: tuple[tuple[str, Callable[[RunFacts], object]], ...] = (
    ("run folder", lambda r: r.summary.run_id),
    ("method", lambda r: r.summary.method),
    ("source of the method", lambda r: r.conditions["method_source"]),
    ("code of the method", lambda r: r.conditions["method_code"]),
    ("parameters", lambda r: ", ".join(f"{n} {v}" for n, v in r.summary.params.items())),
    ("preset", lambda r: r.conditions["preset"]),
    ("draft", lambda r: model(r, "draft")),
    ("target", lambda r: model(r, "target")),
    ("reward model", lambda r: model(r, "reward")),
    ("dataset", lambda r: r.summary.dataset),
    ("source of the problems", lambda r: r.conditions["dataset_source"]),
    ("problems", lambda r: f"{r.summary.n} of {r.summary.dataset_size}"),
    ("samples per problem", lambda r: r.summary.k),
    ("hash of the problems", lambda r: r.conditions["dataset_hash"]),
    ("hash of the prompts", lambda r: f"{r.conditions['prompt_hash']}{own_wording(r.conditions['prompts'])}"),
    ("temperature", lambda r: r.conditions["temperature"]),
    ("top-p", lambda r: r.conditions["top_p"]),
    ("sampling of the draft", lambda r: r.conditions["draft_sampling"]),
    ("sampling of the target", lambda r: r.conditions["target_sampling"]),
    ("template variables of the draft", lambda r: r.conditions["draft_template"]),
    ("template variables of the target", lambda r: r.conditions["target_template"]),
    ("thinking tags of the draft", lambda r: r.conditions["draft_thinking_tags"]),
    ("thinking tags of the target", lambda r: r.conditions["target_thinking_tags"]),
    ("engine arguments of the draft", lambda r: r.conditions["engine_draft_arguments"]),
    ("engine arguments of the target", lambda r: r.conditions["engine_target_arguments"]),
    ("token budget", lambda r: r.conditions["token_budget"]),
    ("seed", lambda r: r.conditions["seed"]),
    ("engine", lambda r: f"{r.conditions['engine_kind']}, {r.conditions['engine_dtype']}"),
    ("tensor parallel, draft / target", _tensor_parallel),
    ("tensor parallel, reward model", lambda r: r.conditions["engine_reward_tensor_parallel"]),
    ("samples in flight per worker", lambda r: r.summary.concurrency),
    ("engines run", lambda r: "in turns" if r.summary.take_turns else "concurrently"),
    ("token-level speculation", _speculation),
    ("sampling of proposed tokens", lambda r: r.conditions["engine_spec_sampling"]),
    ("devices per worker", lambda r: r.conditions["devices"]),
    ("nodes", lambda r: r.conditions["num_nodes"]),
    ("worker attempts", lambda r: r.conditions["num_workers"]),
    ("harness commit", lambda r: r.conditions["git_commits"]),
    (_CODE, lambda r: r.conditions["code_hashes"]),
    ("packages", _versions),
    ("grader", lambda r: r.summary.grader_version),
    ("planned (UTC)", lambda r: r.conditions["created_at"].strftime("%Y-%m-%d %H:%M")),
)
_EXPECTED = {"run folder", "method", "source of the method", "code of the method", "parameters", "preset", "nodes"}
_EXPECTED |= {"source of the problems", "planned (UTC)", "worker attempts"}
"""Lines that are expected to differ between compared runs."""
