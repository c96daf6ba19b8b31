"""The reader of imports, on packages of a few lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.import_graph import Import, cycles, import_graph, imports, module_files


def written(root: Path, **sources: str) -> dict[str, Path]:
    """Write modules of a package `p`; a double underscore in a name stands for a folder."""
    for name, source in {"__init__": "", **sources}.items():
        path = root / "p" / f"{name if name == '__init__' else name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return module_files(root, ["p"])


def test_every_import_is_read_with_whether_a_function_defers_it(tmp_path: Path) -> None:
    source = """
import x.y as z, w
if True:
    from q import r, s
class C:
    import in_class
    def f(self):
        with open("") as file:
            import in_method
async def g():
    from lazy import name
"""
    assert list(imports(written(tmp_path, a=source)["p.a"])) == [
        Import("x.y", None, False),
        Import("w", None, False),
        Import("q", "r", False),
        Import("q", "s", False),
        Import("in_class", None, False),
        Import("in_method", None, True),
        Import("lazy", "name", True),
    ]


@pytest.mark.parametrize("condition", ["TYPE_CHECKING", "typing.TYPE_CHECKING"])
def test_imports_for_the_type_checker_alone_are_left_out(tmp_path: Path, condition: str) -> None:
    source = f"if {condition}:\n    import only_types\nelse:\n    import at_run_time\n"
    assert [found.module for found in imports(written(tmp_path, a=source)["p.a"])] == ["at_run_time"]


@pytest.mark.parametrize(
    ("sources", "graph"),
    [
        (
            {"a": "from p import b, VERSION\nimport p.b\nfrom p.b import function\n", "b": "import os\n"},
            {"p": {}, "p.a": {"p.b": False, "p": False}, "p.b": {}},
        ),
        (
            {"a": "def f():\n    import p.b\n    import p.c\nimport p.b\n", "b": "", "inner__c": "", "c": ""},
            {"p": {}, "p.a": {"p.b": False, "p.c": True}, "p.b": {}, "p.c": {}, "p.inner.c": {}},
        ),
    ],
    ids=["a module and a name in a package", "deferred in one place only"],
)
def test_modules_are_named_by_their_folders_and_have_their_imports(
    sources: dict[str, str], graph: dict[str, dict[str, bool]], tmp_path: Path
) -> None:
    assert import_graph(written(tmp_path, **sources)) == graph


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        (
            {
                "a": "import p.b\n",
                "b": "def f():\n    from p import c\n",
                "c": "from p.a import x\n",
                "d": "import p.a\n",
            },
            [["p.a", "p.b", "p.c", "p.a"]],
        ),
        (
            {
                "a": "import p.b, p.c\n",
                "b": "import p.c, p.a\n",
                "c": "import p.b\n",
                "e": "import p.f\n",
                "f": "import p.e\n",
            },
            [["p.a", "p.b", "p.a"], ["p.c", "p.b", "p.c"], ["p.e", "p.f", "p.e"]],
        ),
        ({"a": "import p.b\n", "b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.a\n"}, []),
        ({"a": "import p.b, p.c\n", "b": "import p.d\n", "c": "import p.d\n", "d": ""}, []),
    ],
    ids=["inside functions too", "a shortest way round", "only the type checker's", "a diamond"],
)
def test_cycles(sources: dict[str, str], found: list[list[str]], tmp_path: Path) -> None:
    assert cycles(import_graph(written(tmp_path, **sources))) == found
