"""What really occurs in a run: tokens sampled, rewards given, rows trained on, weights and gradients, in order."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from smoke.kit import tiny
from smoke.kit.rollout import decoder_of, up_to

if TYPE_CHECKING:
    from smoke.kit.standin import Handover

Tokens = tuple[int, ...]
Weights = dict[str, Any]

# How prompts for evaluation begin, so that nothing else is needed to tell them apart.
EVAL = "eval"


def eval_sets(row: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the data to evaluate on: two in a dictionary where the embedding is tied, else "" for just one."""
    return ("first", "second") if row["embedding"] == "tied" else ("",)


@dataclass
class Generation:
    """The completions that one call of generate() on one rank gave, end token included, and what rewards said of them.

    `step` is the number of steps begun before it, and `micro_batch` that of the micro-batches trained on. `rewards` are
    those of every function for a completion, None as the function gave it. `texts` are the completions, and `tags` the
    column of the data, as the first function saw them; `shown` are both as every other function did. `judged` are the
    texts that a reward model saw, None if there is none. `scores` are the logits after the sampling options, (rows,
    tokens, vocabulary); a stand-in for vLLM gives `logprobs` instead, those of the tokens that it drew.
    """

    step: int
    micro_batch: int
    prompts: list[Tokens]
    completions: list[Tokens]
    rewards: list[list[float | None]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    shown: list[tuple[list[str], list[str]]] = field(default_factory=list)
    judged: list[str] | None = None
    scores: Any = None
    logprobs: list[list[float]] = field(default_factory=list)

    @property
    def evaluates(self) -> bool:
        """Whether the prompts are those of an evaluation."""
        return EVAL in tiny.decode(list(self.prompts[0]))


@dataclass
class Step:
    """One step of the optimizer: the weights before it, the rows of each of its micro-batches, unpadded, and gradients.

    The gradients are those that the optimizer is given, after clipping; with DeepSpeed there are none.
    """

    before: Weights
    passes: list[list[Tokens]] = field(default_factory=list)
    gradients: Weights = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)


@dataclass
class Journal:
    """Everything that occurred on one rank, after `start` steps of an earlier run.

    `last` are the weights at the end, `log` is what the trainer logged, without the `earlier` entries of that run.
    """

    start: int
    earlier: int = 0
    steps: list[Step] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)
    last: Weights = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)

    def after(self, index: int) -> Weights:
        """The weights after the step at this index."""
        return self.steps[index + 1].before if index + 1 < len(self.steps) else self.last

    @property
    def micro_batches(self) -> int:
        """How many have been trained on so far."""
        return sum(len(step.passes) for step in self.steps)


def dataset(count: int, *, conversational: bool, part: str = "train") -> Any:
    """Prompts of different lengths, all different, each with a tag."""
    from datasets import Dataset

    words = ("count", "the", "letters", "of", "this", "line")
    rows = []
    for i in range(count):
        text = f"{part} {i} " + " ".join(words[i % 3 : i % 3 + i % 4])
        rows.append({"prompt": [{"role": "user", "content": text}] if conversational else text, "tag": str(i)})
    return Dataset.from_list(rows)


def prompt_tokens(row: dict[str, Any], opening: str = "") -> Tokens:
    """The tokens of a row's prompt, without a tokenizer: characters, and the chat template written out."""
    prompt = row["prompt"]
    if not isinstance(prompt, str):
        prompt = "".join(f"{tiny.SPECIAL[2]}{m['role']}\n{m['content']}{tiny.SPECIAL[3]}\n" for m in prompt)
        prompt += f"{tiny.SPECIAL[2]}assistant\n{opening}"
    return tokens_of(prompt)


@functools.cache
def tokens_of(prompt: str) -> Tokens:
    """The tokens of a text."""
    tokens = []
    while prompt:
        token = next(token for token in tiny.VOCABULARY if prompt.startswith(token))
        tokens.append(tiny.VOCABULARY.index(token))
        prompt = prompt[len(token) :]
    return tuple(tokens)


def record(
    trainer: Any, snapshot: Callable[[Any], Weights], start: int = 0, handover: Handover | None = None
) -> Journal:
    """A journal of what the trainer does from now on; call `finish` at the end."""
    from transformers import TrainerCallback

    journal = Journal(start)
    model = trainer.model
    # On the objects themselves, where the trainer looks them up: the classes also serve other models.
    model.generate = functools.partial(_generate, journal, model.generate)
    if handover is not None:
        handover.note = functools.partial(_sampled_elsewhere, journal)
    decoder_of(model).register_forward_pre_hook(functools.partial(_before_forward, journal), with_kwargs=True)
    training_step = trainer.training_step

    def note_loss(*args: Any, **kwargs: Any) -> Any:
        loss = training_step(*args, **kwargs)
        journal.steps[-1].losses.append(loss.item())
        return loss

    trainer.training_step = note_loss

    class Note(TrainerCallback):
        def on_train_begin(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
            journal.earlier = len(state.log_history)

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            journal.steps.append(Step(snapshot(model)))

        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            journal.steps[-1].gradients = {
                name: p.grad.detach().cpu().clone() for name, p in model.named_parameters() if p.grad is not None
            }

    trainer.add_callback(Note())
    return journal


def finish(journal: Journal, trainer: Any, functions: Sequence[Any], snapshot: Callable[[Any], Weights]) -> Journal:
    """Complete the journal of a run that has ended: the last weights, the log, and what the rewards were."""
    journal.last = snapshot(trainer.model)
    journal.log = trainer.state.log_history[journal.earlier :]
    for calls in zip(*(function.calls for function in functions), strict=True):
        generation = next(generation for generation in journal.generations if not generation.rewards)
        generation.tags, generation.texts, _ = calls[0]
        generation.shown = [(tags, texts) for tags, texts, _ in calls[1:] if tags is not None]
        generation.judged = next((texts for tags, texts, _ in calls if tags is None), None)
        generation.rewards = [list(row) for row in zip(*(results for _, _, results in calls), strict=True)]
    for function in functions:
        function.calls.clear()
    return journal


def _generate(journal: Journal, generate: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    import torch

    config = copy.deepcopy(kwargs["generation_config"])
    config.return_dict_in_generate = config.output_scores = True
    result = generate(*args, **{**kwargs, "generation_config": config})
    ids = args[0] if args else kwargs["input_ids"]
    kept = kwargs["attention_mask"].bool()
    end = tiny.VOCABULARY.index(tiny.SPECIAL[1])
    journal.generations.append(
        Generation(
            step=len(journal.steps),
            micro_batch=journal.micro_batches,
            prompts=[tuple(row[keep].tolist()) for row, keep in zip(ids, kept, strict=True)],
            completions=[tuple(up_to(row, end)) for row in result.sequences[:, ids.shape[1] :].tolist()],
            scores=torch.stack(result.scores, dim=1).double().cpu(),
        )
    )
    return result.sequences


def _sampled_elsewhere(journal: Journal, generation: Generation) -> None:
    generation.step, generation.micro_batch = len(journal.steps), journal.micro_batches
    journal.generations.append(generation)


def _before_forward(journal: Journal, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    import torch

    if torch.is_grad_enabled() and journal.steps:
        ids = args[0] if args else kwargs["input_ids"]
        rows = [tuple(row[keep].tolist()) for row, keep in zip(ids, kwargs["attention_mask"].bool(), strict=True)]
        journal.steps[-1].passes.append(rows)
