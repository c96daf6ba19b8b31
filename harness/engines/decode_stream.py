"""vLLM's decode stream, primed with the last ids of a prompt instead of the whole prompt.

For a request with a stop string vLLM turns ids into text one by one. At the first of them its stream decodes the whole
prompt twice, in the worker's event loop: 2 ms at 8,000 tokens, 25 ms at 32,000 (vllm-project/vllm#51281). What follows
a prompt depends on its last few ids only, so the stream here is given these. The text is vLLM's own.

It differs in one case. Behind a prompt that ends inside a character, vLLM's stream returns the whole prompt together
with the first new text, and finds stop strings in it (vllm-project/vllm#48853). Here only what follows the last whole
character is returned.

Only code that is known is changed: with another version of vLLM everything stays as it is, and `install` says so.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Sequence
from typing import Any

from harness.weights.tokenizer import decoder_kinds

_KNOWN_DETOKENIZERS = {"789828f59fe4d0590bef927f7cc0211c7d24508f3d5ae2caded237183a76a2ef": "0.31, 0.32, 0.33"}
"""SHA-256 of the source of vLLM's FastIncrementalDetokenizer, which makes the streams and steps them, by version."""
_SIZES = (16, 128)
"""Numbers of ids to prime a stream with: the second where the first have no visible text."""
_MOST_UNFINISHED = 8
"""Most ids at the end of a prompt that are taken for the beginning of a character, which has at most four bytes."""
_UNFINISHED = "\ufffd"
"""Stands at the end of a text for bytes that are not a whole character yet, and for bytes that can become none."""
_LOCAL_DECODERS = frozenset({"ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"})
"""Decoders under which a token's text depends on its neighbors only: on a run of bytes, and on being the first."""
_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")
_is_local: dict[int, tuple[Any, bool, bool]] = {}
"""By the id of a tokenizer: the tokenizer, whether its decoders are local, and whether some tokens stand for bytes."""


class PrimedStream:
    """A stand-in for `tokenizers.decoders.DecodeStream` that becomes one at its first step."""

    original: Any = None
    """The class that it stands in for."""

    def __init__(self, ids: Sequence[int] | None = None, skip_special_tokens: bool = False) -> None:
        self._ids, self._skips_special = ids, skip_special_tokens

    def step(self, tokenizer: Any, token_id: Any) -> str | None:
        """Return the text that an id completes; None where it completes none."""
        stream = _primed(type(self).original, tokenizer, self._ids, self._skips_special)
        self._ids = None
        vars(self)["step"] = stream.step  # from now on without a call in between
        text: str | None = stream.step(tokenizer, token_id)
        return text


def install() -> str | None:
    """Let vLLM's detokenizers make primed streams. Returns why not, in one line, where this vLLM is not known.

    vLLM looks the class up in `tokenizers.decoders` for each request, so that it can be replaced there.
    """
    import vllm
    from vllm.v1.engine import detokenizer

    decoders = _decoders()
    if decoders.DecodeStream is PrimedStream:
        return None
    source = inspect.getsource(detokenizer.FastIncrementalDetokenizer)
    if hashlib.sha256(source.encode()).hexdigest() not in _KNOWN_DETOKENIZERS:
        known = ", ".join(_KNOWN_DETOKENIZERS.values())
        return (
            f"vLLM {vllm.__version__} makes text of tokens in a way that is not known here (known: {known}): each "
            "request decodes its whole prompt once more, 2 ms of the worker's time at 8,000 tokens"
        )
    PrimedStream.original, decoders.DecodeStream = decoders.DecodeStream, PrimedStream
    return None


def uninstall() -> None:
    """Undo `install`."""
    decoders = _decoders()
    if decoders.DecodeStream is PrimedStream:
        decoders.DecodeStream = PrimedStream.original


def _decoders() -> Any:
    """Return the module in which vLLM looks the class up."""
    import tokenizers.decoders

    return tokenizers.decoders


def _primed(make: Any, tokenizer: Any, ids: Sequence[int] | None, skips_special: bool) -> Any:
    """Return a stream of the class `make` that continues after `ids`."""
    is_local, has_bytes = _locality(tokenizer)
    if not ids or not is_local:
        return make(ids=ids, skip_special_tokens=skips_special)
    text = ""
    for size in _SIZES:
        start = max(0, len(ids) - size)
        while has_bytes and start > 0 and _is_byte(tokenizer, ids[start]):
            start -= 1  # one invalid byte spoils the whole run of bytes that it is in
        for end in range(len(ids), max(start, len(ids) - _MOST_UNFINISHED), -1):
            text = tokenizer.decode(ids[start:end], skip_special_tokens=skips_special)
            if not text.endswith(_UNFINISHED):
                break
        # The first bytes may be the end of a character. Behind any whole character they have no influence.
        if text and not text.endswith(_UNFINISHED):
            stream = make(ids=ids[start:end], skip_special_tokens=skips_special)
            for token_id in ids[end:]:
                stream.step(tokenizer, token_id)
            return stream
    # Either nothing of it is visible, or it ends in so many invalid bytes that no character can begin in them.
    return make(ids=None if text else ids, skip_special_tokens=skips_special)


def _locality(tokenizer: Any) -> tuple[bool, bool]:
    """Return whether the tokenizer's decoders are all local, and whether it has tokens for single bytes."""
    known = _is_local.get(id(tokenizer))
    if known is None:
        kinds = decoder_kinds(tokenizer)
        known = tokenizer, kinds <= _LOCAL_DECODERS, "ByteFallback" in kinds
        _is_local[id(tokenizer)] = known
    return known[1], known[2]


def _is_byte(tokenizer: Any, token_id: int) -> bool:
    return _BYTE_TOKEN.fullmatch(tokenizer.id_to_token(token_id) or "") is not None
