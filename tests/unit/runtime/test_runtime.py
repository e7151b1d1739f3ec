"""The commands of an image: the findings of preflight, the arguments of train, and the files of a run."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from builder.image import context
from runtime import metrics, preflight, smoke, train, verdict
from runtime.train import Options, UsageError
from tests.conftest import ROOT, Small

OF_THIS_IMAGE = {"lock": "sha256:" + "a" * 64, "runtime": "sha256:" + "b" * 64}
CUDA = {"torch": "2.13.0", "nvidia-cuda-runtime": "13.0.96"}
VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Wed Jan  1 00:00:00 UTC 2026\nGCC version: 12\n"


class Machine:
    """The files of a container that preflight looks at."""

    def __init__(self, root: Path, distributions: Mapping[str, str], driver: str | None = None, gpus: int = 0) -> None:
        self.root = root
        description = {"stack": "tiny", **OF_THIS_IMAGE, "distributions": dict(distributions)}
        self.write("etc/vetted/stack.json", json.dumps(description))
        self.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC\n")
        (root / "dev/shm").mkdir(parents=True)
        (root / "runs").mkdir()
        if driver:
            self.write("proc/driver/nvidia/version", VERSION.format(driver))
            self.write("usr/lib/x86_64-linux-gnu/libcuda.so.1", "")
        for number in range(gpus):
            self.write(f"proc/driver/nvidia/gpus/0000:0{number}/information", "Model: \t\t NVIDIA H200\nIRQ: 1\n")

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def gpu(self, number: int, minor: int) -> None:
        fields = f"Model: \t\t NVIDIA H{number}\nGPU UUID: \t GPU-{number}f00\nDevice Minor: \t {minor}\n"
        self.write(f"proc/driver/nvidia/gpus/0000:0{number}/information", fields)
        self.write(f"dev/nvidia{minor}", "")

    def judged(self, hardware: str = "", expires: int = 1, issued: int = 0, **other: object) -> None:
        """Write a verdict as `vetted use` does, on this image and machine except for the arguments; days from today."""
        today = datetime.datetime.now(datetime.UTC).date()
        certificate = {
            "hardware": hardware or preflight.hardware(self.root, []), "file": "0.json",
            "issued": str(today + datetime.timedelta(issued)), "expires": str(today + datetime.timedelta(expires)),
        }  # fmt: skip
        document = {
            "image": "sha256:" + "c" * 64, "stack": "tiny", **OF_THIS_IMAGE, "judged": str(today),
            "certificates": [certificate], **other,
        }  # fmt: skip
        self.write("run/vetted/certificates.json", json.dumps(document))

    def findings(self, environ: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
        return [(finding.level, str(finding)) for finding in preflight.look(self.root, environ or {})]

    def stops(self) -> list[str]:
        return [text for level, text in self.findings() if level == "stop"]


def test_a_stack_for_cpus_needs_no_gpu(tmp_path: Path) -> None:
    assert Machine(tmp_path, {"torch": "2.13.0+cpu"}).stops() == []


@pytest.mark.parametrize(
    ("driver", "gpus", "message"),
    [
        (None, 0, "no GPU is visible"),
        ("580.65.06", 0, "no GPU is visible"),
        ("570.86.10", 1, "driver 570.86.10 is too old for CUDA 13.0, which needs 580 or newer"),
        ("580.65.06", 1, None),
        ("610.10", 8, None),
    ],
)
def test_a_driver_is_held_against_the_cuda_of_the_stack(
    tmp_path: Path, driver: str | None, gpus: int, message: str | None
) -> None:
    stops = Machine(tmp_path, CUDA, driver, gpus).stops()
    assert len(stops) == (message is not None)
    assert all(stop.startswith(str(message)) for stop in stops)


@pytest.mark.parametrize("folder", ["usr/lib/aarch64-linux-gnu", "usr/local/nvidia/lib64", "opt/driver"])
def test_a_container_without_the_drivers_library_is_told_which_capability_it_lacks(folder: str, tmp_path: Path) -> None:
    """Such as one that was started with the capabilities gpu and utility alone."""
    machine = Machine(tmp_path, CUDA, "580.65.06", 1)
    assert machine.stops() == []
    (tmp_path / "usr/lib/x86_64-linux-gnu/libcuda.so.1").unlink()
    (stop,) = machine.stops()
    assert "libcuda.so.1 is not here" in stop and "capabilities: [gpu, compute, utility]" in stop
    machine.write(f"{folder}/libcuda.so.1", "")
    variables = {"LD_LIBRARY_PATH": "/nowhere:/opt/driver"}
    assert [text for level, text in machine.findings(variables) if level == "stop"] == []


def test_where_the_driver_cannot_be_looked_at_nothing_is_sure_to_fail(tmp_path: Path) -> None:
    machine = Machine(tmp_path, CUDA)
    assert machine.stops()
    machine.write("dev/dxg", "")  # Windows' subsystem for Linux has this, and no /proc/driver/nvidia
    assert machine.stops() == []
    assert "WSL provides the GPU" in machine.findings()[1][1]


def test_an_old_driver_runs_every_minor_version_of_its_cuda(tmp_path: Path) -> None:
    assert Machine(tmp_path, {"nvidia-cuda-runtime-cu12": "12.8.90"}, "535.1", 1).stops() == []


@pytest.mark.parametrize(
    ("visible", "models"),
    [
        (None, ["NVIDIA H0", "NVIDIA H1", "NVIDIA H2"]),
        ("1", ["NVIDIA H1"]),
        ("2,0", ["NVIDIA H2", "NVIDIA H0"]),
        ("GPU-1f", ["NVIDIA H1"]),
        ("0,7,1", ["NVIDIA H0"]),  # as CUDA: up to the first that is not there
        ("GPU-", []),
        ("MIG-7a", ["a part of an NVIDIA GPU"]),
        ("", []),
        ("-1", []),
    ],
)
def test_the_gpus_are_those_that_a_process_will_see(tmp_path: Path, visible: str | None, models: list[str]) -> None:
    machine = Machine(tmp_path, CUDA, "580.65.06")
    for number in range(3):
        machine.gpu(number, minor=2 - number)
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert preflight.gpus(tmp_path, environ) == models


def test_a_gpu_of_the_host_that_the_container_was_not_given_is_not_seen(tmp_path: Path) -> None:
    machine = Machine(tmp_path, CUDA, "580.65.06")
    machine.gpu(0, minor=0)
    machine.gpu(1, minor=1)
    (tmp_path / "dev/nvidia0").unlink()
    assert preflight.gpus(tmp_path, {}) == ["NVIDIA H1"]


def test_a_certificate_covers_the_hardware_that_it_was_earned_on_and_no_other(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {"torch": "2.13.0+cpu"})
    here = preflight.hardware(machine.root, [])
    today = datetime.datetime.now(datetime.UTC).date()
    assert machine.findings()[0] == (
        "advice",
        "no verdict on the certificates of tiny\n         on the host: vetted use tiny",
    )
    machine.judged()
    certified = f"tiny is certified for this hardware: {here}, as judged by `vetted use` on {today}"
    assert machine.findings()[0] == ("ok", certified)
    machine.judged(hardware="Another CPU, 64 cores")
    assert machine.findings()[0][1].startswith(
        f"tiny is certified on Another CPU, 64 cores, not on this hardware: {here}"
    )
    machine.judged(certificates=[])
    assert machine.findings()[0][1].startswith("tiny has no certificate for this image")
    machine.judged(expires=0)
    assert machine.findings()[0] == ("ok", certified), "it is valid to the end of its last day"
    machine.judged(expires=-1)
    yesterday = today - datetime.timedelta(1)
    assert machine.findings()[0][1].startswith(f"the certificate of tiny for this image expired on {yesterday}")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"certificates": [1]}', '{"certificates": 1}', "[" * 100_000])
def test_what_is_no_record_covers_nothing(tmp_path: Path, text: str) -> None:
    machine = Machine(tmp_path, {"torch": "2.13.0+cpu"})
    machine.write("run/vetted/certificates.json", text)
    assert machine.findings()[0][1].startswith("no verdict on the certificates of tiny")


def test_the_certificates_behind_the_record_of_this_image_are_kept_with_a_run(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {"torch": "2.13.0+cpu"})
    for name in ("0.json", "1.json"):
        machine.write(f"run/vetted/certificates/{name}", "{}")
    machine.judged()
    image = preflight.stack(machine.root)
    assert [path.name for path in verdict.certificate_files(machine.root, image)] == ["0.json"]
    assert verdict.certificate_files(machine.root, {**image, "lock": "another"}) == []


def test_a_folder_for_runs_that_is_not_there_stops(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {"torch": "2.13.0+cpu"})
    (tmp_path / "runs").rmdir()
    assert machine.stops() == ["/runs is missing\n         mount it"]


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_for_runs_that_cannot_be_written_stops(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {"torch": "2.13.0+cpu"})
    (tmp_path / "runs").chmod(0o555)
    assert machine.stops()[0].startswith("/runs cannot be written")


def test_it_imports_nothing_of_a_stack_and_reads_any_image(tmp_path: Path) -> None:
    """An image of somebody else's has no stack.json, or rubbish in it."""
    machine = Machine(tmp_path, {})
    for text in ("", "[]", "{"):
        machine.write("etc/vetted/stack.json", text)
        assert machine.stops() == []


