"""The built-in task: a tiny policy learns to write lower-case letters, offline, in about a minute on a laptop.

It consists of a config, a model folder, a dataset and a reward function, and runs just like a user's own task.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SPECIAL = PAD, EOS = "<pad>", "<eos>"
CHARACTERS = "".join(map(chr, range(ord(" "), ord("~") + 1)))
SEED = 0

CONFIG = {
    "reward_funcs": ["runtime.task.lower_case"],
    "max_steps": 40,
    "per_device_train_batch_size": 32,
    "num_generations": 8,
    "max_completion_length": 16,
    "learning_rate": 3e-3,
    "beta": 0.02,
    "temperature": 1.0,
    "bf16": False,
    "gradient_checkpointing": False,
    "logging_steps": 1,
    "save_strategy": "steps",
    "save_steps": 20,
    "seed": SEED,
}


def lower_case(completions: list[Any], **_: Any) -> list[float]:
    """The share of lower-case letters in each completion: 0.27 for random characters, at most 1."""
    return [sum("a" <= letter <= "z" for letter in text) / max(1, len(text)) for text in completions]


def make(folder: Path) -> Path:
    """Write the model, the dataset and the config to `folder`; returns the path of the config."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    vocabulary = {token: i for i, token in enumerate((*SPECIAL, *("Ġ" if c == " " else c for c in CHARACTERS)))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder / "model")
    _seed(SEED)
    Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(vocabulary),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=256,
            tie_word_embeddings=False,
            pad_token_id=vocabulary[PAD],
            eos_token_id=vocabulary[EOS],
            bos_token_id=None,
        )
    ).save_pretrained(folder / "model")
    data = folder / "data"
    data.mkdir()
    lines = [json.dumps({"prompt": f"write {word}:"}) for word in ("a line", "a word", "a name", "more") * 64]
    (data / "train.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    config = folder / "config.yaml"
    settings = {"model_name_or_path": str(folder / "model"), "dataset_name": str(data), **CONFIG}
    # JSON is YAML.
    config.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    return config


def _seed(seed: int) -> None:
    import torch

    torch.manual_seed(seed)
