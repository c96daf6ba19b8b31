"""The processes of an engine: environment, log, files on the node, and cleanup.

Environment and file descriptors belong to the whole process, and new child processes inherit them. Therefore only one
engine starts at a time, and both are restored once the engine has started.

vLLM's engine processes outlive a killed worker and keep the GPU's memory. Every process of an engine therefore has a
mark in its initial environment, by which it can be found, whatever its name, parent and state. A guard process next to
the worker (this file, run as a script) kills all processes with the worker's mark once the worker has ended. This file
imports only the standard library at the start, so the guard needs only a few megabytes.

vLLM, Triton, FlashInfer and CUDA keep compiled code below the home directory, which is usually shared by all nodes. A
hundred nodes that start together would write the same files there. vLLM also writes one of its files in place and may
read an incomplete one (compilation/backends.py in vLLM 0.32). The workers of a node therefore have separate folders on
the node's own disk. A worker uses the first unlocked folder, so it finds code that earlier workers compiled.

Every start of vLLM also leaves sockets and a rendezvous file with random names in the folder for temporary files. Here
each worker has such a folder, which is removed when the worker ends. Leftovers of a killed worker, including shared
memory, are removed by the same user's next worker on the node. Python's resource tracker is not enough, because Slurm
kills it together with the job.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import itertools
import os
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

    from harness.engine import Role

MARK = "HARNESS_ENGINE"
"""Environment variable with the mark: the worker's process id and token, and the number of the engine start."""
_TOKEN = secrets.token_hex(8)
_STARTS = itertools.count()
_MAX_ROUNDS = 5
_STARTING = threading.Lock()
_SPARED = b"multiprocessing.resource_tracker"
"""Identifies Python's resource tracker, which exits by itself after the processes that use it, and then removes their
shared memory."""
_guards: dict[int, subprocess.Popen[bytes]] = {}
"""Guards by the id of the process that started them."""
_GUARD_POLL_SECONDS, _GUARD_SCAN_SECONDS, _GUARD_MAX_SECONDS = 0.5, 0.2, 60.0
_EMPTY_SCANS = 2
"""Consecutive scans without a process after which the guard ends: a process may be starting another one."""


@contextlib.contextmanager
def starting(log_path: Path, variables: Mapping[str, str | None]) -> Iterator[EngineProcesses]:
    """Set variables (None: unset) and redirect output to the log file, for this process and its new child processes.

    Yields the processes started in this context.
    """
    with _STARTING:
        engine = EngineProcesses()
        _start_guard()
        # SPT_NOENV keeps vLLM's process titles from overwriting the initial environment.
        marks = {MARK: engine.mark, "SPT_NOENV": "1"}
        with _environment({**variables, **marks}), output_to(log_path):
            yield engine


class EngineProcesses:
    """The processes of one engine start, whatever their names and parents."""

    def __init__(self) -> None:
        self.mark = f"{_worker_mark()}{next(_STARTS)}"

    def find(self) -> set[psutil.Process]:
        """Return the running processes. Reads the environment of every process of this user."""
        import psutil

        found = set()
        for number in _marked(self._entry):
            with contextlib.suppress(psutil.Error):
                found.add(psutil.Process(number))
        return found

    def started(self) -> None:
        """Record the shared memory used by the processes, at the end of their start."""
        note_shared_memory(_marked(self._entry))

    def kill(self, grace_seconds: float = 0.0) -> None:
        """Wait for all processes to end, and kill those still running after the grace time."""
        import psutil

        psutil.wait_procs(list(self.find()), timeout=grace_seconds)
        for _ in range(_MAX_ROUNDS):  # a process may have started another one meanwhile
            alive = list(self.find())
            if not alive:
                break
            _kill_marked(self._entry)
            psutil.wait_procs(alive, timeout=10)

    @property
    def _entry(self) -> bytes:
        return f"{MARK}={self.mark}\0".encode()


def _worker_mark() -> str:
    return f"{os.getpid()}-{_TOKEN}."


