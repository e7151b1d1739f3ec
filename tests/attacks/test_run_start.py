"""Attacks on the start of a run in an image: modules, secrets and records in its user's folder or environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from runtime import preflight
from tests import parts
from tests.conftest import ROOT, Small
from tests.unit.runtime.kit import Machine

CPU = {"torch": "2.13.0+cpu"}
SITE = sysconfig.get_path("purelib").lstrip("/")
# A stack as small as the script of a run needs it: it says whose modules it was given, and runs the reward function.
STACK = {
    "torch.py": "WHOSE = 'stack'\n",
    "datasets.py": "def load_dataset(): ...\n",
    "transformers.py": """
class TrainerCallback: ...
class Trainer:
    def train(self): ...
class TrainingArguments:
    def __post_init__(self): ...
class trainer: ...
""",
    "trl/__init__.py": "",
    "trl/scripts/__init__.py": "",
    "trl/scripts/grpo.py": """
import dataclasses, importlib, json, torch

@dataclasses.dataclass
class GRPOScriptArguments:
    reward_funcs: list = None

class Parser:
    def parse_args_and_config(self, arguments):
        return ()

def make_parser():
    return Parser()

def main(*_):
    import mine
    print(torch.WHOSE, json.__name__, mine.WHOSE)
""",
}


def lay(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def image(tmp_path: Path) -> Path:
    """The command `vetted` as an image has it, but for where it lies."""
    home = tmp_path / "opt"
    shutil.copytree(ROOT / "runtime", home / "runtime", ignore=shutil.ignore_patterns("__pycache__"))
    command = home / "vetted"
    command.write_text((ROOT / "runtime" / "launcher.py").read_text().replace("/opt/vetted", str(home)))
    return command


EVIL = "raise SystemExit('the module of the user was imported')\n"


@pytest.mark.parametrize("worker", [["-P"], []], ids=["alone", "of a launcher"])
def test_a_module_beside_the_config_takes_the_place_of_one_of_the_stack(tmp_path: Path, worker: list[str]) -> None:
    """`torch.py`, `trl.py` and `json.py` lie beside the config: only `mine.py` is imported."""
    stack = lay(tmp_path / "stack", STACK)
    here = lay(
        tmp_path / "here",
        {"config.yaml": "", "mine.py": "WHOSE = 'mine'\n"} | dict.fromkeys(("torch.py", "trl.py", "json.py"), EVIL),
    )
    # The script is started as `vetted train` starts it: in an environment that it has prepared.
    prepared = (
        "import os, sys, subprocess; from runtime.train import environment;"
        "os.environ |= environment.complete(os.environ);"
        f"os.environ['PYTHONPATH'] = os.pathsep.join([{str(ROOT)!r}, {str(stack)!r}]);"
        f"os.environ |= {{'VETTED_OUTPUT': {str(here)!r}, 'VETTED_CHECKPOINT': ''}};"
        f"command = [sys.executable, *{worker!r}, '-m', 'runtime.script', 'grpo'];"
        f"sys.exit(subprocess.call(command, cwd={str(here)!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", prepared], env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "stack json mine\n", done.stderr


def test_a_script_in_a_folder_finds_the_modules_beside_it(tmp_path: Path) -> None:
    """As with `python folder/my.py`, but the stack takes precedence."""
    stack = lay(tmp_path / "stack", STACK)
    here = lay(tmp_path / "here", {"folder/my.py": "import mine, torch; print(mine.WHOSE, torch.WHOSE)\n"})
    lay(here / "folder", {"mine.py": "WHOSE = 'mine'\n", "torch.py": EVIL})
    done = subprocess.run(
        [sys.executable, "-P", "-m", "runtime.script", "folder/my.py"], cwd=here,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(stack)]), "VETTED_OUTPUT": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "mine stack\n", done.stderr


def test_a_pythonpath_of_the_user_comes_before_the_stack(tmp_path: Path) -> None:
    """Neither the command nor its children see it, and a message says so."""
    command = image(tmp_path)
    evil = lay(tmp_path / "evil", dict.fromkeys(("json.py", "argparse.py", "runtime.py"), EVIL))
    done = subprocess.run(
        [sys.executable, "-IB", str(command), "preflight"],
        env={**os.environ, "PYTHONPATH": str(evil)}, cwd=evil, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "the module of the user" not in done.stderr
    assert f"vetted: PYTHONPATH={evil} is not used" in done.stderr
    assert "/runs" in done.stdout  # preflight ran
    assert command.read_text().startswith("#!/usr/bin/env -S python -IB\n")


def test_a_module_that_would_win_over_a_folder_of_the_stack_stops_the_run(tmp_path: Path) -> None:
    """`nvidia/` of CUDA's wheels has no `__init__.py`: any module `nvidia` takes precedence over it."""
    machine = Machine(tmp_path, CPU)
    machine.write(f"{SITE}/nvidia/cublas/__init__.py", "")
    machine.write("here/nvidia.py", "")
    assert machine.stops() == ["nvidia in /here would be imported in place of the stack's\n         rename it"]


def test_a_name_of_the_stack_beside_the_config_is_not_noticed(tmp_path: Path) -> None:
    """Preflight names every module that will not be imported; a data folder with such a name is not one."""
    machine = Machine(tmp_path, CPU)
    machine.write(f"{SITE}/torch/__init__.py", "")
    machine.write(f"{SITE}/datasets/__init__.py", "")
    for name in ("torch.py", "json/__init__.py", "datasets/train.jsonl", "rewards.py"):
        machine.write(f"here/{name}", "")
    advice = [message for level, message in machine.checks() if level == "advice" and "imported" in message]
    assert [message.splitlines()[0] for message in advice] == [
        "json, torch in /here will not be imported: the stack or Python has a module of that name"
    ]
    assert machine.stops() == []


