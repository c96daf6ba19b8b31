"""Tell people of a night's verdict: a command of theirs, and a request to a URL of theirs.

Neither can spoil the verdict: each is limited in time and size, and what goes wrong is one line. The command is run
without a shell, and nothing that a model or a dataset said is among its arguments. A URL is often a secret, so only its
host is ever printed or recorded. Nodes may have no internet: then the line says so.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import orjson

from jobs.nights.settings import NightSettings

_MAX_PAGE_BYTES = 256 << 10
_MAX_TEXT_CHARACTERS = 30_000
_MAX_URL_BYTES = 4096
_MAX_REASON_CHARACTERS = 200


@dataclass(frozen=True)
class Verdict:
    """What is told."""

    night: str
    verdict: str
    page: Path
    """The Markdown page."""

    @property
    def text(self) -> str:
        """The page's text, of limited size."""
        with self.page.open("rb") as content:
            return content.read(_MAX_PAGE_BYTES).decode("utf-8", "replace")


def tell(settings: NightSettings, verdict: Verdict) -> list[str]:
    """Run the command and send the request where they are set; returns one line about each. Raises nothing."""
    if verdict.verdict not in settings.notify_on:
        return []
    lines = []
    if settings.notify_command:
        lines.append(f"notify-command {Path(settings.notify_command[0]).name}: {_run(settings, verdict)}")
    if settings.notify_url or settings.notify_url_file:
        try:
            url = settings.notify_url or _read_url(settings.notify_url_file)
            lines.append(f"notify-url {_host(url)}: {_send(url, verdict, settings.notify_seconds)}")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            lines.append(f"notify-url: not sent: {settings.notify_url_file}: {reason}")
    return lines


def _run(settings: NightSettings, verdict: Verdict) -> str:
    """Run the command with the page on its standard input; returns how it ended."""
    values = {"{verdict}": verdict.verdict, "{night}": verdict.night, "{page}": str(verdict.page)}
    words = [_replaced(word, values) for word in settings.notify_command]
    variables = {"NIGHT": verdict.night, "NIGHT_VERDICT": verdict.verdict, "NIGHT_PAGE": str(verdict.page)}
    with verdict.page.open("rb") as page:
        try:
            process = subprocess.Popen(
                words,
                stdin=page,
                # What it prints may hold a secret, and the job's log stays beside the runs.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **variables},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return f"not run: {error.strerror if isinstance(error, OSError) else error}"
    try:
        code = process.wait(settings.notify_seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"ended after {settings.notify_seconds:g} s"
    return "done" if code == 0 else f"exit code {code}"


def _replaced(word: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word


def _read_url(path: Path | None) -> str:
    assert path is not None
    with path.expanduser().open("rb") as content:
        url = content.read(_MAX_URL_BYTES).decode("utf-8", "strict").strip()
    if not url.startswith(("http://", "https://")) or len(url.split()) != 1:
        raise ValueError("it does not hold one http or https URL")
    return url


def _host(url: str) -> str:
    return urllib.parse.urlsplit(url).hostname or "without a host"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Answers with another address are errors: the page goes to the host that the user named and to no other."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Follow nothing."""
        return


def _send(url: str, verdict: Verdict, seconds: float) -> str:
    """Send the verdict in a thread that is given up after the limit; returns how it ended."""
    body = {"night": verdict.night, "verdict": verdict.verdict, "text": verdict.text[:_MAX_TEXT_CHARACTERS]}
    outcome = [f"no answer in {seconds:g} s; nodes may have no internet"]

    def send() -> None:
        request = urllib.request.Request(url, orjson.dumps(body), {"Content-Type": "application/json"}, method="POST")
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=seconds) as answer:
                outcome[0] = f"sent ({answer.status})"
        except urllib.error.HTTPError as error:
            outcome[0] = f"refused ({error.code})"
        except urllib.error.URLError as error:
            reason = error.reason.strerror if isinstance(error.reason, OSError) else type(error.reason).__name__
            outcome[0] = f"not sent: {_shown(str(reason))}; nodes may have no internet"
        except Exception as error:  # noqa: BLE001 whatever a server answers, the verdict stands
            outcome[0] = f"not sent: {type(error).__name__}"

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(seconds)
    return outcome[0]


def _shown(reason: str) -> str:
    return "".join(character for character in reason if character.isprintable())[:_MAX_REASON_CHARACTERS]
