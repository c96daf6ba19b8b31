"""Methods by reference: a file or a module; what is no method is refused in one line that says why."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import pytest

from harness.methods import METHODS, build, defaults, plugins
from harness.methods.plugins import BadMethod
from harness.methods.references import load_packed, packed, resolve, source_of
from tests.own_methods import confident, no_methods, write_distribution, write_method

__all__ = ["no_methods"]
pytestmark = pytest.mark.usefixtures("no_methods")


def test_the_guides_method_is_a_method(tmp_path: Path) -> None:
    assert len([line for line in confident().splitlines() if line.strip()]) <= 30
    path = write_method(tmp_path)
    assert resolve(f"{path}:Confident") == "confident"
    assert defaults("confident") == {"threshold": -0.5, "step_tokens": 512}
    assert build("confident", {"threshold": -1.0}).roles == ("draft", "target")
    source = source_of("confident", defaults("confident"))
    assert source is not None
    assert (source.reference, source.distribution) == ("confident.py:Confident", None)
    assert source_of("speccot", defaults("speccot")) is None


def test_two_methods_of_one_name_are_told_apart_by_refusing_the_second(tmp_path: Path) -> None:
    first = write_method(tmp_path / "a")
    second = write_method(tmp_path / "b", confident().replace("-0.5", "-0.6"))
    resolve(f"{first}:Confident")
    with pytest.raises(BadMethod, match=r"the name 'confident' is already used by confident\.py:Confident from"):
        resolve(f"{second}:Confident")


CLASS = "@dataclass(frozen=True)\nclass Confident(Method):"
NO_CALL = "has no `async def __call__`"
CALL = "    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:"
WRONG = {
    "no class there": (("class Confident", "class Sure"), r"no class Confident; found: Sure$"),
    "not a method": (("(Method):", ":"), "is not a method; a method is a @dataclass"),
    "not a dataclass": ((CLASS, "class Confident(Method):"), r"not a dataclass: write @dataclass\(frozen=True\)"),
    "not async": ((CALL, CALL.replace("async ", "") + " ...\n\n" + CALL.replace("__call__", "run")), NO_CALL),
    "other arguments": ((CALL, "    async def __call__(self, chain: Chain) -> None:"), "has the wrong arguments"),
    "no help": (('parameter(512, help="Maximum length of a step, in tokens.")', "512"), "step_tokens without `parame"),
    "wrong default": (("parameter(-0.5", "parameter('low'"), "an invalid default for threshold: Input should"),
    "no models": (("reads_logprobs(self) -> bool:\n        return True", "roles(self):\n        return ()"),
                  r"has invalid roles \(\); valid: a tuple of one or more of 'draft', 'target'"),
    "import": (("from harness.chain", "from harness.chains"), r"No module named 'harness.chains' \(confident\.py:\d+"),
    "raises": (("@dataclass", "1 / 0\n\n\n@dataclass"), r"imported: ZeroDivisionError: division by zero \(confident.p"),
    "built-in name": (("(Method):\n", '(Method):\n    name = "scot"\n'), "'scot' is the name of a built-in method"),
    "long name": (("(Method):\n", f'(Method):\n    name = "{"x" * 31}"\n'), "is invalid: use 1 to 30 characters"),
    "cannot be built": (("    @property", "    def __post_init__(self):\n        raise KeyError(1)\n\n    @property"),
                        "cannot be built with its defaults: KeyError: 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_method_is_one_line_that_says_what_is_valid(case: str, tmp_path: Path) -> None:
    (old, new), message = WRONG[case]
    assert old in confident()
    path = write_method(tmp_path, confident().replace(old, new))
    with pytest.raises(BadMethod, match=message) as refused:
        resolve(f"{path}:Confident")
    assert str(refused.value).startswith(f"--method {path}:Confident: ")
    assert "\n" not in str(refused.value)
    assert not plugins.registered


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nowhere.py:Confident", "cannot be read: No such file or directory"),
        ("confident.py", r"no class given; write confident\.py:CLASS"),
        ("a folder:X", r"neither a \.py file nor a module"),
        ("no_such_module:X", "No module named 'no_such_module'"),
        ("sys:exit", "sys is not a Python file"),
        ("confidnet", "unknown; valid: vanilla, .*scot, .*or FILE.py:CLASS"),
    ],
)
def test_a_wrong_reference_is_one_line(
    reference: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_method(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadMethod, match=message):
        resolve(reference)


def test_a_file_stands_alone_and_a_package_comes_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    write_method(tmp_path, "LIMIT = 100\n", "own_rules/limits.py")
    write_method(tmp_path, "", "own_rules/__init__.py").write_text("")
    package = confident().replace("parameter(512", "parameter(LIMIT").replace(
        "from harness.trace", "from own_rules.limits import LIMIT\nfrom harness.trace"
    )  # fmt: skip
    write_method(tmp_path, package, "own_rules/rule.py")
    alone = write_method(tmp_path, package)
    with pytest.raises(BadMethod, match=r"imports own_rules.* would not have; put .* and own_rules into one package"):
        resolve(f"{alone}:Confident")
    for module in [name for name in sys.modules if name.startswith("own_rules")]:
        del sys.modules[module]
    assert resolve("own_rules.rule:Confident") == "confident"
    plugin = plugins.registered.get("confident")
    assert plugin is not None
    assert sorted(plugin.source.files) == ["own_rules/__init__.py", "own_rules/limits.py", "own_rules/rule.py"]
    assert defaults("confident")["step_tokens"] == 100


def test_what_is_installed_is_recorded_and_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_distribution(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("harness.methods.plugins._installation_folders", lambda: (tmp_path,))
    resolve("made_up:Confident")
    [plugin] = plugins.registered.values()
    assert (plugin.reference, plugin.source.distribution) == ("made_up:Confident", "made-up-rules 1.2")
    assert plugin.source.is_installed
    assert sorted(plugin.recorded_digests) == ["method/made_up/__init__.py"]
    monkeypatch.setattr(plugins, "registered", {})
    assert load_packed(packed(plugin), plugin.code_hash).code_hash == plugin.code_hash
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(tmp_path)])
    del sys.modules["made_up"]
    with pytest.raises(BadMethod, match=r"confident, .* No module named 'made_up' .*with made-up-rules 1\.2"):
        load_packed(packed(plugin), plugin.code_hash)


def test_an_archive_gives_the_same_code_and_a_changed_one_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve(f"{write_method(tmp_path)}:Confident")
    [plugin] = plugins.registered.values()
    content = packed(plugin)
    assert content == packed(plugin), "equal code makes equal bytes"
    for code_hash, content_now in (("0" * 16, content), (plugin.code_hash, content[:200]), (None, b"")):
        monkeypatch.setattr(plugins, "registered", {})
        with pytest.raises(BadMethod, match=r"hash|damaged"):
            load_packed(content_now, code_hash)
        assert not plugins.registered
    again = load_packed(content, plugin.code_hash)
    assert (again.name, again.reference, again.code_hash) == (plugin.name, plugin.reference, plugin.code_hash)
    assert build("confident", {}) != build(next(iter(METHODS)), {})


CODE, ABOUT = "code/confident.py", '{"name": "confident", "reference": "%s"}'


@pytest.mark.parametrize(
    ("reference", "entries", "said"),
    [
        ("confident.py:Confident", {CODE: "", "code/__pycache__/confident.cpython-311.pyc": ""}, "contains .*pyc"),
        ("confident.py:Confident", {CODE: "", "code/../../confident.py": ""}, r"contains code/\.\./\.\./conf"),
        ("../confident.py:Confident", {CODE: ""}, "does not contain "),
        ("confident.py:Confident", {CODE: ""}, None),
        ("confident.py:Other", {CODE: ""}, "does not contain confident.py:Other"),
    ],
)
def test_an_archive_runs_the_files_that_it_holds_alone(
    reference: str, entries: dict[str, str], said: str | None, tmp_path: Path
) -> None:
    write_method(tmp_path)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("method.json", ABOUT % reference)
        for name in entries:
            archive.writestr(name, confident())
    expected = "confident.py:Confident" if said is None or "Other" in reference else reference
    if said is None:
        assert load_packed(content.getvalue(), None, expected).reference == reference
        with zipfile.ZipFile(content, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr(CODE, confident())
    with pytest.raises(BadMethod, match=said or "contains code/confident.py; valid") as refusal:
        load_packed(content.getvalue(), None, expected)
    assert "\n" not in str(refusal.value)