def test_a_clone_of_this_project_raises_no_alarm(tmp_path: Path) -> None:
    """Its folder `runtime` is the one in the image; another folder of that name raises an alarm."""
    machine = Machine(tmp_path, CPU)
    machine.write("here/runtime/__init__.py", "")
    assert any("runtime in /here" in message for _, message in machine.checks())
    machine.write("here/runtime/collisions.py", "")
    assert not any("runtime in /here" in message for _, message in machine.checks())


# --- what a run could read -----------------------------------------------------------------------------------------

KEY = "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nx\n"
SECRETS = {
    "cosign.key": KEY,
    "renamed.txt": KEY,
    "id_ed25519": "-----BEGIN OPENSSH PRIVATE KEY-----\n",
    "secrets/hf_token": "x",
    ".ssh/config": "x",
    ".aws/credentials": "x",
    ".netrc": "x",
    ".bashrc": "x",
    ".env": "VETTED_IMAGE=x\nHF_TOKEN=hf_abcdefgh\n",
    ".env.local": "export AWS_SECRET_ACCESS_KEY='abcdefgh'\n",
    ".git/config": "[remote]\n\turl = https://me:token@git.example/x\n",
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_run_reads_a_secret_beside_the_config(tmp_path: Path, name: str) -> None:
    """The run does not start if the folder has a secret."""
    machine = Machine(tmp_path, CPU)
    machine.write(f"here/{name}", SECRETS[name])
    (stop,) = machine.stops()
    assert stop.startswith(f"/here contains {name.partition('/')[0]!r}, which everything that a run imports could read")


def test_a_folder_of_a_project_without_secrets_is_refused(tmp_path: Path) -> None:
    """Files that `vetted use` writes, a public key and a configuration are not secrets."""
    machine = Machine(tmp_path, CPU)
    (machine.root / "here").mkdir()
    os.mkfifo(machine.root / "here" / "fifo")
    for name, text in {
        ".env": "VETTED_IMAGE=x\nHF_TOKEN=\nMAX_TOKEN=512\nTOKENIZERS_PARALLELISM=disabled\n",
        "cosign.pub": "-----BEGIN PUBLIC KEY-----\n",
        "my.yaml": "max_token: 1\n",
        ".git/config": "[remote]\n\turl = https://git.example/x\n",
        "tokens/train.jsonl": "{}",
    }.items():
        machine.write(f"here/{name}", text)
    assert machine.stops() == []


@pytest.mark.parametrize("name", ["cosign.key", "other.key", "secrets/hf_token", ".env", "work/.env", "work/secrets/x"])
def test_a_secret_is_committed_unseen(name: str) -> None:
    """Git ignores them."""
    done = subprocess.run([parts.git(), "check-ignore", "--quiet", "--no-index", name], cwd=ROOT, check=False)
    assert done.returncode == 0


# --- what preflight believes ---------------------------------------------------------------------------------------

NONE = "no verdict on the certificates of tiny"


def test_an_unsigned_certificate_in_the_container_covers_the_machine(small: Small, tmp_path: Path) -> None:
    """Only the record of `vetted use` counts, whatever is mounted or set in the environment."""
    machine = Machine(tmp_path / "root", CPU)
    issued = small.issue("docker", subject="sha256:" + "a" * 64).read_text()
    machine.write("run/vetted/certificates/cpu-docker.json", issued)
    environ = {"VETTED_IMAGE": "there/tiny@sha256:" + "a" * 64, "VETTED_STACK": "tiny"}
    assert machine.checks(environ)[0][1].startswith(NONE)


@pytest.mark.parametrize("field", ["stack", "lock", "runtime"])
def test_the_record_of_one_image_covers_another(tmp_path: Path, field: str) -> None:
    """The lock and the runtime are compared with those in the image."""
    machine = Machine(tmp_path, CPU)
    other: dict[str, Any] = {field: "another"}
    machine.judged(**other)
    level, message = machine.checks({"VETTED_IMAGE": "there/tiny@sha256:" + "c" * 64})[0]
    assert level == "advice"
    assert "not this image" in message


def test_an_image_that_says_nothing_of_itself_is_covered_by_any_record(tmp_path: Path) -> None:
    """An image from somebody else has no lock to compare."""
    machine = Machine(tmp_path, CPU)
    machine.judged()
    machine.write("etc/vetted/stack.json", "{}")
    assert machine.checks()[0][0] == "advice"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("issued", "9998-01-01"),
        ("expires", "9999"),
        ("expires", 99999999),
        ("file", "../../etc/x.json"),
        ("hardware", "\x1b]52;c;x\x07"),
        ("hardware", None),
    ],
)
def test_a_record_with_what_use_never_writes_is_believed(tmp_path: Path, field: str, value: object) -> None:
    """Every field is validated, and a certificate from tomorrow does not count today."""
    machine = Machine(tmp_path, CPU)
    good = {
        "hardware": preflight.hardware(tmp_path, []), "issued": "2026-01-01", "expires": "9999-12-31", "file": "0.json"
    }  # fmt: skip
    machine.judged(certificates=[good])
    assert machine.checks()[0][0] == "ok"
    machine.judged(certificates=[good | {field: value}])
    level, message = machine.checks()[0]
    assert level == "advice"
    assert "\x1b" not in message
