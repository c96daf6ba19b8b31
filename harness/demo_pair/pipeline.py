"""The whole training of the demo's pair, stage by stage, with evaluation and model card.

Stages: the solver's layers; the draft, which is cut from them; sampling of the draft's mistakes; the target's judge
layers, trained on these mistakes; further layers for depth; the reward model. Every stage saves its state in the output
folder, and the next start skips or resumes it.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from transformers import LlamaForCausalLM

from harness import prompts
from harness.demo_pair import evaluation, inference, network, reward_evaluation, splits, vocabulary
from harness.demo_pair.batches import Batches
from harness.demo_pair.config import Config, Stage
from harness.demo_pair.examples import Curriculum
from harness.demo_pair.mistakes import Mistakes
from harness.demo_pair.model_card import write_card
from harness.demo_pair.network import AuxiliaryHeads, Learner
from harness.demo_pair.stories import Story
from harness.demo_pair.trainer import Trainer
from harness.weights import models

_MISTAKE_BATCH = 512
_QUICK_CHECK_PROBLEMS = 60
"""Held-out problems for the quick evaluation after each stage."""


_REWARD_WEIGHT = 3.0
"""Weight of the loss of the reward model's verdicts: there is one in a hundred tokens."""
_PAIR = ("draft", "target")


class TrainingRefused(RuntimeError):
    """The folder is in use, or has the state of a different training; the message is one line."""


