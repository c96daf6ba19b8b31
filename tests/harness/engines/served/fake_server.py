"""A server on this machine that answers as vLLM, SGLang or llama.cpp do, with a scripted engine behind it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from harness.engine import RequestRefused, Sampling
from harness.engines.scripted import ByteTokenizer, JudgeScript, ScriptedEngine, SimulatedModel, WriteScript
from harness.engines.served.address import ServedModel, ServerAddress
from harness.engines.served.connection import Connection
from harness.weights.tokenizer import HFTokenizer

MODEL = "org/story"
_RARE = 1e-9


@dataclass
class FakeServer:
    """What a fake server serves, how it fails, and what it was asked."""

    kind: str
    engine: ScriptedEngine
    tokenizer: HFTokenizer
    url: str = ""
    models: list[dict[str, Any]] = field(default_factory=list)
    key: str | None = None
    failures: list[int | str] = field(default_factory=list)
    """What the next POSTs end with: a status, `reset`, `garbage`, `torn`, `huge` or `slow`."""
    fails: Callable[[dict[str, Any]], int | str | None] = lambda body: None
    """What every POST with such a body ends with; None: with its reply."""
    edits: list[Callable[[str, dict[str, Any]], dict[str, Any]]] = field(default_factory=list)
    """Changes of replies, by path."""
    posts: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    names_tokens: bool = True
    """Whether vLLM's server takes `logprob_token_ids`."""
    most_listed: int = 10_000

    def connection(self, key: str | None = None) -> Connection:
        """A connection that tries again at once."""
        address = ServerAddress.parse("--target", self.url)
        return Connection(address, "target", key, attempts=3, first_wait_seconds=0.001, reply_seconds=2.0)

    @property
    def served_model(self) -> ServedModel:
        return ServedModel(self.url, self.kind, MODEL)

    def reply(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        replies: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "/v1/completions": self._completion,
            "/completion": self._llama,
            "/generate": self._sglang,
            "/detokenize": lambda b: {"content": self.tokenizer.decode(b["tokens"])},
        }
        return replies[path](body)

    def _written(self, prompt: list[int], sampling: Sampling) -> tuple[list[int], str, str | None, int]:
        generation = asyncio.run(self.engine.generate(prompt, sampling))
        completion = generation.completions[0]
        ids = list(completion.token_ids) + ([cast(int, self.tokenizer.eos_token_id)] * (completion.finish == "eos"))
        stop = sampling.stop[0] if completion.finish == "stop" else None
        return ids, completion.finish, stop, generation.cached_tokens

    def _judged(self, prompt: list[int], options: list[int]) -> dict[int, float]:
        """All options' log-probabilities; a token without a letter or digit is rare."""
        choice = asyncio.run(self.engine.choose(prompt, options))
        return dict(zip(options, choice.logprobs, strict=True))

    def _listed(self, prompt: list[int], options: list[int], number: int) -> dict[int, float]:
        """Rare tokens first, so that short lists lack the options."""
        rest = [i for i in range(self.tokenizer.num_tokens) if i not in options]
        return {i: math.log(_RARE) for i in rest[:number]} | (
            self._judged(prompt, options) if number > len(rest) or number == -1 else {}
        )

    def _completion(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt, options = body["prompt"], body.get("allowed_token_ids")
        if options is None:
            stop_strings, seed = tuple(body.get("stop", ())), body.get("seed", 0)
            sampling = Sampling(body["max_tokens"], body["temperature"], body.get("top_p", 1.0), stop_strings, seed)
            ids, finish, stop, cached = self._written(prompt, sampling)
            choice: dict[str, Any] = {"finish_reason": "length" if finish == "length" else "stop", "stop_reason": stop}
            choice |= {"token_ids": ids, "text": "", "logprobs": None}
            if (listed := body.get("logprobs")) is not None:
                top = {f"token_id:{number}": math.log(0.5 / 2**number) for number in range(max(1, listed))}
                choice["logprobs"] = {"token_logprobs": [-0.5] * len(ids), "top_logprobs": [top] * len(ids)}
            if body.get("prompt_logprobs") is not None:
                choice["prompt_logprobs"] = [{str(token): {"logprob": -0.01 * token}} for token in prompt]
        else:
            number = body["logprobs"]
            if number > self.most_listed or (number == -1 and self.most_listed < 10_000):
                raise RequestRefused("Requested sample logprobs of more than max_logprobs")
            is_named = self.names_tokens and "logprob_token_ids" in body
            found = self._judged(prompt, options) if is_named else self._listed(prompt, options, number)
            top = {f"token_id:{token}": logprob for token, logprob in found.items()}
            choice = {"finish_reason": "length", "token_ids": options[:1], "logprobs": {"top_logprobs": [top]}}
            cached = 0
        usage = {"prompt_tokens": len(prompt), "prompt_tokens_details": {"cached_tokens": cached}}
        return {"choices": [choice], "usage": usage}

    def _llama(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt, number = body["prompt"], body.get("n_probs", 0)
        if number > 20:
            options = [token for token in range(self.tokenizer.num_tokens) if self.tokenizer.decode([token]).isalnum()]
            found = self._listed(prompt, options, number)
            top = [{"id": token, "logprob": logprob} for token, logprob in found.items()]
            probabilities = [{"id": 1, "logprob": -1.0, "top_logprobs": top}]
            return {"tokens": [1], "stop_type": "limit", "completion_probabilities": probabilities}
        sampling = Sampling(body["n_predict"], body["temperature"], body["top_p"], tuple(body["stop"]), body["seed"])
        ids, finish, stop, cached = self._written(prompt, sampling)
        top = [{"id": place, "logprob": math.log(0.5 / 2**place)} for place in range(number)]
        left_out = len(self.tokenizer.encode(stop)) if stop else 0
        return {
            "tokens": ids,
            "stop_type": {"stop": "word", "eos": "eos", "length": "limit"}[finish],
            "timings": {"cache_n": cached},
            "completion_probabilities": [{"logprob": -0.5, "top_logprobs": top}] * (len(ids) - left_out)
            if number
            else None,
        }

    def _sglang(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt, settings = body["input_ids"], body["sampling_params"]
        if (options := body.get("token_ids_logprob")) is not None:
            named = [[logprob, token, None] for token, logprob in self._judged(prompt, options).items()]
            ended: dict[str, Any] = {"type": "length", "length": 1}
            return {"output_ids": [1], "meta_info": {"finish_reason": ended, "output_token_ids_logprobs": [named]}}
        stop, seed = tuple(settings.get("stop", ())), settings.get("sampling_seed", 0)
        top_p = settings.get("top_p", 1.0)
        sampling = Sampling(settings["max_new_tokens"], settings["temperature"], top_p, stop, seed)
        ids, finish, matched, cached = self._written(prompt, sampling)
        ended = {"type": "length"} if finish == "length" else {"type": "stop", "matched": matched or ids[-1]}
        meta: dict[str, Any] = {"finish_reason": ended, "cached_tokens": cached}
        if body["return_logprob"]:
            meta["output_token_logprobs"] = [[-0.5, token, None] for token in ids]
            meta["input_token_logprobs"] = [[-0.01 * token, token, None] for token in prompt]
            listed = [[math.log(0.5 / 2**number), number, None] for number in range(body.get("top_logprobs_num", 0))]
            meta["output_top_logprobs"] = [listed] * len(ids)
        return {"output_ids": ids, "meta_info": meta}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    fake: FakeServer

    def log_message(self, *args: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        if self._is_forbidden():
            return
        paths: dict[str, dict[str, Any]] = {
            "/v1/models": {"data": self.fake.models},
            **({"/version": {"version": "0.32.0"}} if self.fake.kind in ("vllm", "sglang") else {}),
            **({"/get_model_info": {"is_generation": True}, "/server_info": {"version": "0.5.9"}}
               if self.fake.kind == "sglang" else {}),
            **({"/props": {"build_info": "b1-abc"}} if self.fake.kind == "llama.cpp" else {}),
        }  # fmt: skip
        self._send(200, paths[self.path]) if self.path in paths else self._send(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._is_forbidden():
            return
        self.fake.posts.append((self.path, body))
        failure = self.fake.failures.pop(0) if self.fake.failures else self.fake.fails(body)
        if failure == "reset":
            self.close_connection = True
            self.connection.close()
        elif failure == "garbage":
            self._send_bytes(200, b'{"choices": [NaN]}')
        elif failure == "torn":
            self.close_connection = True
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"choices": [')
        elif failure == "huge":
            self._send_bytes(200, b'{"x": "' + b"a" * 3_000_000 + b'"}')
        elif failure == "slow":
            time.sleep(0.5)
        elif isinstance(failure, int):
            self._send(failure, {"error": {"message": "out\nof \x1b[31mluck"}})
        else:
            self._answer(body)

    def _answer(self, body: dict[str, Any]) -> None:
        try:
            reply = self.fake.reply(self.path, body)
        except RequestRefused as refusal:
            self._send(400, {"error": {"message": str(refusal)}})
            return
        except KeyError:
            self._send(404, {"detail": "Not Found"})
            return
        for edit in self.fake.edits:
            reply = edit(self.path, reply)
        self._send(200, reply)

    def _is_forbidden(self) -> bool:
        key = self.fake.key
        if key is None or self.headers.get("Authorization") == f"Bearer {key}":
            return False
        self._send(401, {"error": f"wrong key {self.headers.get('Authorization')}"})
        return True

    def _send(self, status: int, value: object) -> None:
        self._send_bytes(status, json.dumps(value).encode())

    def _send_bytes(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(content)


def judge_each(prompt: str, labels: tuple[str, ...]) -> list[float]:
    """The probability of each option, whatever the others are, as a model gives it: their sum is below 1."""
    digests = [hashlib.sha256(f"{prompt}\0{label}".encode()).digest()[0] for label in labels]
    return [0.05 * (1 + digest) / 256 for digest in digests]


@contextlib.contextmanager
def serving(
    kind: str, tokenizer: HFTokenizer, write: WriteScript | None = None, judge: JudgeScript = judge_each
) -> Iterator[FakeServer]:
    """Serve a scripted model until the block ends; by default the simulated one."""
    model = SimulatedModel(skill=0.9)
    engine = ScriptedEngine(write or model.write, judge, cast(ByteTokenizer, tokenizer))
    fake = FakeServer(kind, engine, tokenizer)
    card: dict[str, Any] = {"id": MODEL}
    fake.models = [{**card, "max_model_len": 4096, "meta": {"n_ctx": 4096}}]
    handler = type("Handler", (_Handler,), {"fake": fake})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        fake.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield fake
        finally:
            server.shutdown()
            thread.join()
