"""What a folder or an environment of the user's tries against training in an image."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from runtime import parent, preflight, train
from tests.conftest import ROOT, Small
from tests.unit.runtime.test_runtime import Machine

CPU = {"torch": "2.13.0+cpu"}
SITE = sysconfig.get_path("purelib").lstrip("/")
# A stack as small as the script of a run needs it: it says whose modules it was given, and runs the reward function.
STACK = {
    "torch.py": "WHOSE = 'stack'\n",
    "transformers.py": "class TrainerCallback: ...\nclass Trainer:\n    def train(self): ...\nclass trainer: ...\n",
    "trl/__init__.py": "",
    "trl/scripts/__init__.py": "",
    "trl/scripts/grpo.py": """
import dataclasses, importlib, json, torch

@dataclasses.dataclass
class GRPOScriptArguments:
    reward_funcs: list = None

class Parser:
    def parse_args_and_config(self):
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
        tmp_path / "here", {"mine.py": "WHOSE = 'mine'\n"} | dict.fromkeys(("torch.py", "trl.py", "json.py"), EVIL)
    )
    # The script is started as `vetted train` starts it: in an environment that it has prepared.
    prepared = (
        "import os, sys, subprocess; from runtime import train; train._environment();"
        f"os.environ['PYTHONPATH'] = os.pathsep.join([{str(ROOT)!r}, {str(stack)!r}]);"
        f"sys.exit(subprocess.call([sys.executable, *{worker!r}, '-m', 'runtime.script'], cwd={str(here)!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", prepared], env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "stack json mine\n", done.stderr


def test_a_pythonpath_of_the_user_comes_before_the_stack(tmp_path: Path) -> None:
    """Neither the command nor what it starts sees it, and it is said."""
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
    """`nvidia/` of CUDA's wheels has no `__init__.py`: a module `nvidia` wins over it, wherever it lies."""
    machine = Machine(tmp_path, CPU)
    machine.write(f"{SITE}/nvidia/cublas/__init__.py", "")
    machine.write("here/nvidia.py", "")
    assert machine.stops() == ["nvidia in /here would be imported in place of the stack's\n         rename it"]


def test_a_name_of_the_stack_beside_the_config_is_not_noticed(tmp_path: Path) -> None:
    """Preflight names every module that will not be imported; a folder of data with such a name is none."""
    machine = Machine(tmp_path, CPU)
    machine.write(f"{SITE}/torch/__init__.py", "")
    machine.write(f"{SITE}/datasets/__init__.py", "")
    for name in ("torch.py", "json/__init__.py", "datasets/train.jsonl", "rewards.py"):
        machine.write(f"here/{name}", "")
    advice = [said for level, said in machine.findings() if level == "advice" and "imported" in said]
    assert [said.splitlines()[0] for said in advice] == [
        "json, torch in /here will not be imported: the stack or Python has a module of that name"
    ]
    assert machine.stops() == []


def test_a_clone_of_this_project_raises_no_alarm(tmp_path: Path) -> None:
    """Its folder `runtime` is what the image carries; another one of that name is not."""
    machine = Machine(tmp_path, CPU)
    machine.write("here/runtime/__init__.py", "")
    assert any("runtime in /here" in said for _, said in machine.findings())
    machine.write("here/runtime/collisions.py", "")
    assert not any("runtime in /here" in said for _, said in machine.findings())


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
    """It does not start where one lies."""
    machine = Machine(tmp_path, CPU)
    machine.write(f"here/{name}", SECRETS[name])
    (stop,) = machine.stops()
    assert stop.startswith(f"/here contains {name.partition('/')[0]!r}, which everything that a run imports could read")


def test_a_folder_of_a_project_without_secrets_is_refused(tmp_path: Path) -> None:
    """What `vetted use` writes, a public key and a configuration are none."""
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
    done = subprocess.run(["git", "check-ignore", "--quiet", "--no-index", name], cwd=ROOT, check=False)
    assert done.returncode == 0


# --- what preflight believes ---------------------------------------------------------------------------------------

NONE = "no verdict on the certificates of tiny"


def test_an_unsigned_certificate_in_the_container_covers_the_machine(small: Small, tmp_path: Path) -> None:
    """Whatever is mounted and whatever the environment says: only the record of `vetted use` counts."""
    machine = Machine(tmp_path / "root", CPU)
    issued = small.issue("docker", subject="sha256:" + "a" * 64).read_text()
    machine.write("run/vetted/certificates/cpu-docker.json", issued)
    environ = {"VETTED_IMAGE": "there/tiny@sha256:" + "a" * 64, "VETTED_STACK": "tiny"}
    assert machine.findings(environ)[0][1].startswith(NONE)


@pytest.mark.parametrize("field", ["stack", "lock", "runtime"])
def test_the_record_of_one_image_covers_another(tmp_path: Path, field: str) -> None:
    """The lock and the runtime are compared with those that the image itself carries."""
    machine = Machine(tmp_path, CPU)
    other: dict[str, Any] = {field: "another"}
    machine.judged(**other)
    level, said = machine.findings({"VETTED_IMAGE": "there/tiny@sha256:" + "c" * 64})[0]
    assert level == "advice"
    assert "not this image" in said


def test_an_image_that_says_nothing_of_itself_is_covered_by_any_record(tmp_path: Path) -> None:
    """An image of somebody else's has no lock to compare."""
    machine = Machine(tmp_path, CPU)
    machine.judged()
    machine.write("etc/vetted/stack.json", "{}")
    assert machine.findings()[0][0] == "advice"


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
    """Every field has its form, and a certificate of tomorrow is none of today."""
    machine = Machine(tmp_path, CPU)
    good = {
        "hardware": preflight.hardware(tmp_path, []), "issued": "2026-01-01", "expires": "9999-12-31", "file": "0.json"
    }  # fmt: skip
    machine.judged(certificates=[good])
    assert machine.findings()[0][0] == "ok"
    machine.judged(certificates=[good | {field: value}])
    level, said = machine.findings()[0]
    assert level == "advice"
    assert "\x1b" not in said


