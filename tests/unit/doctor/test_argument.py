"""A path without an option: what is in it decides what it is, and what is not clear is said with the options."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from builder.commands import doctor
from doctor import __main__ as program
from doctor.read import argument, contents
from doctor.read.files import UnreadableError
from tests.conftest import ROOT
from tests.unit.conftest import Command
from tests.unit.doctor.kit import install

FREEZE = "trl==0.14.0\ntransformers==4.52.4\n"
TRACEBACK = 'Traceback (most recent call last):\n  File "/x/train.py", line 1, in <module>\nKeyError: 1\n'
KINDS = {
    "log": [
        TRACEBACK,
        "[rank0]: ValueError: x\n",
        "2026-11-24 10:00:00,123 - INFO - starting\n2026-11-24 10:00:01,000 - INFO - loading\n",
        "INFO: starting\nINFO: loading\n",
        "Step 5 of 10\nStep 6 of 10\nsomething failed while it was training\n",
        "{'loss': 0.1, 'reward': 1.0}\n{'loss': 0.2, 'reward': 1.0}\n",
        '{"step": 1, "loss": 0.1}\n{"step": 2, "loss": 0.2}\n',
        "  5%|▌         | 5/100 [00:01<00:20,  4.6it/s]\n",
        "learning_rate: 1e-6\nuse_vllm: true\n" + TRACEBACK,  # a log that begins with its configuration
        "Collecting trl\n  Downloading trl-1.0-py3-none-any.whl\nERROR: Cannot install trl and vllm\n",
    ],
    "requirements": [
        FREEZE,
        "# what we need\ntrl>=0.14\ntransformers\n-r more.txt\n",
        "trl\ntransformers\n",
        "deepspeed==0.16.0\n",
        "Package      Version\n------------ -------\ntrl          0.14.0\ndeepspeed    0.16.3\nleft-pad     1.0\n",
        "# packages in environment:\n#\n# Name  Version  Build\ntrl   0.14.0  pypi_0  pypi\nnumpy 1.26.4 py311_0\n",
        f"trl==0.14.0 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{'1' * 64}\n    # via -r x\n",
        "trl @ git+https://github.com/huggingface/trl@v0.14.0\n-e git+https://example.org/x#egg=mine\n",
        'version = 1\n\n[[package]]\nname = "trl"\nversion = "0.14.0"\nsource = { registry = "x" }\n',
        (ROOT / "lockfiles" / "trl1.16-cpu" / "requirements.txt").read_text(),
    ],
    "config": [
        "learning_rate: 1e-6\nuse_vllm: true\nlora_target_modules:\n- q_proj\n",
        "use_vllm: true\nsystem_prompt: |-\n  You are careful.\n  Think first, then answer.\n  Never guess.\n",
        '{"zero_optimization": {"stage": 3}}',
        '{"zero_optimization": {"stage": 3},\n "train_batch',  # cut off
        "{}",
        '[training]\nlearning_rate = 1e-6\nuse_vllm = true\n',
        "from trl import GRPOConfig\n\nargs = GRPOConfig(use_vllm=True)\nraise SystemExit('ValueError: x')\n",
        "#!/bin/sh\nset -e\necho starting the training\n",
        "accelerate launch --config_file zero3.yaml train.py --use_vllm true\n",
        *(path.read_text() for path in sorted((ROOT / "examples" / "gsm8k").glob("*.yaml"))),
    ],
}  # fmt: skip
CASES = [(option, text) for option, texts in KINDS.items() for text in texts]


@pytest.mark.parametrize(("option", "text"), CASES, ids=range(len(CASES)))
def test_what_is_in_a_file_decides_what_it_is(tmp_path: Path, option: str, text: str) -> None:
    for name in ("a.txt", "grpo.yaml", "requirements.txt", "run.log"):
        (tmp_path / name).write_text(text)
        assert argument.of(str(tmp_path / name)) == (option, str(tmp_path / name))


UNCLEAR = [
    ("", "is empty"),
    ("\0\0\n\n", "is empty"),
    ("127.0.0.1 localhost\n", "looks like none of a log, a list of packages and a configuration"),
    ("trl==0.14.0\nuse_vllm: true\n", "looks partly like a list of packages and partly like a configuration"),
    ("# How to train\n\nsee [this](x) for what you must not do\nwhere it failed before\n", "looks like a document"),
    ('[{"name": "trl", "version": "0.14.0"}]', "is a list of packages as JSON"),
    ('[project]\nname = "x"\ndependencies = ["trl"]\n', "is a project's pyproject.toml"),
    ("name: x\ndependencies:\n- python=3.11\n- pip:\n  - trl==0.14.0\n", "is an environment file of conda"),
]


@pytest.mark.parametrize(("text", "looks"), UNCLEAR, ids=range(len(UNCLEAR)))
def test_what_is_not_clear_is_said(tmp_path: Path, text: str, looks: str) -> None:
    kind = contents.kind(text)
    assert (kind.option, kind.looks.startswith(looks)) == ("", True), kind
    assert "--log FILE" in kind.looks or "give the output of" in kind.looks
    if text.strip("\0\n"):
        (tmp_path / "x").write_text(text)
        with pytest.raises(argument.UndecidedError, match=r"x (looks|is) "):
            argument.of(str(tmp_path / "x"))


def test_the_end_of_a_long_log_counts(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a: 1\n" * 400_000 + TRACEBACK)
    assert argument.of(str(tmp_path / "x")).option == "log"
    with (tmp_path / "large").open("wb") as file:
        file.write(b"a: 1\n" * 100_000)
        file.truncate(argument.LARGEST + 1)
    assert argument.of(str(tmp_path / "large")).option == "log"


def folders(root: Path) -> dict[str, Path]:
    (root / "venv").mkdir()
    (root / "venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (root / "conda" / "conda-meta").mkdir(parents=True)
    install(root / "site-packages", "trl", "0.14.0")
    (root / "python3.11").write_text("#!/bin/sh\n")  # a shim of pyenv
    (root / "linked").mkdir()
    (root / "linked" / "python3").write_bytes(b"\x7fELF")
    return {
        "venv": root / "venv", "conda": root / "conda", "packages": root / "site-packages",
        "shim": root / "python3.11", "binary": root / "linked" / "python3",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["venv", "conda", "packages", "shim", "binary"])
def test_an_environment_is_a_folder_of_one_or_a_python(tmp_path: Path, name: str) -> None:
    assert argument.of(str(folders(tmp_path)[name])).option == "python"


def test_what_is_no_environment_is_never_run(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_bytes(b"\x7fELF")
    with pytest.raises(argument.UndecidedError, match=f"is a program whose name is no Python's.*--python {tool}"):
        argument.of(str(tool))
    (tmp_path / "project" / ".venv").mkdir(parents=True)
    (tmp_path / "project" / ".venv" / "pyvenv.cfg").touch()
    with pytest.raises(argument.UndecidedError, match=f"{tmp_path}/project/.venv is one: name that"):
        argument.of(str(tmp_path / "project"))
    with pytest.raises(argument.UndecidedError, match="neither pyvenv"):
        argument.of(str(tmp_path))
    with pytest.raises(UnreadableError, match="does not exist"):
        argument.of(str(tmp_path / "none"))


def ask(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    program.main([*argv, "--json"])
    return json.loads(capsys.readouterr().out)


def written(folder: Path) -> dict[str, str]:
    texts = {"freeze": FREEZE, "log": TRACEBACK, "other": "RuntimeError: y\n", "yaml": "use_vllm: true\n"}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {name: str(folder / name) for name in texts}


def test_paths_mean_what_their_options_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = written(tmp_path)
    said = ask(capsys, paths["log"], "--launch", "torchrun x.py", paths["freeze"], paths["yaml"], paths["other"])
    assert [row["as"] for row in said["given"]] == ["log", "requirements", "config", "log"]
    options = ask(capsys, "--log", paths["log"], "--requirements", paths["freeze"], "--config", paths["yaml"],
                  "--launch", "torchrun x.py")  # fmt: skip
    assert said["packages"] == options["packages"] == {"trl": "0.14.0", "transformers": "4.52.4"}
    assert said["run"]["options"] == options["run"]["options"] == {"use_vllm": "true"}
    assert "KeyError: 1" in said["run"]["error"] and "RuntimeError: y" in said["run"]["error"]
    both = ask(capsys, "--log", paths["log"], "--log", paths["other"], "--requirements", paths["freeze"])
    assert both["run"]["error"] == said["run"]["error"]
    program.main([paths["log"], paths["freeze"]])
    assert f"Given: {paths['log']} (a log), {paths['freeze']} (a list of packages)" in capsys.readouterr().out


def test_two_environments_are_one_too_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = written(tmp_path)
    assert program.main([paths["freeze"], "--python", sys.executable]) == 3
    assert "both say what is installed: name one of them" in capsys.readouterr().err
    assert program.main([paths["freeze"], "--requirements", paths["freeze"]]) in (0, 1)  # the same is one


def test_the_command_takes_paths(command: Command, tmp_path: Path) -> None:
    paths = written(tmp_path)
    answer = command(ROOT, "doctor", paths["freeze"], paths["log"], "--json")
    assert answer.json["findings"][0]["rule"] == "VETTED-0001"
    assert [row["as"] for row in answer.json["given"]] == ["requirements", "log"]
    answer = command(ROOT, "doctor", paths["freeze"], "--log", paths["log"], "--log", paths["other"], "--json")
    assert "KeyError: 1" in answer.json["run"]["error"] and "RuntimeError: y" in answer.json["run"]["error"]
    (tmp_path / "empty").touch()
    answer = command(ROOT, "doctor", str(tmp_path / "empty"))
    assert (answer.code, answer.out) == (3, "")
    assert "is empty; --log FILE, --requirements FILE, --config FILE or --python PATH says what it is" in answer.err


def test_a_path_may_begin_with_a_dash(command: Command, tmp_path: Path) -> None:
    (tmp_path / "-x").write_text(FREEZE)
    answer = command(tmp_path, "doctor", "--json", "--", "-x")
    assert answer.json["packages"] == {"trl": "0.14.0", "transformers": "4.52.4"}


def test_an_image_is_an_environment_already(command: Command, tmp_path: Path) -> None:
    paths = written(tmp_path)
    answer = command(ROOT, "doctor", "--image", "x", paths["freeze"])
    assert answer.code == 3
    assert f"{paths['freeze']} (a list of packages) and the image both say what is installed" in answer.err


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that stands for the root of a container: what is mounted there lies there, and a Python runs."""
    root = tmp_path / "root"

    def run(argv: list[str], *_: object) -> doctor.Answer:
        for place, word in enumerate(argv):
            if word == "--mount":
                source, target = next(csv.reader([argv[place + 1]]))[1:3]
                inside = root / target.removeprefix("target=/")
                inside.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source.removeprefix("source="), inside)
        script = argv.index("/vetted/doctor.py")
        words = [word.replace("=/vetted/", f"={root}/vetted/") for word in argv[script + 1 :]]
        done = subprocess.run([sys.executable, "-I", str(root / "vetted/doctor.py"), *words],
                              capture_output=True, text=True, check=False)  # fmt: skip
        return doctor.Answer(done.returncode, done.stdout, done.stderr)

    monkeypatch.setattr("builder.image.daemon.docker", lambda: None)
    monkeypatch.setattr(doctor, "_run", run)
    return root


def test_everything_that_is_given_is_read_in_an_image_and_has_its_name_there(
    command: Command, tmp_path: Path, container: Path
) -> None:
    paths = written(tmp_path)
    odd = tmp_path / 'my, "own" \u8bad\u7ec3.yaml'
    odd.write_text("use_vllm: true\nstop: [a\n")
    answer = command(ROOT, "doctor", "--image", "x", paths["log"], paths["other"], "--config", str(odd), "--json")
    assert answer.code == 1, answer.err
    run = answer.json["run"]
    assert "KeyError: 1" in run["error"] and "RuntimeError: y" in run["error"]
    damage = "is cut off, or line 2 opens a bracket ([) that nothing closes"
    assert run["damaged"] == [f"{container}/vetted/0/my___own__\u8bad\u7ec3.yaml {damage}"]


def test_the_single_file_takes_paths(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "doctor.py"
    assert command(ROOT, "doctor", "--single-file", str(file)).code == 0
    paths = written(tmp_path)
    argv = [sys.executable, "-I", str(file), paths["log"], "--json", paths["freeze"]]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout)["findings"][0]["rule"] == "VETTED-0001"
