"""A hub on this machine with one dataset: what huggingface_hub and datasets ask of the real one over HF_ENDPOINT."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass
class LocalHub:
    """Datasets by id: the commits that their revisions name, and the files of each commit."""

    revisions: dict[str, dict[str, str]] = field(default_factory=dict)
    files: dict[tuple[str, str], Mapping[str, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    address: str = ""

    def add(self, dataset: str, commit: str, files: Mapping[str, bytes], revision: str = "main") -> None:
        self.revisions.setdefault(dataset, {})[revision] = commit
        self.files[dataset, commit] = files

    def commit(self, dataset: str, revision: str) -> str | None:
        commit = self.revisions.get(dataset, {}).get(revision, revision)
        return commit if (dataset, commit) in self.files else None


@contextmanager
def local_hub() -> Iterator[LocalHub]:
    hub = LocalHub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: LocalHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, body: Any = None) -> None:
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        self.hub.asked.append(f"{self.command} {self.path}")
        if parts[:2] == ["api", "datasets"] and len(parts) >= 4:
            self._api(f"{parts[2]}/{parts[3]}", parts[4:], body)
        elif parts[0] == "datasets" and len(parts) > 5 and parts[3] == "resolve":
            self._file(f"{parts[1]}/{parts[2]}", parts[4], "/".join(parts[5:]))
        else:
            self._send(404, b"")

    def _api(self, dataset: str, rest: list[str], body: Any) -> None:
        revision = rest[1] if len(rest) > 1 else "main"
        commit = self.hub.commit(dataset, revision)
        if dataset not in self.hub.revisions or commit is None:
            self._send(
                404, b"", {"X-Error-Code": "RevisionNotFound" if dataset in self.hub.revisions else "RepoNotFound"}
            )
            return
        files = self.hub.files[dataset, commit]
        entries = [_entry(name, content) for name, content in files.items()]
        if not rest or rest[0] == "revision":
            siblings = [{"rfilename": name} for name in files]
            answer: Any = {"_id": "0" * 24, "id": dataset, "sha": commit, "siblings": siblings, "private": False,
                           "gated": False, "disabled": False, "tags": [], "downloads": 0, "likes": 0}  # fmt: skip
        elif rest[0] == "tree":
            under = "/".join(rest[2:])
            answer = [entry for entry in entries if not under or entry["path"].startswith(f"{under}/")]
        elif rest[0] == "paths-info":
            wanted = body["paths"] if isinstance(body["paths"], list) else [body["paths"]]
            answer = [entry for entry in entries if entry["path"] in wanted]
        else:
            answer = None
        self._send(404 if answer is None else 200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _file(self, dataset: str, revision: str, name: str) -> None:
        commit = self.hub.commit(dataset, revision)
        content = self.hub.files[dataset, commit].get(name) if commit else None
        if content is None or commit is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        self._send(200, content, {"ETag": f'"{_oid(content)}"', "X-Repo-Commit": commit})

    def _send(self, status: int, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _entry(name: str, content: bytes) -> dict[str, Any]:
    return {"type": "file", "oid": _oid(content), "size": len(content), "path": name}


def _oid(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()
