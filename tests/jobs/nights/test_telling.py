"""A verdict is told by a command and by a request; neither can spoil it, hold it up, or leave a secret behind."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from jobs.nights import settings
from jobs.nights.telling import Verdict, tell


@pytest.fixture
def verdict(tmp_path: Path) -> Verdict:
    page = tmp_path / "nights" / "2026-01-01.md"
    page.parent.mkdir()
    page.write_text("**FAIL: night of 2026-01-01, 2 cells**\n", encoding="utf-8")
    return Verdict("2026-01-01", "FAIL", page)


def told(verdict: Verdict, **table: Any) -> list[str]:
    return tell(settings.from_table(table), verdict)


class _Server(HTTPServer):
    received: list[dict[str, Any]]
    status = 200


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        self.server.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.server.status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[_Server]:
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.received = []
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def test_a_command_gets_the_page_and_its_arguments_are_not_read_by_a_shell(verdict: Verdict, tmp_path: Path) -> None:
    script = 'cat > "$0"; printf "%s|" "$@" "$NIGHT_VERDICT" "$NIGHT" >> "$0"'
    odd = "$(touch {night}) `touch x`; {verdict}"
    [line] = told(verdict, **{"notify-command": ["sh", "-c", script, str(tmp_path / "got"), odd]})
    assert line == "notify-command sh: done"
    assert (tmp_path / "got").read_text() == (verdict.text + "$(touch 2026-01-01) `touch x`; FAIL|FAIL|2026-01-01|")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["got", "nights"]


def test_a_command_that_hangs_is_ended_with_all_that_it_started(verdict: Verdict) -> None:
    began = time.monotonic()
    [line] = told(verdict, **{"notify-command": "sh -c 'sleep 60 & sleep 60'", "notify-seconds": 0.3})
    assert line == "notify-command sh: ended after 0.3 s"
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["/nowhere/mail"], "notify-command mail: not run: No such file or directory"),
        (["sh", "-c", "echo https://hooks.example.org/secret >&2; exit 3"], "notify-command sh: exit code 3"),
    ],
)
def test_a_command_that_fails_is_one_line_without_what_it_printed(
    verdict: Verdict, command: list[str], line: str
) -> None:
    assert told(verdict, **{"notify-command": command}) == [line]


def test_a_url_gets_the_verdict_and_the_page(verdict: Verdict, server: _Server, tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text(f"http://127.0.0.1:{server.server_port}/secret-token\n")
    assert told(verdict, **{"notify-url-file": str(secret)}) == ["notify-url 127.0.0.1: sent (200)"]
    assert server.received == [{"night": "2026-01-01", "verdict": "FAIL", "text": verdict.text}]


@pytest.mark.parametrize(("status", "line"), [(500, "refused (500)"), (307, "refused (307)"), (302, "refused (302)")])
def test_a_server_that_refuses_or_sends_elsewhere_is_one_line(
    verdict: Verdict, server: _Server, status: int, line: str
) -> None:
    server.status = status
    url = f"http://127.0.0.1:{server.server_port}/secret-token"
    assert told(verdict, **{"notify-url": url}) == [f"notify-url 127.0.0.1: {line}"]
    assert len(server.received) == 1


def test_without_a_network_the_line_says_so_and_names_no_secret(verdict: Verdict, tmp_path: Path) -> None:
    lines = told(verdict, **{"notify-url": "http://127.0.0.1:9/secret-token"})
    lines += told(verdict, **{"notify-url-file": str(tmp_path / "missing")})
    (tmp_path / "wrong").write_text("file:///etc/passwd")
    lines += told(verdict, **{"notify-url-file": str(tmp_path / "wrong")})
    assert lines == [
        "notify-url 127.0.0.1: not sent: Connection refused; nodes may have no internet",
        f"notify-url: not sent: {tmp_path / 'missing'}: No such file or directory",
        f"notify-url: not sent: {tmp_path / 'wrong'}: it does not hold one http or https URL",
    ]


def test_only_the_verdicts_that_were_asked_for_are_told(verdict: Verdict) -> None:
    assert told(verdict, **{"notify-command": ["true"], "notify-on": ["PASS", "WARN"]}) == []
    assert told(verdict, **{"notify-command": ["true"], "notify-on": "FAIL"}) == ["notify-command true: done"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"retries": 3}, "unknown key retries; the keys are recoveries, notify-on, notify-command"),
        ({"recoveries": -1}, "recoveries: Input should be greater than or equal to 0, not -1"),
        ({"notify-url": "ftp://x"}, "notify-url: String should match pattern"),
        ({"notify-on": ["GREEN"]}, "notify-on.0: Input should be 'PASS', 'WARN', 'FAIL'"),
        (3, "must be a table"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(table: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r"^\[nightly\]") as refused:
        settings.from_table(table)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
