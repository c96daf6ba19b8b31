"""The processes of an engine: their environment, log and files on the node, and that none is left behind.

Environment and file descriptors belong to the whole process and are inherited by its children when they start. So only
one engine starts at a time, and both are restored once it has started.

vLLM's engine processes outlive a worker that is killed and keep the GPU's memory. Every process of an engine therefore
carries a mark in the environment that it was started with, so that it is found whatever it is called, whoever its
parent is by now, and whatever it is doing. A guard beside the worker, which is this file run as a script, kills what
carries the worker's mark once the worker has ended. It needs a few megabytes; for its sake only the standard library is
imported here.

vLLM, Triton, FlashInfer and CUDA keep compiled code below the home directory, which nodes usually share. A hundred
nodes that start together would write the same files there. vLLM also writes one of its files in place and reads it
without expecting half of it (compilation/backends.py in vLLM 0.32), so two workers of one node get a folder each on the
node's own disk: the first one that no other worker has locked, so that later workers find what earlier ones compiled.

Every start of vLLM also leaves some sockets and a file by which ranks find each other, all with random names, in the
folder for temporary files. Here that is a folder of the worker's own, which is removed when the worker ends. What a
killed worker has left, shared memory included, is removed by the next worker of the same user on the node: the helper
of Python's that would do so is killed too where Slurm kills a whole job.
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
"""Environment variable: the worker's process id, its mark, and the number of the start that a process belongs to."""
_TOKEN = secrets.token_hex(8)
_STARTS = itertools.count()
_MAX_ROUNDS = 5
_STARTING = threading.Lock()
_SPARED = b"multiprocessing.resource_tracker"
"""Ends by itself with the processes that use it, and removes their shared memory then."""
_guards: dict[int, subprocess.Popen[bytes]] = {}
"""By the process that started it."""
_GUARD_POLL_SECONDS, _GUARD_SCAN_SECONDS, _GUARD_MAX_SECONDS = 0.5, 0.2, 60.0
_EMPTY_SCANS = 2
"""Number of scans in succession that find nothing before the guard ends: a process may be starting another one."""


@contextlib.contextmanager
def starting(log_path: Path, variables: Mapping[str, str | None]) -> Iterator[EngineProcesses]:
    """Let this process and its new children write to the log file and see these variables (None: unset).

    Yields the processes that are started inside.
    """
    with _STARTING:
        engine = EngineProcesses()
        _start_guard()
        # The title that a process of vLLM gives itself would otherwise be written over the environment it started with.
        marks = {MARK: engine.mark, "SPT_NOENV": "1"}
        with _environment({**variables, **marks}), output_to(log_path):
            yield engine


class EngineProcesses:
    """The processes of one start of an engine, whatever they are called and whoever their parent is by now."""

    def __init__(self) -> None:
        """Nothing is started yet."""
        self.mark = f"{_worker_mark()}{next(_STARTS)}"

    def find(self) -> set[psutil.Process]:
        """Return those that are running now. Reads the environment of every process of this user."""
        import psutil

        found = set()
        for number in _marked(self._entry):
            with contextlib.suppress(psutil.Error):
                found.add(psutil.Process(number))
        return found

    def started(self) -> None:
        """Take note that the start is over, and of the shared memory that the processes use."""
        note_shared_memory(_marked(self._entry))

    def kill(self, grace_seconds: float = 0.0) -> None:
        """Wait for all of them to end, and kill those still running after the grace time."""
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


def is_engine_process() -> bool:
    """Return whether this process belongs to an engine, and is not the worker that is starting one."""
    worker, _, _ = os.environ.get(MARK, "").partition("-")
    return worker not in ("", str(os.getpid()))


def _worker_mark() -> str:
    """Return what the marks of all engines of this process begin with."""
    return f"{os.getpid()}-{_TOKEN}."


