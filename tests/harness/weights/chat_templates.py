"""Chat templates in the manner of known families, and what each sends; all written for these tests, as short as can be.

`opening` is the prompt of a chain about the question Q, `following` the text between a reply and the answer to a second
question Q. A `refusal` is a part of the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    """A template under variables of its own, and what it sends."""

    name: str
    template: str
    opening: str = ""
    following: str = ""
    thinks: bool = False
    variables: Mapping[str, object] = field(default_factory=dict)
    tags: str | None = None
    refusal: str = ""


DATE = "2026-03-01"
_ADDED = "{% if add_generation_prompt %}"
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
PLAIN = CHATML + _ADDED + "<|im_start|>assistant\n{% endif %}"
_USER, _REPLY = "<|im_start|>user\nQ<|im_end|>\n", "<|im_start|>assistant\n"
_AGAIN = "<|im_end|>\n" + _USER + _REPLY

_DEEPSEEK = (
    "<|begin|>{% for m in messages %}{% if m.role == 'user' %}<|User|>{{ m.content }}{% else %}<|Assistant|>"
    "%s{{ m.content.split('</think>')[-1] }}<|close|>{% endif %}{% endfor %}" + _ADDED + "<|Assistant|>%s{% endif %}"
)
R1 = _DEEPSEEK.replace("%s", "", 1).replace("%s", "<think>\n")
V31 = _DEEPSEEK.replace("%s", "</think>", 1).replace("%s", "{% if thinking %}<think>{% else %}</think>{% endif %}")
_OFF = "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
_STRIPS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
    "{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
)
QWEN3_INSTRUCT = _STRIPS + _ADDED + "<|im_start|>assistant\n{% endif %}"
QWEN3 = _STRIPS + _ADDED + "<|im_start|>assistant\n" + _OFF + "{% endif %}"
GPT_OSS = (
    "<|start|>system<|message|>Current date: {{ strftime_now('%Y-%m-%d') }}<|end|>{% for m in messages %}<|start|>"
    "{{ m.role }}{% if m.role == 'assistant' %}<|channel|>final{% endif %}<|message|>{{ m.content }}<|end|>{% endfor %}"
    + _ADDED
    + "<|start|>assistant{% endif %}"
)
SMOLLM3 = (
    "{% if enable_thinking is not defined %}{% set enable_thinking = true %}{% endif %}"
    "{% if messages[0].role == 'system' and '/no_think' in messages[0].content %}{% set enable_thinking = false %}"
    "{% endif %}<|im_start|>system\nToday: {{ strftime_now('%d %B %Y') }}\n{% if messages[0].role == 'system' %}"
    "{{ messages[0].content.replace('/no_think', '') }}{% endif %}<|im_end|>\n{% for m in messages %}"
    "{% if m.role != 'system' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    + _ADDED
    + "<|im_start|>assistant\n{% if not enable_thinking %}<think>\n\n</think>\n{% endif %}{% endif %}"
)
MISTRAL = (
    "<s>{% if messages[0].role == 'system' %}[SYS]{{ messages[0].content }}[/SYS]{% else %}[SYS]Today is "
    "{{ strftime_now('%d-%m-%Y') }}.[/SYS]{% endif %}{% for m in messages %}{% if m.role == 'user' %}[INST]"
    "{{ m.content }}[/INST]{% elif m.role == 'assistant' %}{{ m.content }}</s>{% endif %}{% endfor %}"
)
_SMALL_TODAY = "<s>[SYS]Today is 01-03-2026.[/SYS]"
GEMMA2 = (
    "<bos>{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{% for m in messages %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end_of_turn>\n"
    "{% endfor %}" + _ADDED + "<start_of_turn>model\n{% endif %}"
)
_DAY = "<|start|>system<|message|>Current date: 2026-03-01<|end|>"
_SMOL_DAY = "<|im_start|>system\nToday: 01 March 2026\n<|im_end|>\n"
_FINAL = "<|channel|>final<|message|>"
SENT = (
    Case("plain", PLAIN, _USER + _REPLY, _AGAIN),
    Case(
        "DeepSeek-R1",
        R1,
        "<|begin|><|User|>Q<|Assistant|><think>\n",
        "<|close|><|User|>Q<|Assistant|><think>\n\n</think>\n\n",
        thinks=True,
    ),
    Case("Qwen3", QWEN3, _USER + _REPLY + "<think>\n", _AGAIN + "<think>\n\n</think>\n\n", thinks=True),
    Case(
        "gpt-oss",
        GPT_OSS,
        _DAY + "<|start|>user<|message|>Q<|end|><|start|>assistant<|channel|>analysis<|message|>",
        "<|end|><|start|>user<|message|>Q<|end|><|start|>assistant" + _FINAL,
        thinks=True,
    ),
    Case("SmolLM3", SMOLLM3, _SMOL_DAY + _USER + _REPLY + "<think>\n", _AGAIN + "<think>\n\n</think>\n", thinks=True),
    Case(
        "a thought opened by [THINK]",
        CHATML + _ADDED + "<|im_start|>assistant\n[THINK]\n\n{% endif %}",
        _USER + _REPLY + "[THINK]\n\n",
        _AGAIN + "[THINK]\n\n\n[/THINK]\n\n",
        thinks=True,
    ),
    Case("Mistral Small", MISTRAL, _SMALL_TODAY + "[INST]Q[/INST]", "</s>[INST]Q[/INST]"),
    Case(
        "Magistral, by its tags",
        MISTRAL,
        _SMALL_TODAY + "[INST]Q[/INST][THINK]",
        "</s>[INST]Q[/INST][THINK]\n[/THINK]\n\n",
        thinks=True,
        tags="[THINK],[/THINK]",
    ),
    Case(
        "Command A Reasoning",
        CHATML
        + _ADDED
        + "<|im_start|>assistant\n<|START_THINKING|>{% if reasoning is defined and not reasoning %}<|END_THINKING|>"
        "{% endif %}{% endif %}",
        _USER + _REPLY + "<|START_THINKING|>",
        _AGAIN + "<|START_THINKING|><|END_THINKING|>",
        thinks=True,
    ),
)

_TWO_GENERATIONS = (
    "{% if messages | length > 2 %}<|im_start|>assistant\n<think>\n{% else %}<|im_start|>assistant\n{% endif %}"
)
REFUSED = (
    Case("no assistant turn", CHATML, refusal="adds no reply header: the prompt ends in '<|im_end|>\\n'"),
    Case(
        "a thought begun",
        PLAIN.replace("assistant\n", "assistant\n<think>\nOkay, "),
        refusal="one thinking block, open or closed, found '<|im_start|>assistant\\n<think>\\nOkay, '",
    ),
    Case(
        "the user's header",
        PLAIN.replace("|>assistant\n", "|>user\n"),
        refusal="does not start a reply: it ends in '<|im_start|>user\\n'",
    ),
    Case("no question", PLAIN.replace("{{ m.content }}", "{{ m.text }}"), refusal="0 times"),
    Case(
        "an ending that a generation prompt replaces",
        CHATML + _ADDED + "<|im_start|>assistant\n{% else %}<|end|>{% endif %}",
        refusal="does not append the generation prompt to the dialogue",
    ),
    Case(
        "unknown channels",
        GPT_OSS.replace("<|channel|>final", "<|to|>user"),
        refusal="adds '<|to|>user<|message|>' before a reply: unknown thinking tags",
    ),
    Case(
        "an error",
        PLAIN + "{{ raise_exception('only with tools') }}",
        refusal="cannot render the chat template: only with tools",
    ),
)
REFUSED_TO_FOLLOW = (
    Case(
        "earlier replies dropped",
        PLAIN.replace("{% for m in messages %}", "{% for m in messages if m.role == 'user' %}"),
        refusal="drops earlier replies",
    ),
    Case(
        "another generation prompt behind a reply",
        CHATML + _ADDED + _TWO_GENERATIONS + "{% endif %}",
        refusal="an earlier reply changes the generation prompt, to '<|im_start|>assistant\\n<think>\\n'",
    ),
)
