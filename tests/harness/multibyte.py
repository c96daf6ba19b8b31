"""Text whose characters take several tokens, and tokenizers that cut them in different places."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.harness.conftest import save_tokenizer

TEXT = (
    "Let $x = \\frac{-b \\pm \\sqrt{b^2 - 4ac}}{2a}$; then $\\sum_{i=1}^{n} i^2 = \\tfrac{n(n+1)(2n+1)}{6}$ "
    "— so ∑ ≤ ∞.\n\n"
    "首先，我们把方程两边同时除以二，得到 x² + 3x − 4 = 0。因此 x = 1 或 x = −4。\n\n"
    "🙂🙃 The family 👩‍👩‍👧‍👦 waves 👋🏽, flags 🇩🇪🇯🇵, and 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛 mathematics.\n\n"
    "Ответ: Δ = β² — «да», naïve café, Größe, ﷽, हिन्दी, 한국어, ภาษาไทย. "
    "A replacement character \ufffd stands here\ufffd\ufffd and is real.\n\n\n"
    "   Indented,  double  spaces\tand a tab.\n"
)
_CORPUS = (
    "First we add the numbers, then we check the result. The answer is 42.\n\n",
    "首先我们把方程两边 x = 1 🙂 Größe",
)


def byte_level(folder: Path) -> Any:
    """A byte-level BPE tokenizer of 384 tokens: most characters beyond ASCII are cut into bytes."""
    from tokenizers import Tokenizer

    folder.mkdir(exist_ok=True)
    save_tokenizer(folder)
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def sentence_piece() -> Any:
    """A tokenizer like Llama 2's: words begin with ▁, what has no token is cut into bytes, one space is stripped."""
    from tokenizers import Tokenizer, decoders, models, normalizers, trainers

    backend: Any = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    bytes_and_controls = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=bytes_and_controls, limit_alphabet=60, show_progress=False
    )
    backend.train_from_iterator(_CORPUS * 20, trainer)
    state = json.loads(backend.to_str())
    state["added_tokens"] = state["added_tokens"][:3]  # the bytes are ordinary tokens
    state["model"] |= {"byte_fallback": True, "fuse_unk": True}
    return Tokenizer.from_str(json.dumps(state))
