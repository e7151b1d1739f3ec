"""`vetted train` with the real TRL of the CPU stack: launchers, other trainers, own scripts, resumed runs."""

from __future__ import annotations

import functools
import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from builder.publish import training
from runtime.config import options, source
from runtime.train import merge
from tests.conftest import ROOT
from tests.engine import hosted
from tests.engine.hosted import losses, runs

CONFIG = """\
model_name_or_path: task/model
dataset_name: task/data/train.jsonl
reward_funcs: [mine.length]
max_steps: 4
per_device_train_batch_size: 4
num_generations: 4
max_completion_length: 8
learning_rate: 1e-3
logging_steps: 1
save_steps: 2
"""
REWARD = "def length(completions, **_):\n    return [float(len(text)) for text in completions]\n"

Train = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def task(built_in_task: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a user's own, with the model and the data of the built-in task."""
    here = tmp_path_factory.mktemp("own")
    hosted.folder(built_in_task, here)
    (here / "mine.py").write_text(REWARD)
    (here / "my.yaml").write_text(CONFIG)
    return here


@pytest.fixture
def train(python: Path, task: Path) -> Train:
    return functools.partial(hosted.train, python, task)


def test_a_run_that_was_stopped_and_resumed_has_the_losses_of_one_run(train: Train, task: Path) -> None:
    code, output = train("--config", "my.yaml", "--max_steps", "6", "--seed", "5")
    assert code == 0, output
    whole = runs(task)[-1]
    settings = yaml.safe_load((whole / "config.yaml").read_text())
    assert (settings["max_steps"], settings["seed"], settings["learning_rate"]) == (6, 5, "1e-3")
    # max_steps would change the schedule of the learning rate, so the stop is a real one: after a step that saves.
    stopper = task / "stop.py"
    stopper.write_text(
        "import json, os, threading, time\nfrom pathlib import Path\n"
        "def length(completions, **_):\n"
        "    run = sorted(Path('runs').iterdir())[-1]\n"
        "    rows = len((run / 'metrics.jsonl').read_text().splitlines()) if (run / 'metrics.jsonl').exists() else 0\n"
        "    if rows == 3:\n        (run / '.stop').touch()\n"
        "    return [float(len(text)) for text in completions]\n"
    )
    code, output = train("--config", "my.yaml", "--max_steps", "6", "--seed", "5", "--reward_funcs", "stop.length")
    assert code == 130, output
    code, output = train("--resume")
    assert code == 0, output
    assert losses(runs(task)[-1]) == losses(whole)


def two_nodes(
    python: Path, folders: tuple[Path, Path], *arguments: str, interrupt: str | None = None
) -> tuple[list[int], list[str]]:
    """A run on two nodes, each in a folder. Both find node 0 on the loopback interface.

    `interrupt`: node 1 gets a signal after a line of node 0 that begins with this.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    nodes = {"NNODES": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    children = [
        hosted.start(python, here, *arguments, **nodes, NODE_RANK=str(number)) for number, here in enumerate(folders)
    ]
    lines = ""
    for line in children[0].stdout or ():
        lines += line
        if interrupt and line.startswith(interrupt):
            children[1].send_signal(signal.SIGTERM)
    output = [child.communicate()[0] for child in children]
    return [child.returncode for child in children], [lines + output[0], output[1]]


def test_two_nodes_train_one_model_through_accelerates_launcher(python: Path, task: Path) -> None:
    """Through torchrun, the next test has them."""
    before = runs(task)
    codes, output = two_nodes(python, (task, task), "--config", "my.yaml", "--accelerate_config", "zero3")
    assert codes == [0, 0], output
    (run,) = [path for path in runs(task) if path not in before]
    assert [step for step, _ in losses(run)] == [1, 2, 3, 4]
    assert {path.name for path in (run / "checkpoint-4").glob("rng_state*")} == {"rng_state_0.pth", "rng_state_1.pth"}
    assert "node     1 of 2; node 0, at 127.0.0.1" in output[1]


def test_a_signal_to_one_node_ends_both_with_a_checkpoint_and_they_resume(python: Path, task: Path) -> None:
    length = ("--max_steps", "30", "--save_steps", "30")
    codes, output = two_nodes(python, (task, task), "--config", "my.yaml", *length, interrupt="step 2/30")
    assert codes == [130, 130], output
    run = runs(task)[-1]
    done = len(losses(run))
    assert 2 <= done < 30
    assert (run / f"checkpoint-{done}" / "rng_state_1.pth").is_file()
    codes, output = two_nodes(python, (task, task), "--resume", "--max_steps", str(done + 1))
    assert codes == [0, 0], output
    assert [step for step, _ in losses(run)] == list(range(1, done + 2))


def test_a_node_with_runs_of_its_own_ends_the_run_and_says_why(
    python: Path, task: Path, built_in_task: Path, tmp_path: Path
) -> None:
    before = runs(task)
    hosted.folder(built_in_task, tmp_path)
    for name in ("my.yaml", "mine.py"):
        (tmp_path / name).write_text((task / name).read_text())
    # The folder is named from where a command runs, so the other node looks for it in its own folder.
    codes, output = two_nodes(python, (task, tmp_path), "--config", "my.yaml")
    assert codes == [1, 1], output
    for text in output:
        assert (
            "the folder of this run on node 0, is not on node 1\nusual cause: each node has a /runs of its own" in text
        )
    assert runs(task) == before


def test_two_processes_share_one_model_through_accelerates_launcher(train: Train, task: Path) -> None:
    """Under FSDP; under ZeRO-3, two nodes do above, and the script for GSM8K in tests/engine/test_configs.py."""
    words = ["--accelerate_config", "fsdp2", "--num_processes", "2", "--max_steps", "2"]
    code, output = train("--config", "my.yaml", *words)
    assert code == 0, output
    assert [step for step, _ in losses(runs(task)[-1])] == [1, 2]
    assert list(runs(task)[-1].glob("*.safetensors"))


def test_an_option_of_accelerate_alone_starts_all_processes_on_a_cpu(train: Train, task: Path) -> None:
    code, output = train("--config", "my.yaml", "--mixed_precision", "no", "--num_processes", "2", "--max_steps", "2")
    assert code == 0, output
    assert (runs(task)[-1] / "checkpoint-2" / "rng_state_1.pth").is_file()


ZERO3 = {
    "zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"},
    "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
}  # fmt: skip


def test_deepspeed_needs_no_mpi_for_one_process_and_the_monitor_can_be_switched_off(train: Train, task: Path) -> None:
    (task / "ds3.json").write_text(json.dumps(ZERO3))
    code, output = train("--config", "my.yaml", "--deepspeed", "ds3.json", "--max_steps", "1", "--no-monitor")
    assert code == 0, output
    assert "mpi4py" not in output
    assert "monitor" not in output
    assert not any((runs(task)[-1] / name).exists() for name in ("monitor.jsonl", training.NAME))


SCRIPT = """
import sys
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
import gc, mine  # lies beside the script
assert gc.isenabled()
arguments = SFTConfig(output_dir="elsewhere", max_steps=int(sys.argv[1]), save_steps=2, logging_steps=1, report_to=[])
data = load_dataset("json", data_files="texts.jsonl", split="train")
SFTTrainer(model="task/model", args=arguments, train_dataset=data).train()
"""


def test_a_script_of_ones_own_gets_the_same_care(train: Train, task: Path) -> None:
    (task / "texts.jsonl").write_text('{"text": "write a line"}\n' * 32)
    (task / "my_train.py").write_text(SCRIPT)
    code, output = train("my_train.py", "2")
    assert code == 0, output
    run = runs(task)[-1]
    assert [step for step, _ in losses(run)] == [1, 2]
    assert (run / "checkpoint-2" / "trainer_state.json").is_file()
    assert not (task / "elsewhere").exists()
    (task / "my_train.py").write_text(SCRIPT.replace("int(sys.argv[1])", "4"))
    code, output = train("--resume")
    assert code == 0, output
    assert [step for step, _ in losses(run)] == [1, 2, 3, 4]


@pytest.mark.parametrize(("word", "status"), [("--help", 0), ("--unknown", 2)])
def test_a_script_that_only_answers_leaves_no_run(train: Train, task: Path, word: str, status: int) -> None:
    before = runs(task)
    (task / "helpful.py").write_text("import argparse\nargparse.ArgumentParser(prog='helpful').parse_args()\n")
    code, output = train("helpful.py", word)
    assert code == status, output
    assert "usage: helpful" in output
    assert "Traceback" not in output  # the launcher has one, which says nothing
    assert runs(task) == before


# A row of each trainer's data, and what it needs besides.
TRAINERS: dict[str, tuple[dict[str, object], str]] = {
    "sft": ({"text": "write a line"}, ""),
    "dpo": ({"prompt": "2 + 2 =", "chosen": " 4", "rejected": " 5"}, ""),
    "reward": ({"chosen": "2 + 2 = 4", "rejected": "2 + 2 = 5"}, ""),
    "kto": ({"prompt": "2 + 2 =", "completion": " 4", "label": True}, ""),
    "rloo": ({"prompt": "2 + 2 ="}, "reward_funcs: [mine.length]\nnum_generations: 2\nmax_completion_length: 4\n"),
}


@pytest.mark.parametrize("trainer", TRAINERS)
def test_another_trainer_of_trl_runs_from_its_config(train: Train, task: Path, trainer: str) -> None:
    row, more = TRAINERS[trainer]
    (task / "rows.jsonl").write_text(f"{json.dumps(row)}\n" * 8)
    text = f"model_name_or_path: task/model\ndataset_name: rows.jsonl\nlogging_steps: 1\n{more}"
    (task / "other.yaml").write_text(f"{text}per_device_train_batch_size: 4\nsave_strategy: 'no'\n")
    code, output = train(trainer, "--config", "other.yaml", "--max_steps", "1")
    assert code == 0, output
    run = runs(task)[-1]
    ((_, loss),) = losses(run)
    assert f"step 1/1  {'reward ' if trainer == 'rloo' else f'loss {loss:.4g}'}" in output
    assert (run / "plot.png").is_file()


CHAT = "{% for message in messages %}{{ message.content }}{% endfor %}"


def test_trls_own_reward_is_logged_to_wandb_without_a_network(train: Train, task: Path) -> None:
    """`accuracy_reward` needs math-verify; an offline run of W&B is in the run's folder, for `wandb sync`."""
    row = {"prompt": [{"role": "user", "content": "1 + 1 ="}], "solution": "$2$"}
    (task / "sums.jsonl").write_text(f"{json.dumps(row)}\n" * 32)
    shutil.copytree(task / "task/model", task / "chat")
    (task / "chat/chat_template.jinja").write_text(CHAT)
    words = ["--model_name_or_path", "chat", "--dataset_name", "sums.jsonl", "--reward_funcs", "accuracy_reward"]
    code, output = train(
        "--config",
        "my.yaml",
        *words,
        "--report_to",
        "wandb",
        "--max_steps",
        "1",
        WANDB_MODE="offline",
        PYTHONPATH=str(ROOT),
    )
    assert code == 0, output
    (run,) = (runs(task)[-1] / "wandb").glob("offline-run-*")
    assert list(run.glob("*.wandb"))
    (row,) = (json.loads(line) for line in (runs(task)[-1] / "metrics.jsonl").read_text().splitlines()[:1])
    assert row["rewards/accuracy_reward/mean"] == 0


def test_what_fails_before_it_trains_leaves_nothing(train: Train, task: Path) -> None:
    before = runs(task)
    (task / "broken.py").write_text("def length(completions, **_):\n    raise ValueError('no reward today')\n")
    code, output = train("--config", "my.yaml", "--reward_funcs", "broken.length")
    assert code == 1
    assert "no reward today" in output
    assert runs(task) == before


PARSE = """
import dataclasses, json, sys
from trl.scripts import grpo
parsed = grpo.make_parser().parse_args_and_config(json.loads(sys.argv[1]))
print(json.dumps([{k: repr(v) for k, v in vars(part).items()} for part in parsed]))
"""


def test_the_merged_config_says_what_file_and_command_line_say(python: Path, task: Path, tmp_path: Path) -> None:
    """TRL's own parser reads both, and makes the same objects of them."""
    words = ["--max_steps", "300", "--learning_rate=2e-6", "--save_steps", "0.5", "--reward_funcs", "a.b", "c.d"]
    words += ["--reward_weights", "1", "0.5", "--use_peft", "--lora_target_modules", "q_proj", "--seed", "7"]
    words += ["--no_dataloader_pin_memory", "--gradient_checkpointing", "false", "--lr_scheduler_type", "cosine"]
    words += ["--model_init_kwargs", '{"dtype": "float32"}', "--report_to", "none", "--temperature", "0.5"]
    words += ["--use_cpu", "True", "--beta", "0", "--top_k", "5", "--vllm_server_timeout", "10", "--warmup_steps", "3"]
    site = next(python.parent.parent.glob("lib/python*/site-packages"))
    config = source.read(task / "my.yaml", words)
    merged = tmp_path / "merged.yaml"
    merged.write_text(yaml.safe_dump(merge.merged(config, options.read(site, "grpo"))))

    def parsed(*arguments: str) -> list[dict[str, str]]:
        command = [str(python), "-c", PARSE, json.dumps([*arguments, "--output_dir", "out"])]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
        return json.loads(done.stdout)  # type: ignore[no-any-return]

    assert parsed("--config", str(merged)) == parsed("--config", str(task / "my.yaml"), *words)