def _marked(entry: bytes) -> list[int]:
    """Return the ids of this user's processes whose environment contains these bytes; empty unless on Linux."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            if entry in (folder / "environ").read_bytes() and _SPARED not in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def _kill_marked(entry: bytes) -> int:
    marked = [number for number in _marked(entry) if number != os.getpid()]
    for number in marked:
        with contextlib.suppress(OSError):
            os.kill(number, signal.SIGKILL)
    return len(marked)


def _start_guard() -> None:
    """Start the guard that kills this process's engines after its end, unless it has one; only on Linux."""
    if os.getpid() in _guards or not Path("/proc/self/environ").is_file():
        return
    guard = _guards[os.getpid()] = subprocess.Popen(
        # Isolated and without site-packages, to start within milliseconds. The code comes from standard input, because
        # this file may be in a zip.
        [sys.executable, "-I", "-S", "-B", "-", str(os.getpid()), f"{MARK}={_worker_mark()}"],
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert guard.stdin is not None
    with guard.stdin as program:
        program.write((resources.files("harness.engines") / "processes.py").read_bytes())


def _guard(worker: int, entry: bytes) -> None:
    """Wait for the worker to end, then kill the remaining processes of its engines, found by their mark."""
    if not entry.startswith(f"{MARK}={worker}-".encode()):
        raise ValueError(f"not an engine mark of worker {worker}: {entry!r}")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the worker's whole group gets these; the guard ends after the worker
    while os.getppid() == worker:
        time.sleep(_GUARD_POLL_SECONDS)
    deadline, empty_scans = time.monotonic() + _GUARD_MAX_SECONDS, 0
    while empty_scans < _EMPTY_SCANS and time.monotonic() < deadline:
        empty_scans = 0 if _kill_marked(entry) else empty_scans + 1
        time.sleep(_GUARD_SCAN_SECONDS)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables, and afterwards restore them and all variables of vLLM.

    For certain models vLLM itself sets variables in this process (VLLM_USE_DEEP_GEMM_E8M0,
    VLLM_USE_BREAKABLE_CUDAGRAPH), which would change the computations of the next engine. Other threads may read the
    environment meanwhile, so a variable that is set before and after is not unset in between.
    """

    def changed() -> list[str]:
        return [name for name in os.environ if name in variables or name.startswith("VLLM_")]

    before = {name: os.environ[name] for name in changed()}
    try:
        for name, value in variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        yield
    finally:
        for name in changed():
            if name not in before:
                del os.environ[name]
        os.environ.update(before)


@contextlib.contextmanager
def output_to(log_path: Path) -> Iterator[None]:
    """Redirect descriptors 1 and 2 to the file, which also captures the output of native code and dying processes."""
    log_path.parent.mkdir(parents=True, exist_ok=True)
    originals = [os.dup(1), os.dup(2)]
    file = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)  # less the umask
    try:
        _flush()
        for number in (1, 2):
            os.dup2(file, number)
        yield
    finally:
        _flush()
        for number, original in zip((1, 2), originals, strict=True):
            os.dup2(original, number)
            os.close(original)
        os.close(file)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or None
            stream.flush()


FOLDERS: Mapping[str, str] = {
    "VLLM_CACHE_ROOT": "vllm",  # torch.compile, DeepGEMM, peer access between GPUs, model descriptions
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "CUDA_CACHE_PATH": "cuda",
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "TILELANG_CACHE_DIR": "tilelang",
    "TVM_FFI_CACHE_DIR": "tvm_ffi",
}
"""Environment variables for the libraries' cache folders, with the folders' names."""
_NUM_FOLDERS = 64
"""Maximum number of a user's workers on a node that have a folder."""
_TEMPORARY = "tmp"
"""Name of the folder for files that are not needed after this worker."""
_TEMPORARY_FOLDER, _SOCKET_FOLDER = "TMPDIR", "VLLM_RPC_BASE_PATH"
_MAX_SOCKET_FOLDER_CHARACTERS = 70
"""Limit due to vLLM, which appends 37 characters: a socket's path has at most 107."""
_SHORT = "/tmp"
"""Folder for sockets if the path of the folder for temporary files is too long, as in jobs at some sites."""
_held: dict[tuple[int, str], tuple[Path, int]] = {}
"""Folder and lock by process id and disk; a forked process also has those of its parent."""


def node_variables() -> dict[str, str]:
    """Return the variables that put caches, temporary files and sockets on the node's own disk.

    Variables already set in the environment are omitted, except for the folder of temporary files: it is placed inside
    the one set in the environment.
    """
    disk = tempfile.gettempdir()
    folder = _folder(disk)
    chosen = {name: str(folder / own) for name, own in FOLDERS.items()} if folder else {}
    sockets = temporary = str(folder / _TEMPORARY) if folder else disk
    if len(sockets) > _MAX_SOCKET_FOLDER_CHARACTERS:
        short = _folder(_SHORT) if folder else None
        sockets = str(short / _TEMPORARY) if short else _SHORT
    if sockets != disk:
        chosen[_SOCKET_FOLDER] = sockets
    left = {name: path for name, path in chosen.items() if name not in os.environ}
    return left | ({_TEMPORARY_FOLDER: temporary} if folder else {})


def note_shared_memory(processes: Iterable[int]) -> None:
    """Record the shared memory of an engine's processes. If this worker is killed, the next one removes the memory."""
    held = _held.get((os.getpid(), tempfile.gettempdir()))
    if held is None:
        return
    names: set[str] = set()
    for process in processes:
        with contextlib.suppress(OSError):  # the process has ended
            names |= set(_MAPPED.findall(Path(f"/proc/{process}/maps").read_text(errors="replace")))
    with contextlib.suppress(OSError), (held[0] / _TEMPORARY / SEGMENTS_LIST).open("a") as noted:
        noted.writelines(f"{name}\n" for name in sorted(names))


def _folder(disk: str) -> Path | None:
    """Return this worker's folder on a disk, the same in all calls; None, with a warning, if there is none."""
    process = os.getpid()
    if (process, disk) not in _held:
        try:
            folder, lock = _take(Path(disk))
            (folder / _TEMPORARY).mkdir(mode=0o700)
        except OSError as error:
            warnings.warn(f"compiled code will be stored in the home directory, because {error}", stacklevel=3)
            return None
        atexit.register(shutil.rmtree, folder / _TEMPORARY, ignore_errors=True)
        _held[process, disk] = folder, lock
    return _held[process, disk][0]


def _take(disk: Path) -> tuple[Path, int]:
    """Return an unused folder and the descriptor of its lock, which is held until this worker ends.

    Raises OSError if there is no such folder.
    """
    root = disk / f"speculative-harness-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    status = root.lstat()  # the folder's contents will be executed, so no other user may write there
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise OSError(f"{root} is not a folder that only this user may write to")
    for number in range(_NUM_FOLDERS):
        folder = root / f"worker-{number}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if (lock := _locked(folder)) is not None:
            _remove_leftovers(root)
            _remove_left(folder / _TEMPORARY)
            return folder, lock
    raise OSError(f"no folder in {root} can be locked")


def _locked(folder: Path) -> int | None:
    """Return the descriptor of a folder's lock; None if another worker has the lock or locks are unsupported."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _remove_leftovers(root: Path) -> None:
    for left in root.glob(f"worker-*/{_TEMPORARY}"):
        with contextlib.suppress(OSError):
            if (lock := _locked(left.parent)) is not None:
                _remove_left(left)
                os.close(lock)


def _remove_left(folder: Path) -> None:
    remove_noted_segments(folder)
    shutil.rmtree(folder, ignore_errors=True)


SEGMENTS_LIST = "shared-memory"
"""Name of the file that lists a worker's shared-memory segments."""
_SEGMENTS = Path("/dev/shm")
_MAPPED = re.compile(r" /dev/shm/(psm_[0-9a-f]{8})$", re.MULTILINE)
_NAME = re.compile(r"psm_[0-9a-f]{8}")
"""Pattern of Python's default segment names."""


def remove_noted_segments(folder: Path, segments: Path = _SEGMENTS) -> None:
    """Remove this user's segments listed in a folder. The caller must ensure that no process uses them."""
    with contextlib.suppress(OSError):
        for name in (folder / SEGMENTS_LIST).read_text(errors="replace").split():
            with contextlib.suppress(OSError):
                status = (segments / name).lstat() if _NAME.fullmatch(name) else None
                if status is not None and stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid():
                    (segments / name).unlink()


# Lines in an engine's log: the first and the last line of a start, and vLLM's lines between them. A worker that is
# starting engines has no journal yet, so only these logs show its progress.

_BEGIN = re.compile(
    r"^== the (?P<role>\w+) engine starts in process (?P<pid>[1-9]\d{0,8}) on (?P<host>\S+) at .*$", re.MULTILINE
)
_END = re.compile(r"^== the \w+ engine (?:answers|did not start)$", re.MULTILINE)
_TAIL_BYTES = 1 << 20
_LOADED = "measuring memory"
PHASES = {
    "Initializing a V1 LLM engine": "starting vLLM's processes",
    "Starting to load model": "loading weights",
    "Loading weights took": _LOADED,
    "Warming up model for the compilation": _LOADED,
    "Dynamo bytecode transform time": _LOADED,
    "Capturing CUDA graphs": "capturing CUDA graphs",
    "Graph capturing finished": "preparing the first requests",
    "init engine (profile, create kv cache, warmup model) took": "first requests of the warm-up",
}
"""Texts logged by vLLM 0.31 and 0.32, and the phases that they begin."""
_DONE = re.compile(r"checkpoint shards:\s+(\d+)% Completed|Capturing CUDA graphs[^:\n]*:\s+(\d+)%")


def log_start(log: Path, role: Role) -> None:
    """Log the start of an engine in this process."""
    now = datetime.now(UTC).isoformat(" ", "seconds")
    _append(log, f"== the {role} engine starts in process {os.getpid()} on {socket.gethostname()} at {now}")


def log_end_of_start(log: Path, role: Role, *, is_ready: bool) -> None:
    """Log that the engine has answered its first requests, or that it did not start."""
    _append(log, f"== the {role} engine {'answers' if is_ready else 'did not start'}")


def start_phase(log: Path) -> str | None:
    """Return the phase of a starting engine, as `target: loading weights (50 %)`.

    None if the engine has started or failed, or if its worker has ended, as far as this machine can tell.
    """
    import psutil

    text = _since_start(log)
    begun = _BEGIN.match(text)
    if begun is None or _END.search(text) is not None:
        return None
    if begun["host"] == socket.gethostname() and not psutil.pid_exists(int(begun["pid"])):
        return None
    found, since = "importing vLLM", 0
    for line, name in PHASES.items():
        if (place := text.rfind(line)) >= since:
            found, since = name, place
    if found == _LOADED:
        return f"{begun['role']}: {'' if 'enforce_eager=True' in text else 'compiling and '}{found}"
    shares = _DONE.findall(text, since)
    return f"{begun['role']}: {found}" + (f" ({''.join(shares[-1])} %)" if shares else "")


def last_lines(log: Path) -> str:
    """Return the last twenty non-empty lines of an engine's output since its last start, for an error message."""
    written = _END.sub("", _BEGIN.sub("", _since_start(log)))
    return "\n".join([line for line in written.splitlines() if line.strip()][-20:]) or "(no output)"


def root_cause(log: Path) -> str | None:
    """Return the first exception since an engine's last start; later ones only report that a child process failed."""
    exception = re.search(r"(?:^|\] )((?:\w+\.)*\w+(?:Error|Exception): .+)$", _since_start(log), re.MULTILINE)
    return exception[1].strip() if exception else None


def _since_start(log: Path) -> str:
    """Return a log's text since the last start of the engine; empty if there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    begins = [found.start() for found in _BEGIN.finditer(text)]
    return text[begins[-1] :] if begins else text


def _append(log: Path, line: str) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    with contextlib.suppress(OSError), os.fdopen(os.open(log, flags, 0o666), "a") as file:  # less the umask
        file.write(f"{line}\n")  # a full disk ends the run elsewhere


if __name__ == "__main__":
    _guard(int(sys.argv[1]), sys.argv[2].encode())
