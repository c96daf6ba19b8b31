"""Checks that the servers of a run answer and give what methods need."""

from __future__ import annotations

from collections.abc import Iterator

from harness.checks.check import Check, Question, failure, ok, warning
from harness.engine import EngineDied
from harness.engines.served import discovery
from harness.engines.served.address import ServerAddress


def check_servers(question: Question) -> Iterator[Check]:
    """Check each role's server: that it can be reached, what it runs, and every kind of request."""
    for role, text in question.servers.items():
        address, subject = ServerAddress.parse(f"--{role}", text), f"{role} server"
        if not question.workers_run_here and address.is_loopback:
            yield warning(subject, f"{address.shown} is this machine only: the jobs look for a server on their nodes")
        try:
            found = discovery.find_here(address, role, question.served_models.get(role))
            own = discovery.own_tokenizer(role, found.model, found.root, question.tokenizers.get(role))
            notices = discovery.check_here(address, role, found, own)
        except EngineDied as error:
            where = "" if question.workers_run_here else " from here; --on-node asks from a node"
            yield (failure if question.workers_run_here else warning)(subject, f"{error}{where}")
            continue
        except ValueError as error:
            yield failure(subject, str(error))
            continue
        context = f"a context of {found.context_tokens} tokens" if found.context_tokens else "an unknown context"
        yield ok(subject, f"{found.kind} {found.version or ''} with {found.model}, {context}; token ids, verdicts work")
        yield from (warning(subject, notice) for notice in notices)
