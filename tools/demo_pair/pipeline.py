"""The whole training of the demo's pair, stage by stage, with evaluation and model card.

Stages: the solver's layers; the draft, which is cut from them or from a former draft; sampling of the draft's mistakes
and of step values; the target's judge layers, trained on both; further layers for depth; the reward model.
Every stage saves its state in the output folder, and the next start skips or resumes it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from filelock import FileLock, Timeout
from transformers import LlamaForCausalLM

from harness import prompts
from harness.prompts import demo_prompts
from harness.weights import models
from tools.demo_pair import evaluation, network, rollouts, splits, vocabulary
from tools.demo_pair.batches import Batches
from tools.demo_pair.config import Config, Stage
from tools.demo_pair.examples import Curriculum
from tools.demo_pair.former import FormerPair, WrongFormerPair
from tools.demo_pair.mistakes import Mistakes
from tools.demo_pair.model_card import write_card
from tools.demo_pair.network import AuxiliaryHeads, Learner
from tools.demo_pair.results import evaluated
from tools.demo_pair.stories import Story
from tools.demo_pair.trainer import Trainer
from tools.demo_pair.values import Values

_MISTAKE_BATCH = 600
"""Number of stories whose mistakes are sampled at once."""
_QUICK_CHECK_PROBLEMS = 60
"""Number of held-out problems for the quick evaluation after each stage."""


_REWARD_WEIGHT = 3.0
"""Weight of the reward model's verdict loss; it is high because only one token in a hundred is a verdict."""
_PAIR = ("draft", "target")


class TrainingRefused(RuntimeError):
    """The folder is in use, or has the state of a different training; the message is one line."""


