"""GRPO on GSM8K, in a script of one's own: the dataset calls its column `question`, and TRL wants `prompt`.

    ./vetted use --network
    docker compose run --rm train train.py --config full.yaml

It takes every option of `trl grpo`, from a config and from the command line.
"""

from __future__ import annotations

from pydoc import locate
from typing import Any

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer, ModelConfig, TrlParser, get_peft_config, get_quantization_config
from trl.scripts.grpo import GRPOScriptArguments

INSTRUCTION = "Reason step by step. End with the number alone, after ####."


def conversation(row: dict[str, str]) -> dict[str, Any]:
    messages = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": row["question"]}]
    return {"prompt": messages, "answer": row["answer"].rpartition("####")[2].strip().replace(",", "")}


script, arguments, model = TrlParser((GRPOScriptArguments, GRPOConfig, ModelConfig)).parse_args_and_config()
data = load_dataset(script.dataset_name, name=script.dataset_config, split=script.dataset_train_split)
arguments.model_init_kwargs = {"dtype": model.dtype, "attn_implementation": model.attn_implementation}
trainer = GRPOTrainer(
    model=model.model_name_or_path,
    reward_funcs=[locate(name) for name in script.reward_funcs],
    args=arguments,
    train_dataset=data.map(conversation, remove_columns="question"),
    quantization_config=get_quantization_config(model),
    peft_config=get_peft_config(model),
)
trainer.train()
trainer.save_model()
