"""Does a completion end at the model's stop token, and is it trained on up to there and no further?

Catches two silent failures. Models declare several tokens that end a completion (of a turn, of a text), the tokenizer
only one of them: a trainer that knows only that one continues to sample after the end, or stops and then trains on the
padding. And many tokenizers use the end-of-sequence token for padding: a trainer that treats it as padding never trains
the model to end.

Trains one step with a model that declares several stop tokens, and one with a tokenizer that pads with its end of
sequence. The tokens trained on are compared with those sampled. Needs one process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from smoke.kit import adapter, grpo, tiny
from smoke.kit.rollout import Recorder
from smoke.probe import Bound, Context, Probe, Reading

COMPLETIONS = 16
NEW_TOKENS = 24

PROBE = Probe(
    matters="tokens after the end of an answer are trained on like the answer, or the end is never learned",
    bounds=(
        Bound(
            "tokens_past_stop",
            "tokens trained on behind the first that the model declares to end a completion, of all completions",
            "tokens",
            equals=0,
            headline=True,
        ),
        Bound("stops", "completions that end by such a token. With fewer, tokens_past_stop proves little", at_least=4),
        Bound(
            "ends_lost",
            "completions that end by the end of sequence, when it is the padding token, and are not trained on to it",
            "completions",
            equals=0,
        ),
        Bound("tokens_past_end", "tokens trained on behind it, when it is the padding token", "tokens", equals=0),
        Bound("ends", "completions that end by it. With fewer, ends_lost proves little", at_least=4),
    ),
    links=(
        "https://github.com/huggingface/trl/pull/7039",
        "https://github.com/huggingface/trl/pull/6357",
        "https://github.com/huggingface/trl/pull/4970",
    ),
    needs=("torch", "transformers", "datasets", "trl"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Train both ways, and check the ends of the completions trained on."""
    model, tokenizer = tiny.make_model(context.seed), tiny.make_tokenizer()
    letters = tokenizer.convert_tokens_to_ids(list("aeiouyAEIOUY"))
    stops = model.generation_config.eos_token_id = [tokenizer.eos_token_id, *letters]
    trained = _train(context, model, tokenizer)
    behind = [_behind(completion, stops) for completion in trained if set(completion) & set(stops)]
    count = sum(map(len, behind))
    padding = sum(tokens.count(tokenizer.pad_token_id) for tokens in behind)
    longer = sum(map(bool, behind))
    detail = f"{longer} of {len(trained)} completions go on behind one of {stops}; {padding} are padding tokens"
    yield Reading("tokens_past_stop", count, detail)
    yield Reading("stops", len(behind))

    model, tokenizer = tiny.make_model(context.seed), tiny.make_tokenizer()
    end = model.config.pad_token_id = model.generation_config.pad_token_id = tokenizer.eos_token_id
    tokenizer.pad_token = tokenizer.eos_token
    _end_soon(model, end)
    trained = _train(context, model, tokenizer)
    lost = [completion for completion in trained if len(completion) < NEW_TOKENS and end not in completion]
    yield Reading("ends_lost", len(lost), f"trained on up to the token before: {lost}")
    behind = [_behind(completion, [end]) for completion in trained if end in completion]
    yield Reading("tokens_past_end", sum(map(len, behind)), f"behind token {end}: {behind}")
    yield Reading("ends", len(behind) + len(lost))


def _train(context: Context, model: Any, tokenizer: Any) -> list[list[int]]:
    """Save and train a model; returns the completions that it was trained on."""
    directory = context.directory / "model"
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    trainer = grpo.make_trainer(
        context,
        directory,
        grpo.Reward(),
        max_steps=1,
        max_completion_length=NEW_TOKENS,
        per_device_train_batch_size=adapter.batch_of(COMPLETIONS, grpo.GENERATIONS),
    )
    recorder = Recorder(trainer)
    trainer.train()
    return [completion for _, completion in recorder.pairs()]


def _end_soon(model: Any, end: int) -> None:
    """Make one token in ten `end`, whatever comes before it: by a feature that is large and equal for all tokens."""
    import torch

    embedding, output = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    with torch.no_grad():
        embedding[:, 0] = 10
        output[end] = 0
        output[:, 0] = 0
        output[end, 0] = 0.35


def _behind(completion: list[int], stops: list[int]) -> list[int]:
    """The tokens after the first of these stops."""
    return completion[next(i for i, token in enumerate(completion) if token in stops) + 1 :]