# --- how a run is left behind --------------------------------------------------------------------------------------

# A launcher as torch's: its ranks have sessions of their own. A rank says who it is and works until it is asked to end.
LAUNCHER = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-m', 'rank'], start_new_session=True))\n"
RANK = """
import os, pathlib, time
from runtime import parent
parent.follow()
print(os.getpid(), flush=True)
while not pathlib.Path('.stop').exists(): time.sleep(0.01)
"""
RUN = (
    "import os, pathlib, signal, sys; from runtime import parent, train; parent.NO_INPUT = 0; train.AGAIN = {again};"
    "parent.on_disconnect(lambda: os.kill(os.getpid(), signal.SIGHUP));"
    "sys.exit(train._run([sys.executable, '-m', 'runtime.parent', 'launcher'], pathlib.Path('.stop')))"
)


def start(folder: Path, *, rank: str = RANK, again: float = 0.0) -> subprocess.Popen[str]:
    lay(folder, {"launcher.py": LAUNCHER, "rank.py": rank})
    return subprocess.Popen(
        [sys.executable, "-c", RUN.format(again=again)], cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(folder))), parent.CLIENT: "1"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(process: int) -> bool:
    """Wait for the end of a process that is no child of this one."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 30)[0])
    finally:
        os.close(descriptor)


def test_a_run_goes_on_when_its_command_is_killed(tmp_path: Path) -> None:
    """A rank in a session of its own ends with `vetted train`, though nobody could tell it to."""
    with start(tmp_path) as command:
        assert command.stdout is not None
        rank = int(command.stdout.readline())
        command.kill()
        assert ended(rank)


def test_a_rank_that_starts_after_its_command_was_killed_goes_on(tmp_path: Path) -> None:
    """It looks for the command among its ancestors."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    environ = {**os.environ, "PYTHONPATH": str(ROOT), parent.TRAIN: str(gone.pid)}
    done = subprocess.run(
        [sys.executable, "-c", RANK], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "the command that started this run has ended" in done.stderr


def test_a_rank_in_a_session_of_its_own_survives_the_second_interrupt(tmp_path: Path) -> None:
    """Asked twice, all end at once."""
    deaf = RANK.replace("while not pathlib.Path('.stop').exists(): time.sleep(0.01)", "time.sleep(600)")
    with start(tmp_path, rank=deaf) as command:
        assert command.stdout is not None and command.stderr is not None
        rank = int(command.stdout.readline())
        command.send_signal(signal.SIGTERM)
        assert (command.stderr.readline(), command.stderr.readline()[:7]) == ("\n", "vetted:")
        command.send_signal(signal.SIGTERM)
        assert command.wait(timeout=30) == train.INTERRUPTED
        assert ended(rank)


# It writes its checkpoint when the test says so.
SLOW = (
    RANK
    + """
print('asked', flush=True)
while not pathlib.Path('go').exists(): time.sleep(0.01)
pathlib.Path('checkpoint').touch()
"""
)


@pytest.mark.parametrize(("number", "again"), [(signal.SIGINT, 600.0), (signal.SIGHUP, 0.0)])
def test_one_interrupt_that_comes_twice_costs_the_checkpoint(tmp_path: Path, number: int, again: float) -> None:
    """Docker's client and its plugin both pass one Ctrl-C on, and then the client goes."""
    with start(tmp_path, rank=SLOW, again=again) as command:
        assert command.stdin is not None and command.stdout is not None
        command.stdout.readline()
        command.send_signal(signal.SIGINT)
        assert command.stdout.readline() == "asked\n"
        command.send_signal(number)
        command.stdin.close()
        (tmp_path / "go").touch()
        assert command.wait(timeout=30) == train.INTERRUPTED
    assert (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("number", train.SIGNALS)
def test_an_interrupt_is_lost_when_nobody_reads_what_is_said(tmp_path: Path, number: int) -> None:
    """The pipe behind standard error is closed: the run ends with a checkpoint all the same."""
    with start(tmp_path) as command:
        assert command.stdout is not None and command.stderr is not None
        rank = int(command.stdout.readline())
        command.stderr.close()
        command.send_signal(number)
        assert command.wait(timeout=30) == train.INTERRUPTED
        assert ended(rank)


def test_a_run_in_a_container_goes_on_when_the_client_that_was_attached_to_it_is_gone(tmp_path: Path) -> None:
    """`docker compose run -T` passes no signal on, but Docker closes the container's standard input."""
    with start(tmp_path) as command:
        assert command.stdin is not None and command.stdout is not None
        rank = int(command.stdout.readline())
        command.stdin.close()
        assert command.wait(timeout=30) == train.INTERRUPTED
        assert ended(rank)


@pytest.mark.parametrize(("no_input", "said"), [(600, ""), (0, "asked\n")])
def test_an_input_that_was_empty_from_the_beginning_ends_a_run(no_input: float, said: str) -> None:
    """`< /dev/null` is no client that goes."""
    watch = (
        f"from runtime import parent; parent.NO_INPUT = {no_input};parent.on_disconnect(lambda: print('asked')).join()"
    )
    done = subprocess.run(
        [sys.executable, "-c", watch], env={**os.environ, "PYTHONPATH": str(ROOT), parent.CLIENT: "1"},
        input="", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == said
