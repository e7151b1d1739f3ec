"""A site-packages folder with the parts of TRL's source that the check reads, and a folder of a user's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from runtime.check import Check
from runtime.config import look, source

SOURCE = {
    "trl/scripts/grpo.py": """
        @dataclass
        class GRPOScriptArguments(ScriptArguments):
            reward_model_name_or_path: str | None = field(default=None, metadata={"help": "..."})
            reward_funcs: list[str] | None = field(default=None)

        def main(script_args, training_args, model_args):
            reward_funcs_registry = {"accuracy_reward": accuracy_reward, "think_format_reward": think_format_reward}

        def make_parser(subparsers=None):
            dataclass_types = (GRPOScriptArguments, GRPOConfig, ModelConfig)
            return TrlParser(dataclass_types)
    """,
    "trl/scripts/utils.py": """
        class ScriptArguments:
            dataset_name: str | None = None
            dataset_train_split: str = field(default="train")
            datasets: list[DatasetConfig] = field(default_factory=list)
    """,
    "trl/trainer/model_config.py": """
        class ModelConfig:
            model_name_or_path: str | None = None
            use_peft: bool = False
            load_in_4bit: bool = False
            lora_target_modules: list[str] | None = None
    """,
    "trl/trainer/grpo_config.py": """
        class GRPOConfig(TrainingArguments):
            _VALID: ClassVar[list[str]] = []
            learning_rate: float = field(default=1e-6)
            num_generations: int | None = field(default=8)
            steps_per_generation: int | None = None
            generation_batch_size: int | None = None
            max_completion_length: int | None = 256
            loss_type: str = "dapo"
            use_vllm: bool = False
            vllm_mode: str = "colocate"
            reward_weights: list[float] | None = None
            model_init_kwargs: dict | str | None = None
    """,
    "trl/trainer/grpo_trainer.py": """
        class GRPOTrainer:
            def _rewards(self, inputs):
                reward_kwargs = {}
                reward_kwargs["trainer_state"] = self.state
                if self.environments is not None:
                    reward_kwargs["environments"] = self.environments
                for reward_func in self.reward_funcs:
                    if isinstance(reward_func, nn.Module):
                        reward_func(**reward_inputs)
                    else:
                        reward_func(prompts=prompts, completions=completions, **reward_kwargs)

            def _loss(self):
                if self.loss_type in ["grpo", "sapo"]:
                    pass
                elif self.loss_type == "dr_grpo":
                    pass
                assert self.state == "train"
    """,
    "trl/accelerate_configs/zero3.yaml": "distributed_type: DEEPSPEED",
    "transformers/training_args.py": """
        class OptimizerNames(ExplicitEnum):
            ADAMW_TORCH = "adamw_torch"
            SGD = "sgd"

        class TrainingArguments:
            output_dir: str | None = None
            learning_rate: float = 5e-5
            per_device_train_batch_size: int = field(default=8)
            per_device_eval_batch_size: int = field(default=8)
            gradient_accumulation_steps: int = field(default=1)
            max_steps: int = -1
            save_steps: float = 500
            bf16: bool = False
            remove_unused_columns: bool = True
            optim: OptimizerNames | str = field(default="adamw_torch")
            save_strategy: SaveStrategy | str = "steps"
            eval_strategy: str = "no"
            report_to: None | str | list[str] = None
            deepspeed: dict | str | None = None
    """,
    "transformers/trainer_utils.py": """
        class SaveStrategy(ExplicitEnum):
            NO = "no"
            STEPS = "steps"
    """,
    "accelerate/commands/launch.py": """
        def launch_command_parser():
            parser.add_argument("--num_processes", "--num-processes", type=int)
            group.add_argument("--mixed_precision", choices=["no", "bf16"])
            group.add_argument("--num_machines", type=int)
            group.add_argument("--machine_rank", type=int)
            group.add_argument("--main_process_ip", type=str)
            group.add_argument("--main_process_port", type=int)
    """,
}

# A config without a mistake, for the folder of `here`.
GOOD = """\
model_name_or_path: model
dataset_name: train.jsonl
reward_funcs: [rewards.accuracy]
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site-packages"
    for name, text in SOURCE.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder: a model, data, a reward function. It is the current folder."""
    folder = tmp_path / "here"
    (folder / "model").mkdir(parents=True)
    (folder / "model/config.json").write_text(json.dumps({"max_position_embeddings": 512}))
    (folder / "train.jsonl").write_text('{"prompt": "2 + 2 =", "answer": "4"}\n{"prompt": "1 + 1 =", "answer": "2"}\n')
    (folder / "rewards.py").write_text("def accuracy(completions, answer, **kwargs):\n    return [0.0]\n")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def check(site: Path, here: Path, tmp_path: Path) -> Callable[..., list[Check]]:
    """Checks of a config: its text, the arguments, the trainer, and the number of processes."""

    def checks(
        text: str, *arguments: str, script: str = "grpo", ranks: int = 1, environ: dict[str, str] | None = None
    ) -> list[Check]:
        (here / "my.yaml").write_text(text)
        config = source.read(Path("my.yaml"), arguments)
        return look.look(config, script, site, ranks, here, {"HF_HUB_OFFLINE": "1", **(environ or {})}, tmp_path)

    return checks
