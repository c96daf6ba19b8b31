"""The words of a suite: what may be measured, which measures are times, ratios or rewards, and the conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from harness.methods.parameters import parameter_names

Measure = Literal[
    "accuracy",
    "answer_tokens",
    "draft_quality",
    "draft_steps",
    "drafting_share",
    "drafts_chosen_right",
    "drafts_rejected_right",
    "emitted_tokens",
    "emitted_tokens_per_wall_second",
    "fallback_rate",
    "latency_saved",
    "latency_saved_seconds",
    "latency_seconds",
    "longest_draft_tokens",
    "mean_score",
    "pass_at_10",
    "pass_at_2",
    "pass_at_5",
    "ratio_of_means",
    "reflection_in_drafts",
    "reflection_in_fallbacks",
    "score_at_reward_0",
    "score_at_reward_1",
    "score_at_reward_2",
    "score_at_reward_3",
    "score_at_reward_4",
    "score_at_reward_5",
    "score_at_reward_6",
    "score_at_reward_7",
    "score_at_reward_8",
    "score_at_reward_9",
    "score_reward_correlation",
    "selected_quality",
    "selection_share",
    "speed_up",
    "target_share",
    "target_thinking_tokens",
    "thinking_tokens",
    "thought_tokens_per_second",
    "tokens_per_second",
    "wall_seconds",
    "wall_speed_up",
]
"""What warehouse/measures.py can measure of a run; a test compares the two lists."""
TIMES: frozenset[Measure] = frozenset(
    {
        "drafting_share",
        "emitted_tokens_per_wall_second",
        "latency_saved",
        "latency_saved_seconds",
        "latency_seconds",
        "ratio_of_means",
        "selection_share",
        "speed_up",
        "target_share",
        "thought_tokens_per_second",
        "tokens_per_second",
        "wall_seconds",
        "wall_speed_up",
    }
)
"""Measures that depend on the machine and on the samples in flight."""
RATIOS: frozenset[Measure] = frozenset(
    {"latency_saved", "latency_saved_seconds", "ratio_of_means", "speed_up", "wall_speed_up"}
)
"""Measures against the run of a baseline in the same column."""
OF_LATENCIES: frozenset[Measure] = frozenset(
    {"latency_saved", "latency_saved_seconds", "latency_seconds", "ratio_of_means", "speed_up"}
)
"""Measures of the latency of a sample."""
OF_THOUGHT: Mapping[Measure, Measure] = {
    "emitted_tokens": "thinking_tokens",
    "tokens_per_second": "thought_tokens_per_second",
}
"""What measures the thought alone as a measure does the whole sample; for latencies that is SCoT's stopwatch."""
OF_REWARDS: frozenset[Measure] = frozenset(
    {
        "draft_quality",
        "score_at_reward_0",
        "score_at_reward_1",
        "score_at_reward_2",
        "score_at_reward_3",
        "score_at_reward_4",
        "score_at_reward_5",
        "score_at_reward_6",
        "score_at_reward_7",
        "score_at_reward_8",
        "score_at_reward_9",
        "score_reward_correlation",
        "selected_quality",
    }
)
"""Measures that need the scores of a process reward model (python -m jobs score)."""
Stopwatch = Literal["measured", "scot", "specreason"]
"""Definitions of latency of the view `stopwatch` that the papers of the suites use."""


OF_GRADED_DRAFTS: frozenset[Measure] = frozenset({"drafts_chosen_right", "drafts_rejected_right"})
"""Measures that need the grades of the stored drafts (warehouse/candidates.py)."""


CONDITIONS: frozenset[str] = frozenset(
    {
        "concurrency",
        "devices",
        "draft",
        "draft-tensor-parallel",
        "engine",
        "placement",
        "problems",
        "prompts",
        "samples",
        "spec-decode",
        "spec-tokens",
        "target",
        "target-tensor-parallel",
        "temperature",
        "token-budget",
        "top-p",
        *(name.replace("_", "-") for name in parameter_names()),
    }
)
"""What a run's result depends on, as the suites name it: the launcher's flags. `problems`: how many and which."""