class Training:
    """A training with its output folder."""

    def __init__(
        self, config: Config, folder: Path, device: str, report: Callable[[str], None], pair: Path | None = None
    ) -> None:
        """`report` receives lines about the progress.

        `pair` is a folder with a trained draft/ and target/, for which only a reward model is trained.
        """
        self._config, self._folder, self._device, self._report = config, folder, device, report
        self._pair = pair
        self._state = folder / "state"
        self._lock = FileLock(folder / ".lock", timeout=0)
        self._stories: list[Story] = []
        self._mistakes = Mistakes()

    def run(self) -> None:
        """Train or resume; writes draft/, target/, reward/, results.json and MODEL_CARD.md. Raises TrainingRefused."""
        self._state.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout as busy:
            raise TrainingRefused(f"{self._folder}: another training is running in this folder") from busy
        with self._lock:
            self._claim()
            self._tokenizer = vocabulary.build(self._state / "tokenizer")
            self._stories = splits.training_stories(self._config)
            if self._pair is None:
                solver, draft = self._train_solver_and_draft()
                self._publish("draft", draft)
                self._mistakes = self._sampled_mistakes(
                    draft, self._some_steps(self._config.mistakes.stories), "mistakes"
                )
                self._publish("target", self._train_target(solver))
            else:
                self._copy_pair(self._pair)
            self._publish("reward", self._train_reward(self._published("target"), self._published("draft")))
            results = self._evaluate()
            (self._folder / "results.json").write_text(json.dumps(results, indent=2) + "\n")
            write_card(self._folder, self._config, results)
            self._report(f"{self._folder}: draft/, target/, reward/, MODEL_CARD.md")

    def _copy_pair(self, pair: Path) -> None:
        """Copy a trained pair into the folder. Raises TrainingRefused where its vocabulary is not the prompts'."""
        expected = (self._state / "tokenizer" / "tokenizer.json").read_bytes()
        for role in _PAIR:
            if (pair / role / "tokenizer.json").read_bytes() != expected:
                raise TrainingRefused(f"{pair}: its {role} was trained with other prompts; train the pair again")
            shutil.copytree(pair / role, self._folder / role, dirs_exist_ok=True)

    def _some_steps(self, stories: int) -> list[tuple[Story, list[int]]]:
        """Return one step of each of the first stories, by its number."""
        rng = random.Random(self._config.seed)
        return [(story, [rng.randrange(len(story.steps))]) for story in self._stories[:stories]]

    def _claim(self) -> None:
        """Refuse to resume a state that another configuration, other prompts or other code began."""
        code = sorted(Path(__file__).parent.glob("*.py"))
        parts = [
            self._config.model_dump_json(),
            prompts.prompt_hash(asks_reward=True),
            *(path.read_text() for path in code),
        ]
        if self._pair is not None:
            parts += [models.folder_fingerprint(_model_folder(self._pair, role)) for role in _PAIR]
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
        digest_file = self._state / "digest"
        if not digest_file.exists():
            digest_file.write_text(digest)
        elif digest_file.read_text() != digest:
            raise TrainingRefused(
                f"{self._folder} has a training that was begun with another configuration, other prompts or another "
                "version of harness/demo_pair, and cannot be resumed: give another --out"
            )

    def _train_solver_and_draft(self) -> tuple[LlamaForCausalLM, LlamaForCausalLM]:
        """Return the solver's layers, and the draft, which starts from the first of them."""
        draft, depth = self._config.draft, self._config.target.solver_layers
        learner = self._learner(self._new(depth), exits=[draft.exit])
        learner.exit_weight = draft.exit_weight
        solver = self._train_stage("solve", self._config.target.solve, learner)
        first_layers = network.truncated(learner, draft.layers).to(self._device)
        return solver, self._train_stage("draft", draft.alone, self._learner(first_layers))

    def _train_target(self, solver: LlamaForCausalLM) -> LlamaForCausalLM:
        config, seed = self._config.target, self._config.seed
        depth = config.solver_layers
        judge = network.with_more_layers(solver, depth + config.judge_layers, seed + 2).to(self._device)
        learner = self._learner(judge)
        learner.is_judge = learner.is_solver_frozen = True
        judge = self._train_stage("judge", config.judge, learner)
        teacher = self._copy(judge)
        learner.model = network.with_more_layers(judge, config.layers, seed + 3).to(self._device)
        learner.teacher, learner.digit_ids = teacher, prompts.score_question(self._tokenizer).option_ids
        return self._train_stage("refine", config.refine, learner)

    def _train_reward(self, target: LlamaForCausalLM, draft: LlamaForCausalLM) -> LlamaForCausalLM:
        config = self._config.reward
        known = self._mistakes.first(config.stories)
        self._mistakes = known or self._sampled_mistakes(draft, self._some_steps(config.stories), "mistakes")
        learner = self._learner(network.with_layers(target, [*config.solver, *config.judges]).to(self._device))
        learner.is_judge, learner.is_solver_frozen, learner.writes = True, True, False
        learner.solver_layers, learner.judge_heads = len(config.solver), network.REWARD_HEADS
        learner.verdict_weight = _REWARD_WEIGHT
        return self._train_stage("reward", config.judge, learner)

    def _new(self, layers: int) -> LlamaForCausalLM:
        size, end = vocabulary.size(self._state / "tokenizer"), self._tokenizer.eos_token_id
        assert end is not None
        return network.new_model(self._config.shape, layers, size, end, self._config.seed).to(self._device)

    def _learner(self, model: LlamaForCausalLM, exits: Sequence[int] = ()) -> Learner:
        torch.manual_seed(self._config.seed)
        heads = AuxiliaryHeads(model.config.hidden_size, model.config.vocab_size, exits)
        heads.modules.to(self._device)
        return Learner(model, heads, self._config.target.solver_layers)

    def _train_stage(self, name: str, stage: Stage, learner: Learner) -> LlamaForCausalLM:
        """Return the model after a stage; a copy, because its layers are compiled for the stage's shapes."""
        curriculum = Curriculum(self._tokenizer, self._stories, self._mistakes, stage.shares, self._config.seed)
        batches = self._batches(curriculum, stage)
        Trainer(name, stage, learner, batches, self._state / f"{name}.pt").run(self._report)
        model = self._copy(learner.model)
        if learner.writes:
            self._quick_check(name, model)
        return model

    def _batches(self, curriculum: Curriculum, stage: Stage) -> Batches:
        end = self._tokenizer.eos_token_id
        assert end is not None
        return Batches(curriculum, stage.batch_tokens, vocabulary.size(self._state / "tokenizer"), end, self._device)

    def _quick_check(self, name: str, model: LlamaForCausalLM) -> None:
        problems = splits.held_out_stories(self._config)[:_QUICK_CHECK_PROBLEMS]
        accuracy = evaluation.greedy_accuracy(model, self._tokenizer, problems)
        self._report(f"{name}: solves {100 * accuracy:.0f} % of {len(problems)} held-out problems")

    def _copy(self, model: LlamaForCausalLM) -> LlamaForCausalLM:
        copy = LlamaForCausalLM(model.config).to(self._device)
        copy.load_state_dict(model.state_dict())
        return copy.eval()

    def _sampled_mistakes(
        self, draft: LlamaForCausalLM, steps_by_story: list[tuple[Story, list[int]]], name: str
    ) -> Mistakes:
        """Return the draft's mistakes at these steps of these stories, from the file of that name if it exists."""
        path = self._state / f"{name}.json"
        if path.exists():
            return Mistakes.load(path)
        config, mistakes = self._config.mistakes, Mistakes()
        for start in range(0, len(steps_by_story), _MISTAKE_BATCH):
            batch = steps_by_story[start : start + _MISTAKE_BATCH]
            steps = [(story, number) for story, numbers in batch for number in numbers]
            proposals = iter(
                inference.propose(
                    draft, self._tokenizer, steps, n=config.samples, temperature=config.temperature, seed=start
                )
            )
            for story, numbers in batch:
                mistakes.add(story, {number: next(proposals) for number in numbers})
            self._report(f"{name}: {len(mistakes)} of {len(steps_by_story)} stories")
        mistakes.save(path)
        return mistakes

    def _publish(self, role: str, model: LlamaForCausalLM) -> None:
        network.save(model, self._folder / role)
        vocabulary.build(self._folder / role)

    def _evaluate(self) -> dict[str, Any]:
        """Return the evaluation of the stored weights, as results.json has it."""
        problems, seed = splits.held_out_stories(self._config), self._config.seed
        draft, target, reward = map(self._published, ("draft", "target", "reward"))
        results: dict[str, Any] = {}
        for role, model in (("draft", draft), ("target", target)):
            results[role] = {
                "parameters": network.parameter_count(model),
                "layers": model.config.num_hidden_layers,
                "checked": asdict(evaluation.accuracy(model, self._tokenizer, problems, seed)),
                "demo": asdict(evaluation.accuracy(model, self._tokenizer, splits.demo_stories(), seed)),
            }
        every_step = [(story, list(range(len(story.steps)))) for story in problems]
        mistakes = self._sampled_mistakes(draft, every_step, "checked_mistakes")
        verdicts = evaluation.verdict_quality(target, self._tokenizer, problems, mistakes, seed)
        results["verdicts"] = asdict(verdicts)
        judged = reward_evaluation.judged_steps(
            reward, draft, self._tokenizer, problems[: reward_evaluation.PROBLEMS], seed
        )
        results["reward"] = {
            "parameters": network.parameter_count(reward),
            "layers": reward.config.num_hidden_layers,
            **asdict(reward_evaluation.reward_quality(judged)),
        }
        return results

    def _published(self, role: str) -> LlamaForCausalLM:
        """Return a model of the folder as it is stored, in float32."""
        return LlamaForCausalLM.from_pretrained(self._folder / role, dtype=torch.float32).to(self._device).eval()


def _model_folder(pair: Path, role: str) -> Path:
    """Return the folder of a trained model. Raises TrainingRefused where there is none."""
    folder = pair / role
    if not all((folder / name).is_file() for name in ("config.json", "tokenizer.json", "model.safetensors")):
        raise TrainingRefused(f"{pair} has no {role}/ with a model; valid: the --out folder of a training")
    return folder
