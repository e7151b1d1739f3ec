"""The check of a config with the source of the real TRL, and the examples that a CPU can run."""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import configs
from runtime.check import Check
from runtime.config import look, options, source
from runtime.train import arguments
from runtime.train.arguments import TRAINERS
from tests.conftest import ROOT
from tests.engine import hosted
from tests.unit.runtime.config.test_examples import CONFIGS, copied


@pytest.fixture(scope="module")
def site(python: Path) -> Path:
    return next(python.parent.parent.glob("lib/python*/site-packages"))


@pytest.mark.parametrize("ranks", [1, 2, 8])
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_trl_knows_every_option_of_an_example(
    site: Path, path: Path, ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = copied(path.parent.name, tmp_path)
    monkeypatch.chdir(here)
    assert options.read(site, "grpo")
    config = source.read(Path(path.name), [])
    assert look.look(config, "grpo", site, ranks, here, {}, tmp_path) == []


def commands(site: Path) -> list[tuple[str, list[str]]]:
    """The commands in the documentation of TRL's scripts: trainer and options."""
    commands = []
    for trainer in TRAINERS:
        text = ast.get_docstring(ast.parse((site / options.SCRIPTS / f"{trainer}.py").read_bytes())) or ""
        for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL):
            words = shlex.split(block.replace("\\\n", " "))
            place = next(number for number, word in enumerate(words) if word.endswith(f"scripts/{trainer}.py"))
            commands.append((trainer, words[place + 1 :]))
    return commands


def test_no_command_of_trls_own_is_refused(site: Path, tmp_path: Path) -> None:
    def checks(trainer: str, words: list[str]) -> list[Check]:
        options = arguments.parse([trainer, *words])
        return look.look(source.read(None, options.rest), options.trainer, site, 1, tmp_path, {}, tmp_path)

    examples = commands(site)
    assert len(examples) >= 6
    assert any("--output_dir" in words for _, words in examples)
    for trainer, words in examples:
        assert checks(trainer, words) == [], (trainer, words)
        # One that is misspelt is.
        assert len(checks(trainer, [word.replace("--learning_rate", "--learning_rte") for word in words])) == 1


def test_no_config_of_trls_own_for_the_launcher_is_refused(site: Path, tmp_path: Path) -> None:
    names = [file.stem for file in (site / "trl/accelerate_configs").iterdir()]
    assert {"fsdp2", "multi_gpu", "zero3"} <= set(names)
    words = ["--model_name_or_path", "some/model", "--dataset_name", "some/data", "--reward_funcs", "accuracy_reward"]
    for name in names:
        config = source.read(None, [*words, "--accelerate_config", name])
        assert look.look(config, "grpo", site, 8, tmp_path, {}, tmp_path) == [], name
    (only,) = look.look(source.read(None, [*words, "--accelerate_config", "zero4"]), "grpo", site, 8, tmp_path, {})
    assert "did you mean zero" in only.next_step


@pytest.fixture(scope="module")
def task(built_in_task: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("wrong")
    hosted.folder(built_in_task, here)
    return here


@pytest.mark.parametrize("wrong", configs.WRONG, ids=lambda wrong: wrong.name)
def test_a_wrong_config_is_answered_with_its_place_and_the_fix(python: Path, task: Path, wrong: configs.Wrong) -> None:
    wrong.write(task)
    code, output = hosted.train(python, task, "--config", configs.FILE)
    assert code == 2, output
    assert wrong.message in output
    assert wrong.fix in output
    assert "Traceback" not in output
    assert hosted.runs(task) == []


@pytest.fixture(scope="module")
def arithmetic(built_in_task: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("own")
    hosted.folder(built_in_task, here)
    shutil.copytree(ROOT / "examples" / "arithmetic", here, dirs_exist_ok=True)
    subprocess.run([sys.executable, "-I", str(here / "make.py")], check=True, capture_output=True)
    return here


def test_a_model_learns_to_add(python: Path, arithmetic: Path) -> None:
    code, output = hosted.train(python, arithmetic, "--config", "grpo.yaml")
    assert code == 0, output
    rewards = [reward for _, reward in hosted.rows(hosted.runs(arithmetic)[-1], "reward")]
    assert rewards[0] < 0.2
    assert sum(rewards[-4:]) / 4 > 0.8


def test_a_script_of_ones_own_trains_the_same_task(python: Path, arithmetic: Path) -> None:
    code, output = hosted.train(python, arithmetic, "my_train.py", "10")
    assert code == 0, output
    run = hosted.runs(arithmetic)[-1]
    assert [step for step, _ in hosted.losses(run)] == [10]
    assert list(run.glob("*.safetensors"))


CHAT = "{% for message in messages %}{{ message['content'] }}{% endfor %}="


@pytest.mark.parametrize(("config", "ranks", "saved"), [("lora.yaml", 1, "adapter_model"), ("zero3.yaml", 2, "model")])
def test_the_script_for_gsm8k_trains_on_rows_of_that_form(
    python: Path, built_in_task: Path, arithmetic: Path, tmp_path: Path, config: str, ranks: int, saved: str
) -> None:
    hosted.folder(built_in_task, tmp_path)
    shutil.copytree(ROOT / "examples" / "gsm8k", tmp_path, dirs_exist_ok=True)
    shutil.copytree(arithmetic / "model", tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").write_text(CHAT)
    rows = [{"question": f"{a}+{b}", "answer": f"It is {a + b}.\n#### {a + b}"} for a in range(4) for b in range(4)]
    (tmp_path / "gsm8k.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["--model_name_or_path", "model", "--dataset_name", "gsm8k.jsonl", "--max_completion_length", "4"]
    words += ["--bf16", "False", "--max_steps", "1", "--logging_steps", "1", "--report_to", "none"]
    code, output = hosted.train(python, tmp_path, "train.py", "--config", config, *words, PET_NPROC_PER_NODE=str(ranks))
    assert code == 0, output
    (run,) = hosted.runs(tmp_path)
    assert len(hosted.losses(run)) == 1
    assert (run / f"{saved}.safetensors").is_file()
    assert json.loads((run / "monitor.json").read_text())["ranks"] == ranks
