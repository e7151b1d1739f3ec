"""Preflight: what it finds in a container, and what stops a run."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import pytest

from runtime import preflight, verdict
from runtime.check import Check
from tests.unit.runtime.kit import Machine

CUDA = {"torch": "2.13.0", "nvidia-cuda-runtime": "13.0.96"}


def test_a_stack_for_cpus_needs_no_gpu(tmp_path: Path) -> None:
    assert Machine(tmp_path, {"torch": "2.13.0+cpu"}).stops() == []


@pytest.mark.parametrize(
    ("driver", "gpus", "message"),
    [
        (None, 0, "no GPU is visible"),
        ("580.65.06", 0, "no GPU is visible"),
        ("570.86.10", 1, "driver 570.86.10 is too old for CUDA 13.0, which needs 580.65.06 or newer"),
        ("580.60.01", 1, "driver 580.60.01 is too old"),
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
    assert [text for level, text in machine.checks(variables) if level == "stop"] == []


@pytest.mark.parametrize(
    ("installed", "gpus", "stop", "line"),
    [
        ("", 0, "", "its libnvidia-ml.so.1 is not here"),
        ("580.65.06", 1, "", "driver 580.65.06, CUDA 13.0, 1 x NVIDIA H200"),
        ("580.65.06", 2, "", "driver 580.65.06, CUDA 13.0, 2 x NVIDIA H200"),
        ("572.16", 1, "driver 572.16 is too old for CUDA 13.0", ""),
    ],
)
def test_in_wsl_the_management_library_tells_driver_and_gpus(
    tmp_path: Path, installed: str, gpus: int, stop: str, line: str
) -> None:
    """Windows' subsystem for Linux has /dev/dxg, and no /proc/driver/nvidia."""
    machine = Machine(tmp_path, CUDA)
    assert machine.stops()
    machine.write("dev/dxg", "")
    machine.write("usr/lib/wsl/lib/libcuda.so.1", "")
    models = ["NVIDIA H200"] * gpus
    checks = preflight.look(
        tmp_path, {}, lambda: dict.fromkeys(models, (9, 0)), lambda: installed, lambda: models
    )  # fmt: skip
    stops = [str(check) for check in checks if check.level == "stop"]
    assert len(stops) == bool(stop) and all(text.startswith(stop) for text in stops)
    assert line in str(checks[1])


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
    assert machine.checks()[0] == (
        "advice",
        "no verdict on the certificates of tiny\n         on the host: vetted use tiny",
    )
    machine.judged()
    certified = f"tiny is certified for this hardware: {here}, as judged by `vetted use` on {today}"
    assert machine.checks()[0] == ("ok", certified)
    machine.judged(hardware="Another CPU, 64 cores")
    assert machine.checks()[0][1].startswith(
        f"tiny is certified on Another CPU, 64 cores, not on this hardware: {here}"
    )
    machine.judged(certificates=[])
    assert machine.checks()[0][1].startswith("tiny has no certificate for this image")
    machine.judged(expires=0)
    assert machine.checks()[0] == ("ok", certified), "it is valid to the end of its last day"
    machine.judged(expires=-1)
    yesterday = today - datetime.timedelta(1)
    assert machine.checks()[0][1].startswith(f"the certificate of tiny for this image expired on {yesterday}")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"certificates": [1]}', '{"certificates": 1}', "[" * 100_000])
def test_what_is_no_record_covers_nothing(tmp_path: Path, text: str) -> None:
    machine = Machine(tmp_path, {"torch": "2.13.0+cpu"})
    machine.write("run/vetted/certificates.json", text)
    assert machine.checks()[0][1].startswith("no verdict on the certificates of tiny")


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


@pytest.mark.parametrize(
    ("into", "step", "shown"),
    [
        ("", "run vetted use", "run vetted use"),
        ("1", "run vetted use", "run vetted use (in a clone of Vetted, with --into and the path of this folder)"),
        ("1", "docker compose run smoke", "docker compose run smoke (in a clone of Vetted)"),
        ("1", "rename it", "rename it"),
        (
            "1",
            "with one: vetted use --server, then docker compose run --rm train; or docker compose run smoke",
            (
                "with one: vetted use --server (in a clone of Vetted, with --into and the path of this folder), "
                "then docker compose run --rm train; or docker compose run smoke (in a clone of Vetted)"
            ),
        ),
    ],
)
def test_beside_a_compose_file_of_the_users_own_it_says_where_the_commands_are(
    monkeypatch: pytest.MonkeyPatch, into: str, step: str, shown: str
) -> None:
    monkeypatch.setenv("VETTED_INTO", into)
    assert str(Check("advice", "something", step)) == f"something\n         {shown}"
