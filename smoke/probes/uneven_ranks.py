"""Can ranks under ZeRO-3 end their generations at different lengths, with gradient checkpointing on?

Catches the error about tensors of length 1034 and 1035: under ZeRO-3 a rank whose completions have ended continues with
idle passes until the others have ended, because every forward pass gathers parameters from all ranks. Without a cache,
which gradient checkpointing disables, its attention mask grew at each idle pass and its tokens did not ("The size of
tensor a (n) must match the size of tensor b (n+1)").

The policy writes twelve letters, starting with the one after the prompt's last, then ends: every prompt has its own
length, and so does every rank. Trains with the weights gathered for a whole generation, which is the default, then with
weights gathered pass by pass, if TRL has the option. Needs two processes; on GPUs, two of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from smoke.kit import adapter, extremes, grpo, tiny, zero
from smoke.kit.rollout import Recorder
from smoke.probe import Bound, Context, Probe, Reading

RANKS = 2
STEPS = 2
PROMPTS = 2  # of a rank, in a step
GENERATIONS = 2
LETTERS = "abcdefghijkl"
NEW_TOKENS = 14  # more than all letters and the end

PROBE = Probe(
    matters="training stops as soon as one rank's answers are shorter than another's",
    bounds=(
        Bound(
            "wrong_completions",
            "completions trained on by either rank that differ from what the policy writes after the prompt",
            "completions",
            equals=0,
            headline=True,
        ),
        Bound(
            "length_difference",
            "between the longest completions of the ranks, in the step where it is least: 1 to 3 over 12 seeds. When "
            "0, nothing is uneven",
            "tokens",
            at_least=1,
        ),
        Bound("completions", "trained on by both ranks together", equals=RANKS * STEPS * PROMPTS * GENERATIONS),
        Bound(
            "passes_differ",
            "forward passes of generation that one rank made and the other did not: none, or the next gathering of "
            "parameters would wait for ever",
            equals=0,
        ),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/2851",
        "https://github.com/huggingface/trl/issues/2878",
        "https://github.com/huggingface/transformers/pull/34095",
    ),
    needs=("torch", "transformers", "datasets", "trl", "deepspeed"),
    ranks=RANKS,
    gpus=RANKS,
)


def run(context: Context) -> Iterator[Reading]:
    """Train on both ranks, and compare the completions with what the policy writes."""
    import torch.distributed as dist
    from transformers import AutoModelForCausalLM

    directory = context.directory / f"model-{context.rank}"
    _make_policy(context.seed).save_pretrained(directory)
    tiny.make_tokenizer().save_pretrained(directory)
    trainer = grpo.make_trainer(
        context,
        # As an object. From its name, TRL up to 0.15 would load one that has no cache in any mode.
        AutoModelForCausalLM.from_pretrained(directory),
        grpo.Reward(),
        max_steps=STEPS,
        learning_rate=0.0,
        gradient_checkpointing=True,
        max_completion_length=NEW_TOKENS,
        num_generations=GENERATIONS,
        per_device_train_batch_size=adapter.batch_of(PROMPTS * GENERATIONS, GENERATIONS),
        train_dataset=_prompts(),
        **zero.options(context.device),
    )
    _gather_by_pass(trainer, STEPS // 2)
    recorder = Recorder(trainer)
    trainer.train()

    pairs = recorder.pairs()
    wrong = [_describe(*pair) for pair in pairs if pair[1] != _written(pair[0])]
    lengths = [max(map(len, map(_written, generation.prompts))) for generation in recorder.generations]
    passes = [generation.passes for generation in recorder.generations]
    ranks: list[Any] = [None] * RANKS
    dist.all_gather_object(ranks, (len(pairs), wrong, lengths, passes))
    counts, wrongs, lengths_of, passes_of = zip(*ranks, strict=True)
    yield Reading("completions", sum(counts), str(counts))
    yield Reading("wrong_completions", sum(map(len, wrongs)), str(wrongs))
    differences = [abs(first - second) for first, second in zip(*lengths_of, strict=True)]
    yield Reading("length_difference", extremes.smallest(differences), f"of the ranks {lengths_of}")
    differences = [abs(first - second) for first, second in zip(*passes_of, strict=True)]
    yield Reading("passes_differ", sum(differences), f"of the ranks {passes_of}")


def _make_policy(seed: int) -> Any:
    """A model that writes the next letter after each letter, and ends after the last."""
    import torch

    model = tiny.make_model(seed)
    letters = [tiny.VOCABULARY.index(letter) for letter in LETTERS]
    embedding, output = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    with torch.no_grad():
        # Next to embeddings as large as these, the layers add little; the directions of twelve are far enough apart,
        # and at a scale where nothing else is ever sampled: with logits an eighth of these, one letter of seed 0 was
        # missed at 7 in 100.
        embedding.normal_(generator=torch.Generator().manual_seed(seed))
        output.zero_()
        output[[*letters[1:], model.config.eos_token_id]] = embedding[letters] * 4
    return model


def _written(prompt: list[int]) -> list[int]:
    """What the policy writes after the prompt: the rest of the letters and the end of sequence."""
    rest = LETTERS.partition(tiny.VOCABULARY[prompt[-1]])[2]
    return [tiny.VOCABULARY.index(letter) for letter in rest] + [tiny.VOCABULARY.index("<eos>")]


def _prompts() -> Any:
    """Plain texts of different lengths, each with a last letter of its own."""
    from datasets import Dataset

    return Dataset.from_list([{"prompt": "." * (i % 5) + letter} for i, letter in enumerate(LETTERS)])


def _gather_by_pass(trainer: Any, start: int) -> None:
    """From step `start` on, let generation gather parameters at every pass. 0.14 knows no such option."""
    from transformers import TrainerCallback

    class Switch(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            args.ds3_gather_for_generation = state.global_step < start

    trainer.add_callback(Switch())


def _describe(prompt: list[int], completion: list[int]) -> str:
    before, after = ("".join(tiny.VOCABULARY[token] for token in tokens) for tokens in (prompt, completion))
    return f"{after!r} after {before!r}"
