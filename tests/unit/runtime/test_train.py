"""Train: its arguments, the folder and the config of a run, and how a run ends."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runtime import train
from runtime.train import Options, UsageError
from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], Options(None, False, None, ())),
        (["--config", "my.yaml"], Options(Path("my.yaml"), False, None, ())),
        (["--config=my.yaml", "--beta", "0.1"], Options(Path("my.yaml"), False, None, ("--beta", "0.1"))),
        (["--resume"], Options(None, True, None, ())),
        (["--resume", "20261121-190000"], Options(None, True, "20261121-190000", ())),
        (["--resume", "--max_steps", "80"], Options(None, True, None, ("--max_steps", "80"))),
        (["--max_steps", "80", "--resume"], Options(None, True, None, ("--max_steps", "80"))),
        # In their order, negative numbers and lists included, and nothing of TRL's is taken for an abbreviation.
        (
            ["--res", "x", "--temperature", "-0.5", "--config", "my.yaml", "--reward_funcs", "a.b", "c.d", "--conf=1"],
            Options(
                Path("my.yaml"),
                False,
                None,
                ("--res", "x", "--temperature", "-0.5", "--reward_funcs", "a.b", "c.d", "--conf=1"),
            ),
        ),
        (["--help"], Options(None, False, None, ("--help",))),
    ],
)
def test_what_is_ours_is_taken_and_the_rest_is_trls(arguments: list[str], options: Options) -> None:
    assert train.parse(arguments) == options


@pytest.mark.parametrize(
    "arguments",
    [
        ["--config"],
        ["--config", "--beta", "0.1"],
        ["--config", "a.yaml", "--resume"],
        ["--output_dir", "/elsewhere"],
        ["--output_dir=/elsewhere"],
        ["--resume", "../other"],
        ["--resume=.."],
        ["--resume="],
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: list[str]) -> None:
    with pytest.raises(UsageError):
        train.parse(arguments)


def test_a_run_has_a_folder_of_its_own_with_the_config_as_it_was(tmp_path: Path) -> None:
    config = tmp_path / "my.yaml"
    config.write_text("beta: 0.1\n")
    options = Options(config, False, None, ())
    folders = [train._new(tmp_path, options) for _ in range(3)]
    assert len(set(folders)) == 3
    assert all((folder / train.CONFIG).read_text() == "beta: 0.1\n" for folder in folders)
    for missing in ("other.yaml", "my.yaml/other.yaml", "."):
        with pytest.raises(UsageError, match="is not there"):
            train._new(tmp_path, Options(tmp_path / missing, False, None, ()))
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 3


def test_any_number_of_runs_may_begin_in_one_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Clock:
            return cls(2026, 1, 2, 3, 4, 5, tzinfo=tz)

    monkeypatch.setattr(datetime, "datetime", Clock)
    (tmp_path / "my.yaml").write_text("max_steps: 1\n")
    options = Options(tmp_path / "my.yaml", resume=False, run=None, trl=())
    (tmp_path / "runs").mkdir()
    assert len({train._new(tmp_path / "runs", options) for _ in range(120)}) == 120


def test_the_latest_run_goes_on_from_its_last_whole_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run to resume"):
        train._resumed(tmp_path, None)
    for name in ("20261120-000000", "20261121-000000", "20261122-000000"):
        (tmp_path / name).mkdir()
        if name != "20261122-000000":  # it ended before it had a config
            (tmp_path / name / train.CONFIG).touch()
    latest = train._resumed(tmp_path, None)
    assert latest.name == "20261121-000000"
    assert train._resumed(tmp_path, "20261120-000000").name == "20261120-000000"
    with pytest.raises(UsageError, match="the latest are: 20261120-000000, 20261121-000000"):
        train._resumed(tmp_path, "20261123-000000")
    assert train.latest(latest) is None
    for step in (9, 10, 100):
        (latest / f"checkpoint-{step}").mkdir()
        if step != 100:  # it was killed in the middle of this one
            (latest / f"checkpoint-{step}" / "trainer_state.json").touch()
    assert train.latest(latest) == latest / "checkpoint-10"


@pytest.mark.parametrize("text", ["report_to: wandb\n", '{"report_to": "wandb"}\n', '{\n "report_to": "wandb"\n}\n'])
def test_where_a_user_reports_to_is_left_alone(tmp_path: Path, text: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("beta: 0.1\n# report_to: wandb\n")
    assert not train._sets(config, (), "report_to")
    assert train._sets(config, ("--report_to=wandb",), "report_to")
    config.write_text(text)
    assert train._sets(config, (), "report_to")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"just text\n",
        b"- report_to: wandb\n",
        b"model_init_kwargs:\n  report_to: wandb\n",
        b"prompt: |\n  report_to: wandb\n",
        b"report_to: [wandb\n",
        b"report_to: wandb\nday: 2026-13-45\n",
        b"report_to: \xff\n",
    ],
)
def test_a_config_that_sets_nothing_or_is_wrong_is_left_to_trl(tmp_path: Path, data: bytes) -> None:
    """TRL reports a mistake in its own words; a setting counts on the top level only."""
    config = tmp_path / "config.yaml"
    config.write_bytes(data)
    assert not train._sets(config, (), "report_to")


# The script of a run, as far as its end goes: it says that it works, and ends at the file, or never.
POLITE = "import pathlib, time; print('step', flush=True)\nwhile not pathlib.Path('.stop').exists(): time.sleep(0.01)"
DEAF = "import time; print('step', flush=True); time.sleep(600)"
CLUMSY = POLITE + "\nraise SystemExit(3)"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("script", "asked", "code"), [(POLITE, 1, train.INTERRUPTED), (DEAF, 2, train.INTERRUPTED), (CLUMSY, 1, 3)]
)
def test_asked_once_a_run_ends_by_itself_and_asked_twice_at_once(
    tmp_path: Path, script: str, asked: int, code: int, number: int
) -> None:
    (tmp_path / ".stop").touch()  # an earlier run was killed
    run = f"train._run([sys.executable, '-c', {script!r}], pathlib.Path('.stop'))"
    command = f"import sys, pathlib; from runtime import train; train.AGAIN = 0; sys.exit({run})"
    with subprocess.Popen(
        [sys.executable, "-c", command], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None and child.stderr is not None
        assert child.stdout.readline() == "step\n"
        child.send_signal(number)
        assert child.stderr.readline() == "\n"
        assert child.stderr.readline().startswith("vetted: ending with a checkpoint after this step")
        if asked == 2:
            child.send_signal(number)
        assert child.wait(timeout=30) == code
    assert not (tmp_path / ".stop").exists()


def test_a_run_that_is_left_alone_ends_as_its_script_does(tmp_path: Path) -> None:
    assert train._run([sys.executable, "-c", "raise SystemExit(7)"], tmp_path / ".stop") == 7
    out_of_memory = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert train._run([sys.executable, "-c", out_of_memory], tmp_path / ".stop") == 137
