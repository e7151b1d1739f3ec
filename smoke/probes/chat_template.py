"""Does the trainer train on exactly the tokens of the chat template, with nothing added and nothing cut off?

Catches prompts that change silently: a second beginning-of-sequence token, because template and tokenizer both add one;
none at all, because both were told not to; a prompt cut to 512 tokens from the left, starting with its system message,
which releases of 2025 did by default.

Trains one step each on conversations with a system message, on plain text, and on a conversation of about 700 tokens.
Tokenizer and template both start every text with a special token. The prompts trained on are compared, token by token,
with what the tokenizer produces, and the completions with what was sampled. Needs one process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from smoke.kit import adapter, grpo, tiny
from smoke.kit.rollout import Recorder
from smoke.probe import Bound, Context, Probe, Reading

PROMPTS = 4
GENERATIONS = 2
LONG = 700  # characters, each a token
BEGIN = "<|im_start|>"

PROBE = Probe(
    matters="a model trained on other tokens than it will get in use learns to answer a different question",
    bounds=(
        Bound(
            "conversations_differ",
            "conversations that were trained on other tokens than those of the template",
            "prompts",
            equals=0,
            headline=True,
        ),
        Bound("texts_differ", "texts without the tokenizer's special token, or with two", "prompts", equals=0),
        Bound("tokens_cut", "tokens lost from a prompt of more than 512 tokens", "tokens", equals=0),
        Bound("completions_differ", "completions that were not trained on as sampled", "completions", equals=0),
        Bound(
            "prompts_seen",
            "different prompts in three runs; with fewer, something was not compared",
            "prompts",
            equals=PROMPTS + PROMPTS + 1,
        ),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/3520",
        "https://github.com/huggingface/trl/pull/4703",
    ),
    needs=("torch", "transformers", "datasets", "trl", "tokenizers"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Train on each kind of prompt, and compare."""
    tokenizer = _tokenizer()
    words = ("count", "the", "letters", "slowly")
    conversations = [
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " ".join(words[: i + 1])}]
        for i in range(PROMPTS)
    ]
    texts = [" ".join(words[i:]) for i in range(PROMPTS)]
    long = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "x" * LONG}]

    chats, chats_count, wrong = _differing(
        context, tokenizer, {tuple(_of_template(tokenizer, prompt)): prompt for prompt in conversations}
    )
    yield Reading("conversations_differ", len(chats), "; ".join(chats))
    plain, plain_count, also_wrong = _differing(
        context, tokenizer, {tuple(tokenizer(text)["input_ids"]): text for text in texts}
    )
    yield Reading("texts_differ", len(plain), "; ".join(plain))
    expected = _of_template(tokenizer, long)
    recorder = _train(context, tokenizer, [long])
    trained = {tuple(prompt) for prompt, _ in recorder.pairs()}
    cut = max(abs(len(expected) - len(prompt)) for prompt in trained)
    yield Reading("tokens_cut", cut, f"{len(expected)} tokens became {sorted(map(len, trained))}")
    wrong += [*also_wrong, *_completions(recorder, tokenizer)]
    yield Reading("completions_differ", len(wrong), "; ".join(wrong))
    yield Reading("prompts_seen", chats_count + plain_count + len(trained))


def _tokenizer() -> Any:
    """A tokenizer that begins every text with a special token, as its chat template does."""
    from tokenizers.processors import TemplateProcessing

    tokenizer = tiny.make_tokenizer()
    begin = tokenizer.convert_tokens_to_ids(BEGIN)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{BEGIN} $A", pair=f"{BEGIN} $A {BEGIN} $B", special_tokens=[(BEGIN, begin)]
    )
    tokenizer.bos_token = BEGIN
    return tokenizer


def _of_template(tokenizer: Any, messages: list[dict[str, str]]) -> list[int]:
    """The tokens of the template's text, without any others."""
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def _train(context: Context, tokenizer: Any, prompts: list[Any]) -> Recorder:
    """One step on all of these prompts."""
    from datasets import Dataset

    sequences = len(prompts) * GENERATIONS
    trainer = grpo.make_trainer(
        context,
        tiny.make_model(context.seed, positions=2048),
        grpo.Reward(),
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        max_steps=1,
        num_generations=GENERATIONS,
        per_device_train_batch_size=adapter.batch_of(sequences, GENERATIONS),
        max_completion_length=6,
    )
    recorder = Recorder(trainer)
    trainer.train()
    return recorder


def _differing(
    context: Context, tokenizer: Any, expected: dict[tuple[int, ...], Any]
) -> tuple[list[str], int, list[str]]:
    """Prompts that were not trained on as expected, the number of different ones, and completions that differ."""
    recorder = _train(context, tokenizer, list(expected.values()))
    trained = {tuple(prompt) for prompt, _ in recorder.pairs()}
    strange = [repr(tokenizer.decode(prompt)) for prompt in sorted(trained - expected.keys())]
    missing = [repr(tokenizer.decode(prompt)) for prompt in sorted(expected.keys() - trained)]
    others = f"trained on {', '.join(strange) or 'nothing else'}"
    return (
        [f"{prompt} was not trained on ({others})" for prompt in missing],
        len(trained),
        _completions(recorder, tokenizer),
    )


def _completions(recorder: Recorder, tokenizer: Any) -> list[str]:
    """Completions that were trained on differently than sampled, up to their end of sequence."""
    sampled: dict[tuple[int, ...], list[list[int]]] = {}
    for generation in recorder.generations:
        for prompt, completion in zip(generation.prompts, generation.completions, strict=True):
            ends = [i for i, token in enumerate(completion) if token == tokenizer.eos_token_id]
            sampled.setdefault(tuple(prompt), []).append(completion[: ends[0] + 1] if ends else completion)
    return [
        f"{tokenizer.decode(completion)!r} was trained on, sampled were {sampled.get(tuple(prompt))}"
        for prompt, completion in recorder.pairs()
        if completion not in sampled.get(tuple(prompt), [])
    ]
