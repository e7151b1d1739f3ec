"""Tiny models, tokenizers and prompts, generated from a seed: no downloads."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Four special tokens, then single characters, 128 in all: vLLM pads vocabularies to a multiple of 64, so adds nothing.
SPECIAL = _PAD, _EOS, _START, _END = "<pad>", "<eos>", "<|im_start|>", "<|im_end|>"
_ASCII = "\n" + "".join(map(chr, range(ord(" "), ord("~") + 1)))
_GREEK = "".join(map(chr, range(ord("α"), ord("ό") + 1)))
VOCABULARY = (*SPECIAL, *_ASCII, *_GREEK)

_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' + (opening or '') }}{% endif %}"
)


def make_tokenizer() -> Any:
    """A tokenizer of single characters, with a chat template.

    It works on bytes, as Qwen2's does: from a model's folder, Transformers 5 loads the tokenizer class of the model
    type, whatever was saved. Letters of more than one byte are added tokens.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    byte_level = {"\n": "Ċ", " ": "Ġ"}
    vocabulary = {byte_level.get(token, token): i for i, token in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(letter, normalized=False) for letter in _GREEK])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=_PAD,
        eos_token=_EOS,
        additional_special_tokens=[_START, _END],
        padding_side="left",
        clean_up_tokenization_spaces=False,
        chat_template=_CHAT_TEMPLATE,
        # Without this, old TRL hands generate() the token type IDs that a fast tokenizer makes by default.
        model_input_names=["input_ids", "attention_mask"],
    )


def make_model(
    seed: int, architecture: str = "qwen2", *, tied: bool = False, positions: int = 512, **options: Any
) -> Any:
    """A model with random weights: two layers, width 64, vocabulary 128, float32.

    The architecture is "qwen2", "qwen3" or "llama". With `tied`, the embedding is also the output layer. The longest
    sequence has `positions` tokens. `options` are more of the model's configuration, in place of ours.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    ours = {
        "vocab_size": len(VOCABULARY),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        # The heads have size 32, the smallest that vLLM's attention supports.
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": positions,
        # Not tied by default: a stale output layer would hide behind the embedding.
        "tie_word_embeddings": tied,
        # Five times the usual: logits depend on the previous tokens, yet sampling still varies.
        "initializer_range": 0.1,
        "pad_token_id": VOCABULARY.index(_PAD),
        "eos_token_id": VOCABULARY.index(_EOS),
        "bos_token_id": None,
    }
    config = AutoConfig.for_model(architecture, **{**ours, **options})
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config)


def save(directory: Path, seed: int, architecture: str = "qwen2", *, tied: bool = False) -> Path:
    """Save a tiny model and its tokenizer in `directory`; returns `directory`."""
    make_model(seed, architecture, tied=tied).save_pretrained(directory)
    make_tokenizer().save_pretrained(directory)
    return directory


def save_classifier(directory: Path, seed: int) -> Path:
    """Save a tiny reward model (one number per text) and its tokenizer in `directory`; returns `directory`."""
    import torch
    from transformers import AutoModelForSequenceClassification

    config = make_model(seed).config
    config.num_labels = 1
    torch.manual_seed(seed)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(directory)
    make_tokenizer().save_pretrained(directory)
    return directory


def make_prompts(count: int) -> Any:
    """A dataset of `count` conversational prompts of different lengths, in its column `prompt`."""
    from datasets import Dataset

    words = ("count", "the", "letters", "of", "this", "sentence", "and", "answer", "in", "lower", "case")
    texts = [" ".join(words[i % 3 : i % 3 + 2 + i % len(words)]) for i in range(count)]
    return Dataset.from_list([{"prompt": [{"role": "user", "content": text}]} for text in texts])


def decode(tokens: list[int]) -> str:
    """The text of these tokens, without the special ones."""
    return "".join(VOCABULARY[token] for token in tokens if token >= len(SPECIAL))


def spell(tokens: Sequence[int]) -> str:
    """The text of these tokens, with the special ones."""
    return "".join(VOCABULARY[token] for token in tokens)


def draw_tokens(draw: random.Random, count: int) -> list[int]:
    """Random tokens without special ones, which may be masked or end a sequence."""
    return [draw.randrange(len(SPECIAL), len(VOCABULARY)) for _ in range(count)]
