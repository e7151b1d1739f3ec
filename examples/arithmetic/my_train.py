"""The same task in a script of one's own, with a second reward.

    docker compose run --rm train my_train.py 400         # steps
    docker compose run --rm train --resume                # goes on where it was stopped

`vetted train` keeps metrics, checkpoints and certificates, as with `trl grpo`.
"""

from __future__ import annotations

import sys

import rewards  # the module beside this script
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def brief(completions: list[str], **_: object) -> list[float]:
    """A second reward: an answer of one digit needs no more."""
    return [1.0 if len(text) == 1 else 0.0 for text in completions]


arguments = GRPOConfig(
    max_steps=int(sys.argv[1]) if len(sys.argv) > 1 else 400,
    per_device_train_batch_size=128,
    num_generations=32,
    max_completion_length=2,
    learning_rate=1e-3,
    beta=0.02,
    bf16=False,
    gradient_checkpointing=False,
    logging_steps=10,
    save_steps=100,
    reward_weights=[1.0, 0.2],
    report_to=[],
)
data = load_dataset("json", data_files="train.jsonl", split="train")
trainer = GRPOTrainer(model="model", reward_funcs=[rewards.correct, brief], args=arguments, train_dataset=data)
trainer.train()
trainer.save_model()
