"""The whole training of the demo's pair: layers that solve, the draft cut from them, its mistakes, layers that judge
these, and depth; results and card.

Every part leaves its state in a folder and is skipped or resumed by the next start.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from transformers import LlamaForCausalLM

from harness import prompts
from harness.demo_pair import demo_set, network, pupil, results, vocabulary
from harness.demo_pair.batches import Batches
from harness.demo_pair.card import write_card
from harness.demo_pair.config import Config, Study
from harness.demo_pair.lessons import Teacher
from harness.demo_pair.mistakes import Mistakes
from harness.demo_pair.network import Learner, Readers
from harness.demo_pair.stories import Story
from harness.demo_pair.study import Course

_MISTAKES_AT_ONCE = 512
_LOOKED_AT = 60
"""Checked problems between two parts."""


class OtherTraining(RuntimeError):
    """The folder holds a training of another configuration, wording or code; the message is one line."""


class Training:
    """One training in its folder."""

    def __init__(self, config: Config, folder: Path, device: str, tell: Callable[[str], None]) -> None:
        self._config, self._folder, self._device, self._tell = config, folder, device, tell
        self._state = folder / "state"
        self._lock = FileLock(folder / ".lock", timeout=0)
        self._taught: list[Story] = []
        self._mistakes = Mistakes()

    def run(self) -> None:
        """Train, or go on; leaves draft/, target/, results.json and MODEL_CARD.md. Raises OtherTraining."""
        self._state.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout as busy:
            raise OtherTraining(f"{self._folder}: another training is at work in it") from busy
        with self._lock:
            self._claim()
            self._tokenizer = vocabulary.build(self._state / "tokenizer")
            self._taught = demo_set.taught(self._config)
            solver, draft = self._solved()
            self._publish("draft", draft)
            dice = random.Random(self._config.seed)
            some = self._taught[: self._config.mistakes.stories]
            asked = [(story, [dice.randrange(len(story.steps))]) for story in some]
            self._mistakes = self._made_by(draft, asked, "mistakes")
            self._publish("target", self._target(solver))
            found = self._results()
            (self._folder / "results.json").write_text(json.dumps(found, indent=2) + "\n")
            write_card(self._folder, self._config, found)
            self._tell(f"{self._folder}: draft/, target/, MODEL_CARD.md")

    def _claim(self) -> None:
        """A state is gone on with only under what it was begun with."""
        code = sorted(Path(__file__).parent.glob("*.py"))
        parts = [self._config.model_dump_json(), prompts.prompt_hash(), *(path.read_text() for path in code)]
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
        kept = self._state / "digest"
        if not kept.exists():
            kept.write_text(digest)
        elif kept.read_text() != digest:
            raise OtherTraining(
                f"{self._folder} holds a training of another configuration, wording or code: choose another --out"
            )

    def _solved(self) -> tuple[LlamaForCausalLM, LlamaForCausalLM]:
        """The layers that solve, and the draft, which begins as the first of them."""
        draft, depth = self._config.draft, self._config.target.solver_layers
        learner = self._learner(self._new(depth), exits=[draft.exit])
        learner.exit_weight = draft.exit_weight
        solver = self._studied("solve", self._config.target.solve, learner)
        cut = network.cut(learner, draft.layers).to(self._device)
        return solver, self._studied("draft", draft.alone, self._learner(cut))

    def _target(self, solver: LlamaForCausalLM) -> LlamaForCausalLM:
        config, seed = self._config.target, self._config.seed
        depth = config.solver_layers
        judge = network.deepened(solver, depth + config.judge_layers, seed + 2).to(self._device)
        learner = self._learner(judge)
        learner.judges = learner.frozen = True
        judge = self._studied("judge", config.judge, learner)
        elder = self._copy(judge)
        learner.model = network.deepened(judge, config.layers, seed + 3).to(self._device)
        learner.elder, learner.digits = elder, prompts.score_question(self._tokenizer).option_ids
        return self._studied("refine", config.refine, learner)

    def _new(self, layers: int) -> LlamaForCausalLM:
        size, end = vocabulary.size(self._state / "tokenizer"), self._tokenizer.eos_token_id
        assert end is not None
        return network.new(self._config.shape, layers, size, end, self._config.seed).to(self._device)

    def _learner(self, model: LlamaForCausalLM, exits: Sequence[int] = ()) -> Learner:
        torch.manual_seed(self._config.seed)
        readers = Readers(model.config.hidden_size, model.config.vocab_size, exits)
        readers.modules.to(self._device)
        return Learner(model, readers, self._config.target.solver_layers)

    def _studied(self, name: str, study: Study, learner: Learner) -> LlamaForCausalLM:
        """The model behind a study; a copy, because its layers are compiled for the study's shapes."""
        teacher = Teacher(self._tokenizer, self._taught, self._mistakes, study.shares, self._config.seed)
        end = self._tokenizer.eos_token_id
        assert end is not None
        batches = Batches(teacher, study.batch_tokens, learner.model.config.vocab_size, end, self._device)
        Course(name, study, learner, batches, self._state / f"{name}.pt").run(self._tell)
        model = self._copy(learner.model)
        self._look(name, model)
        return model

    def _look(self, name: str, model: LlamaForCausalLM) -> None:
        some = demo_set.checked(self._config)[:_LOOKED_AT]
        solved = results.greedy(model, self._tokenizer, some)
        self._tell(f"{name}: solves {100 * solved:.0f} % of {len(some)} checked problems")

    def _copy(self, model: LlamaForCausalLM) -> LlamaForCausalLM:
        copy = LlamaForCausalLM(model.config).to(self._device)
        copy.load_state_dict(model.state_dict())
        return copy.eval()

    def _made_by(self, draft: LlamaForCausalLM, asked: list[tuple[Story, list[int]]], name: str) -> Mistakes:
        """The draft's mistakes at these steps of these stories."""
        path = self._state / f"{name}.json"
        if path.exists():
            return Mistakes.load(path)
        config, found = self._config.mistakes, Mistakes()
        for start in range(0, len(asked), _MISTAKES_AT_ONCE):
            some = asked[start : start + _MISTAKES_AT_ONCE]
            steps = [(story, number) for story, numbers in some for number in numbers]
            proposed = iter(
                pupil.propose(
                    draft, self._tokenizer, steps, n=config.samples, temperature=config.temperature, seed=start
                )
            )
            for story, numbers in some:
                found.add(story, {number: next(proposed) for number in numbers})
            self._tell(f"{name}: of {len(found)} of {len(asked)} stories")
        found.save(path)
        return found

    def _publish(self, role: str, model: LlamaForCausalLM) -> None:
        network.save(model, self._folder / role)
        vocabulary.build(self._folder / role)

    def _results(self) -> dict[str, Any]:
        """Of the stored weights."""
        asked, seed = demo_set.checked(self._config), self._config.seed
        models = {
            role: LlamaForCausalLM.from_pretrained(self._folder / role, dtype=torch.float32).to(self._device).eval()
            for role in ("draft", "target")
        }
        found: dict[str, Any] = {}
        for role, model in models.items():
            found[role] = {
                "parameters": network.parameters(model),
                "layers": model.config.num_hidden_layers,
                "checked": asdict(results.accuracy(model, self._tokenizer, asked, seed)),
                "demo": asdict(results.accuracy(model, self._tokenizer, demo_set.demo(), seed)),
            }
        every = [(story, list(range(len(story.steps)))) for story in asked]
        mistakes = self._made_by(models["draft"], every, "checked_mistakes")
        found["verdicts"] = asdict(results.verdicts(models["target"], self._tokenizer, asked, mistakes, seed))
        return found
