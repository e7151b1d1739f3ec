"""The merged config: every value of the command line has the type of its option."""

from __future__ import annotations

from pathlib import Path

from runtime.config import options, source
from runtime.train import merge


def test_text_of_the_command_line_becomes_a_value_of_its_option(site: Path, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("learning_rate: 1e-6\nmax_steps: 3\nenv: {A: b}\n")
    words = ["--max_steps=300", "--save_steps", "50", "--learning_rate", "2e-6", "--bf16", "--no_remove_unused_columns"]
    words += ["--reward_funcs", "a.b", "--reward_weights", "1", "0.5", "--use_peft", "false", "--loss_type", "1"]
    words += ["--num_processes", "2", "--model_init_kwargs", '{"dtype": "float32"}', "--unknown", "x"]
    config = source.read(tmp_path / "my.yaml", words)
    assert merge.merged(config, options.read(site, "grpo")) == {
        "learning_rate": 2e-6,
        "max_steps": 300,
        "env": {"A": "b"},
        "save_steps": 50.0,
        "bf16": True,
        "remove_unused_columns": False,
        "reward_funcs": ["a.b"],
        "reward_weights": [1.0, 0.5],
        "use_peft": False,
        "loss_type": "1",
        "num_processes": "2",
        "model_init_kwargs": '{"dtype": "float32"}',
        "unknown": "x",
    }