def _marked(entry: bytes) -> list[int]:
    """Return the processes of this user whose environment contains an entry, or its beginning; only on Linux."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            if entry in (folder / "environ").read_bytes() and _SPARED not in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def _kill_marked(entry: bytes) -> int:
    """Kill every process whose environment contains the entry; returns their number."""
    marked = [number for number in _marked(entry) if number != os.getpid()]
    for number in marked:
        with contextlib.suppress(OSError):
            os.kill(number, signal.SIGKILL)
    return len(marked)


def _start_guard() -> None:
    """Start this process's guard, once; only on Linux."""
    if os.getpid() in _guards or not Path("/proc/self/environ").is_file():
        return
    guard = _guards[os.getpid()] = subprocess.Popen(
        # Isolated and without site-packages: the start takes milliseconds. It reads this file, which may lie in a zip.
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
    """Wait for the end of the worker, and kill what is left of its engines: nothing else has such an entry."""
    if not entry.startswith(f"{MARK}={worker}-".encode()):
        raise ValueError(f"no entry of the engines of worker {worker}: {entry!r}")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # sent to the worker's whole group; this process ends with the worker
    while os.getppid() == worker:
        time.sleep(_GUARD_POLL_SECONDS)
    deadline, empty_scans = time.monotonic() + _GUARD_MAX_SECONDS, 0
    while empty_scans < _EMPTY_SCANS and time.monotonic() < deadline:
        empty_scans = 0 if _kill_marked(entry) else empty_scans + 1
        time.sleep(_GUARD_SCAN_SECONDS)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables, and afterwards restore them and every other variable of vLLM's.

    vLLM sets some in this process for models of certain kinds (VLLM_USE_DEEP_GEMM_E8M0, VLLM_USE_BREAKABLE_CUDAGRAPH).
    The engine that starts next would compute in another way than alone. Other threads read the environment meanwhile,
    so a variable that stays set is never unset in between.
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
    """Redirect descriptors 1 and 2 to the file, so that the output of native code and dying processes is in it too."""
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
    "VLLM_CACHE_ROOT": "vllm",  # torch.compile, DeepGEMM, peer access between cards, descriptions of models
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "CUDA_CACHE_PATH": "cuda",
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "TILELANG_CACHE_DIR": "tilelang",
    "TVM_FFI_CACHE_DIR": "tvm_ffi",
}
"""Environment variables of the libraries, with the name of each one's folder."""
_NUM_FOLDERS = 64
"""Most workers of one user on a node that get a folder which later workers find again."""
_TEMPORARY = "tmp"
"""Folder for what nobody can use after this worker."""
_TEMPORARY_FOLDER, _SOCKET_FOLDER = "TMPDIR", "VLLM_RPC_BASE_PATH"
_MAX_SOCKET_FOLDER_CHARACTERS = 70
"""A socket's path has at most 107 characters, and vLLM adds a name of 37."""
_SHORT = "/tmp"
"""Where sockets are if the folder for temporary files has a long name, as in jobs of some sites."""
_held: dict[tuple[int, str], tuple[Path, int]] = {}
"""Folders and locks by process and disk: those of this process, and in a forked process also its parent's."""


def node_variables() -> dict[str, str]:
    """Return the variables that put caches, temporary files and sockets on the node's own disk.

    Those that the environment already sets are left out, except for the folder of temporary files, which is below the
    one that the environment names.
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
    """Take note of the shared memory that processes of an engine use; if this worker is killed, the next removes it."""
    held = _held.get((os.getpid(), tempfile.gettempdir()))
    if held is None:
        return
    names: set[str] = set()
    for process in processes:
        with contextlib.suppress(OSError):  # it has ended
            names |= set(_MAPPED.findall(Path(f"/proc/{process}/maps").read_text(errors="replace")))
    with contextlib.suppress(OSError), (held[0] / _TEMPORARY / SEGMENTS_LIST).open("a") as noted:
        noted.writelines(f"{name}\n" for name in sorted(names))


def _folder(disk: str) -> Path | None:
    """Return this worker's folder on a disk, the same in all calls; None, with a warning, where none can be made."""
    process = os.getpid()
    if (process, disk) not in _held:
        try:
            folder, lock = _take(Path(disk))
            (folder / _TEMPORARY).mkdir(mode=0o700)
        except OSError as error:
            warnings.warn(f"compiled code is kept in the home directory, because {error}", stacklevel=3)
            return None
        atexit.register(shutil.rmtree, folder / _TEMPORARY, ignore_errors=True)
        _held[process, disk] = folder, lock
    return _held[process, disk][0]


