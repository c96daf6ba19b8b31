"""What the modules of some packages import, read from their source and without importing them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Import:
    module: str
    name: str | None
    """What follows `from module import`; None of a plain `import module`."""
    is_deferred: bool
    """Whether it is inside a function, so that it runs only when that is called."""

    @property
    def package(self) -> str:
        return self.module.partition(".")[0]


def module_files(root: Path, packages: Sequence[str]) -> dict[str, Path]:
    """Return the file of each module of these packages by its dotted name."""
    files = {}
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def imports(path: Path) -> Iterator[Import]:
    """Yield every import of a file; those under `if TYPE_CHECKING:` never run and are left out."""
    yield from _imports(ast.parse(path.read_text(encoding="utf-8")), is_deferred=False)


def _imports(node: ast.AST, is_deferred: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, None, is_deferred) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.module is not None, "imports are absolute here"
        assert not node.level, "imports are absolute here"
        yield from (Import(node.module, alias.name, is_deferred) for alias in node.names)
    elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        for branch in node.orelse:
            yield from _imports(branch, is_deferred)
    else:
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from _imports(child, is_deferred or is_function)


def import_graph(files: Mapping[str, Path]) -> dict[str, dict[str, bool]]:
    """Return, for each module, the other modules of `files` that it imports and whether it only does so when called.

    `from package import name` is an import of the module `package.name` where there is one, else of the package's own
    file. That every import of a module also runs the files of the packages around it is left out: a package whose
    file lists its modules would make a cycle with each of them.
    """
    graph: dict[str, dict[str, bool]] = {}
    for importer, path in files.items():
        targets = graph.setdefault(importer, {})
        for imported in imports(path):
            submodule = f"{imported.module}.{imported.name}"
            target = submodule if submodule in files else imported.module
            if target in files and target != importer:
                targets[target] = targets.get(target, True) and imported.is_deferred
    return graph


def cycles(graph: Mapping[str, Mapping[str, bool]]) -> list[list[str]]:
    """Return shortest cycles that pass through every module of any; each ends with the module that it begins with."""
    shortest: dict[frozenset[str], list[str]] = {}
    for start in sorted(graph):
        if path := _way_back(graph, start):
            shortest.setdefault(frozenset(path), path)
    return list(shortest.values())


def _way_back(graph: Mapping[str, Mapping[str, bool]], start: str) -> list[str] | None:
    """Return a shortest path from a module to itself, by breadth-first search."""
    paths, reached = [[start]], {start}
    while paths:
        longer = []
        for path in paths:
            for target in sorted(graph[path[-1]]):
                if target == start:
                    return [*path, start]
                if target not in reached:
                    reached.add(target)
                    longer.append([*path, target])
        paths = longer
    return None