class Training:
    """A training run with its output folder."""

    def __init__(
        self,
        config: Config,
        folder: Path,
        device: str,
        report: Callable[[str], None],
        pair: Path | None = None,
        former: Path | None = None,
    ) -> None:
        """`report` is called with lines about the progress.

        `pair` is a folder with a trained draft/ and target/, for which only a reward model is trained; `former` is a
        folder with the pair that `config.former` describes. Raises TrainingRefused if it is a different pair.
        """
        try:
            self._former = None if config.former is None or pair else FormerPair(config.former, former)
        except WrongFormerPair as wrong:
            raise TrainingRefused(str(wrong)) from wrong
        self._config, self._folder, self._device, self._report = config, folder, device, report
        self._pair = pair
        self._state = folder / "state"
        self._lock = FileLock(folder / ".lock", timeout=0)
        self._stories: list[Story] = []
        self._mistakes = Mistakes()
        self._values = Values()

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
                    draft, self._stories[: self._config.mistakes.stories], "mistakes"
                )
                self._values = self._estimated_values(solver)
                self._publish("target", self._train_target(solver))
            else:
                self._copy_pair(self._pair)
            self._publish("reward", self._train_reward(self._published("target"), self._published("draft")))
            self._report("evaluation")
            problems = splits.held_out_stories(self._config)
            mistakes = self._sampled_mistakes(self._published("draft"), problems, "checked_mistakes")
            draft, target, reward = map(self._published, ("draft", "target", "reward"))
            results = evaluated(draft, target, reward, self._tokenizer, problems, mistakes, self._config.seed)
            (self._folder / "results.json").write_text(json.dumps(results, indent=2) + "\n")
            write_card(self._folder, self._config, results)
            self._report(f"{self._folder}: draft/, target/, reward/, MODEL_CARD.md")

    def _copy_pair(self, pair: Path) -> None:
        """Copy a trained pair into the folder. Raises TrainingRefused if its vocabulary does not match the prompts."""
        expected = (self._state / "tokenizer" / "tokenizer.json").read_bytes()
        for role in _PAIR:
            if (pair / role / "tokenizer.json").read_bytes() != expected:
                raise TrainingRefused(f"{pair}: the {role} was trained with other prompts; train the pair again")
            shutil.copytree(pair / role, self._folder / role, dirs_exist_ok=True)

    def _claim(self) -> None:
        """Raise TrainingRefused if the saved state is from a different configuration, prompts or code version."""
        code = sorted(Path(__file__).parent.glob("*.py"))
        parts = [
            self._config.model_dump_json(),
            prompts.prompt_hash(),
            prompts.prompt_hash(demo_prompts()),
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
                f"{self._folder}: the training was started with another configuration, other prompts or another "
                "version of tools/demo_pair and cannot be resumed; choose another --out"
            )

    def _train_solver_and_draft(self) -> tuple[LlamaForCausalLM, LlamaForCausalLM]:
        """Return the solver's layers, and the draft, which starts from the first of them or from the former draft."""
        draft, depth, solve = self._config.draft, self._config.target.solver_layers, self._config.target.solve
        if self._former is None:
            assert solve is not None
            learner = self._learner(self._new(depth), exits=[draft.exit])
            learner.exit_weight = draft.exit_weight
            solver = self._train_stage("solve", solve, learner)
            begun = network.truncated(learner, draft.layers)
        else:
            solver = network.first_layers(self._former.load("target"), depth).to(self._device).eval()
            if solve is not None:
                solver = self._train_stage("solve", solve, self._learner(solver))
            begun = network.first_layers(self._former.load("draft"), draft.layers)
        begun = begun.to(self._device)
        return solver, self._train_stage("draft", draft.alone, self._learner(begun)) if draft.alone else begun.eval()

    def _train_target(self, solver: LlamaForCausalLM) -> LlamaForCausalLM:
        config, seed = self._config.target, self._config.seed
        depth = config.solver_layers
        if self._former is None:
            judge = network.with_more_layers(solver, depth + config.judge_layers, seed + 2)
        else:
            former = network.first_layers(self._former.load("target"), depth + config.judge_layers)
            judge = network.with_solver(former, solver)
        learner = self._learner(judge.to(self._device))
        learner.is_judge = learner.is_solver_frozen = True
        learner.verdict_weight = config.verdict_weight
        judge = self._train_stage("judge", config.judge, learner)
        teacher = self._copy(judge)
        learner.model = network.with_more_layers(judge, config.layers, seed + 3).to(self._device)
        learner.teacher, learner.digit_ids = teacher, prompts.score_question(self._tokenizer).option_ids
        return self._train_stage("refine", config.refine, learner)

    def _train_reward(self, target: LlamaForCausalLM, draft: LlamaForCausalLM) -> LlamaForCausalLM:
        config = self._config.reward
        known = self._mistakes.first(config.stories)
        self._mistakes = known or self._sampled_mistakes(draft, self._stories[: config.stories], "mistakes")
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
        """Return a copy of the model after a stage. The trained model itself is compiled for the stage's shapes."""
        curriculum = Curriculum(
            *(self._tokenizer, self._stories, self._mistakes, stage.shares),
            *(self._config.seed + stage.seed, stage.levels, self._values),
        )
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

    def _sampled_mistakes(self, draft: LlamaForCausalLM, stories: Sequence[Story], name: str) -> Mistakes:
        """Return the draft's mistakes at every step of these stories, from the file called `name` if it exists."""
        path = self._state / f"{name}.json"
        if path.exists():
            return Mistakes.load(path)
        mistakes, temperatures = Mistakes(), self._config.mistakes.temperatures
        for start in range(0, len(stories), _MISTAKE_BATCH):
            batch = stories[start : start + _MISTAKE_BATCH]
            written = rollouts.sampled_mistakes(draft, self._tokenizer, batch, temperatures, start)
            for story, texts in zip(batch, written, strict=True):
                mistakes.add(story, texts)
            self._report(f"{name}: {len(mistakes)} of {len(stories)} stories")
        mistakes.save(path)
        return mistakes

    def _estimated_values(self, solver: LlamaForCausalLM) -> Values:
        """Return the values of steps, from their file if it exists."""
        path, config = self._state / "values.json", self._config.rollouts
        if path.exists():
            return Values.load(path)
        values = rollouts.estimated_values(
            *(solver, self._tokenizer, self._stories[: config.stories], self._mistakes),
            *(config.mistakes, config.samples, config.temperature, self._config.seed),
        )
        self._report(f"values: wrong steps of the draft end right in {100 * values.mean_wrong:.0f} % of the rollouts")
        values.save(path)
        return values

    def _publish(self, role: str, model: LlamaForCausalLM) -> None:
        network.save(model, self._folder / role)
        vocabulary.build(self._folder / role)

    def _published(self, role: str) -> LlamaForCausalLM:
        """Return a model of the output folder with its stored weights, in float32."""
        return LlamaForCausalLM.from_pretrained(self._folder / role, dtype=torch.float32).to(self._device).eval()


def _model_folder(pair: Path, role: str) -> Path:
    """Return the folder of a trained model. Raises TrainingRefused if it does not exist."""
    folder = pair / role
    if not all((folder / name).is_file() for name in ("config.json", "tokenizer.json", "model.safetensors")):
        raise TrainingRefused(f"{pair} has no {role}/ with a model; valid: the --out folder of a training")
    return folder