# --- the arguments of train ----------------------------------------------------------------------------------------


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


# --- the files of a run --------------------------------------------------------------------------------------------


def test_rows_come_back_and_one_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    assert metrics.read(tmp_path) == []
    metrics.add(tmp_path, {"step": 1, "reward": 0.5, "loss": float("nan")})
    with (tmp_path / metrics.METRICS).open("a") as file:
        file.write('{"step": 2, "rew')
    assert metrics.read(tmp_path) == [{"step": 1, "reward": 0.5, "loss": "nan"}]


def test_what_a_resumed_run_does_again_is_not_there_twice(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        metrics.add(tmp_path, {"step": step})
    metrics.cut(tmp_path, 2)
    assert [row["step"] for row in metrics.read(tmp_path)] == [1, 2]


# --- in the image --------------------------------------------------------------------------------------------------


def test_another_runtime_is_another_image(small: Small) -> None:
    before = context.description(small.project, small.lock)
    (small.root / "runtime" / "train.py").write_text("# another one\n")
    assert context.description(small.project, small.lock) != before


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_its_files_have_the_same_modes_wherever_they_were_cloned(small: Small, tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        context.copy_runtime(small.project, tmp_path / "tree")
    finally:
        os.umask(before)
    modes = {
        str(path.relative_to(tmp_path / "tree")): path.stat().st_mode & 0o777 for path in tmp_path.rglob("tree/**/*")
    }
    assert modes["usr/local/bin/vetted"] == modes["opt/vetted/runtime"] == 0o755
    assert modes["opt/vetted/runtime/train.py"] == 0o644
    assert not [name for name in modes if "__pycache__" in name or "launcher" in name]


@pytest.mark.parametrize(("limit", "mib"), [("8589934592\n", 6144), ("1073741824\n", 768), ("max\n", None)])
def test_a_probe_may_use_the_memory_of_the_container(limit: str, mib: int | None, tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text(limit)
    assert smoke.memory_mib(tmp_path / "memory.max") == (mib or smoke.memory_mib(tmp_path / "missing"))