def _take(disk: Path) -> tuple[Path, int]:
    """Return a folder that no other worker uses, with the descriptor of its lock, which is held until this one ends.

    Raises OSError where there is none.
    """
    root = disk / f"speculative-harness-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    status = root.lstat()  # what is in it will be executed, so nobody else may put files there
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise OSError(f"others may write to {root}")
    for number in range(_NUM_FOLDERS):
        folder = root / f"worker-{number}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if (lock := _locked(folder)) is not None:
            _remove_leftovers(root)
            _remove_left(folder / _TEMPORARY)
            return folder, lock
    raise OSError(f"{root} has no folder that can be locked")


def _locked(folder: Path) -> int | None:
    """Return the descriptor of a folder's lock; None where another worker has it, or there are no locks."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _remove_leftovers(root: Path) -> None:
    """Remove the temporary files of workers that were killed: those of folders that nobody has locked."""
    for left in root.glob(f"worker-*/{_TEMPORARY}"):
        with contextlib.suppress(OSError):
            if (lock := _locked(left.parent)) is not None:
                _remove_left(left)
                os.close(lock)


def _remove_left(folder: Path) -> None:
    remove_noted_segments(folder)
    shutil.rmtree(folder, ignore_errors=True)


SEGMENTS_LIST = "shared-memory"
"""Name of the file that lists segments."""
_SEGMENTS = Path("/dev/shm")
_MAPPED = re.compile(r" /dev/shm/(psm_[0-9a-f]{8})$", re.MULTILINE)
_NAME = re.compile(r"psm_[0-9a-f]{8}")
"""What Python calls a segment of which nobody chose the name."""


def remove_noted_segments(folder: Path, segments: Path = _SEGMENTS) -> None:
    """Remove the segments of this user that a folder lists; nobody may be using them any more."""
    with contextlib.suppress(OSError):
        for name in (folder / SEGMENTS_LIST).read_text(errors="replace").split():
            with contextlib.suppress(OSError):
                status = (segments / name).lstat() if _NAME.fullmatch(name) else None
                if status is not None and stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid():
                    (segments / name).unlink()


# The lines that begin and end an engine's start in its log, and vLLM's lines between them. A worker that starts engines
# has no journal yet, so these logs are what others can know of it.

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
"""What vLLM 0.31 and 0.32 print, and what they do from then on."""
_DONE = re.compile(r"checkpoint shards:\s+(\d+)% Completed|Capturing CUDA graphs[^:\n]*:\s+(\d+)%")


def log_start(log: Path, role: Role) -> None:
    """Write that an engine starts in this process."""
    now = datetime.now(UTC).isoformat(" ", "seconds")
    _append(log, f"== the {role} engine starts in process {os.getpid()} on {socket.gethostname()} at {now}")


def log_end_of_start(log: Path, role: Role, *, is_ready: bool) -> None:
    """Write that the engine has answered its first requests, or that it did not start."""
    _append(log, f"== the {role} engine {'answers' if is_ready else 'did not start'}")


def start_phase(log: Path) -> str | None:
    """Return what a starting engine is at, as `target: loading weights (50 %)`.

    None where no engine is starting: it answers, has failed, or its worker is no longer there, as far as this machine
    can tell.
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
    """Return the last twenty non-empty lines of what an engine wrote since its last start, for an error message."""
    written = _END.sub("", _BEGIN.sub("", _since_start(log)))
    return "\n".join([line for line in written.splitlines() if line.strip()][-20:]) or "(no output)"


def root_cause(log: Path) -> str | None:
    """Return the first exception since an engine's last start: later ones only report that a child process failed."""
    exception = re.search(r"(?:^|\] )((?:\w+\.)*\w+(?:Error|Exception): .+)$", _since_start(log), re.MULTILINE)
    return exception[1].strip() if exception else None


def _since_start(log: Path) -> str:
    """Return the end of a log since the last start in it; empty where there is no log."""
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
