"""Make the task: sums with one digit, and a model with random weights that knows the characters and nothing else.

    python3 make.py                                       # writes train.jsonl and model/ beside this file
    docker compose run --rm train --config grpo.yaml      # it learns to add, on a CPU in minutes

It needs Python alone, so it runs anywhere, offline. The files are those that `save_pretrained` writes.
"""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

HERE = Path(__file__).parent
CHARACTERS = "0123456789+= "
PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
TOKENS = [PAD, EOS, UNKNOWN, *CHARACTERS]
HIDDEN, INNER, LAYERS, HEADS = 64, 128, 2, 2


def write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def data() -> None:
    """Every sum of two digits that is a digit, eight times."""
    rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(10) for b in range(10 - a)]
    lines = [json.dumps(row) for row in rows * 8]
    (HERE / "train.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def tokenizer(folder: Path) -> None:
    """One token for each character."""
    special = [
        {"id": number, "content": token, "special": True, "normalized": False}
        | {"single_word": False, "lstrip": False, "rstrip": False}
        for number, token in enumerate((PAD, EOS, UNKNOWN))
    ]
    split = {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}
    vocabulary = {token: number for number, token in enumerate(TOKENS)}
    write(
        folder / "tokenizer.json",
        {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
            "pre_tokenizer": split, "post_processor": None, "decoder": {"type": "Fuse"},
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": UNKNOWN},
        },
    )  # fmt: skip
    write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast", "pad_token": PAD, "eos_token": EOS, "unk_token": UNKNOWN,
            "padding_side": "left", "model_input_names": ["input_ids", "attention_mask"],
            "clean_up_tokenization_spaces": False,
        },
    )  # fmt: skip


def model(folder: Path) -> None:
    """A Qwen2 with 90 thousand weights."""
    write(
        folder / "config.json",
        {
            "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": len(TOKENS),
            "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "max_position_embeddings": 64,
            "tie_word_embeddings": False, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None,
            "torch_dtype": "float32",
        },
    )  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (len(TOKENS), HIDDEN)}
    for layer in (f"model.layers.{number}" for number in range(LAYERS)):
        for name in ("q_proj", "k_proj", "v_proj"):
            shapes |= {
                f"{layer}.self_attn.{name}.weight": (HIDDEN, HIDDEN),
                f"{layer}.self_attn.{name}.bias": (HIDDEN,),
            }
        shapes[f"{layer}.self_attn.o_proj.weight"] = (HIDDEN, HIDDEN)
        shapes |= {f"{layer}.mlp.{name}.weight": (INNER, HIDDEN) for name in ("gate_proj", "up_proj")}
        shapes[f"{layer}.mlp.down_proj.weight"] = (HIDDEN, INNER)
        shapes |= {f"{layer}.{name}.weight": (HIDDEN,) for name in ("input_layernorm", "post_attention_layernorm")}
    shapes |= {"model.norm.weight": (HIDDEN,), "lm_head.weight": (len(TOKENS), HIDDEN)}
    weights(folder / "model.safetensors", shapes)


def weights(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """Random weights, as a file of safetensors: the length of the header, the header, the numbers."""
    chance = random.Random(0)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    numbers = b""
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        values = [chance.gauss(0, 0.05) if len(shape) == 2 else float("norm" in name) for _ in range(count)]
        packed = struct.pack(f"<{count}f", *values)
        header[name] = {
            "dtype": "F32",
            "shape": list(shape),
            "data_offsets": [len(numbers), len(numbers) + len(packed)],
        }
        numbers += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + numbers)


if __name__ == "__main__":
    folder = HERE / "model"
    folder.mkdir(exist_ok=True)
    data()
    tokenizer(folder)
    model(folder)
    print("train.jsonl and model/ are made. Next: docker compose run --rm train --config grpo.yaml")
