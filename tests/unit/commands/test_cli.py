"""The command line: exit codes, answers for people and for programs, and no traceback whatever happens."""

from __future__ import annotations

import datetime
import json
import shutil
import sys
from pathlib import Path

import pytest

from builder.base.project import Project
from builder.certify import certificate, hostenv
from builder.certify.certificate import Measurement, ProbeResult
from builder.lock import audit
from builder.lock.audit import Finding
from tests.commands import spawn, vetted
from tests.conftest import BAD_RUN, GREET, PYTHON, ROOT, TINY, Small
from tests.unit.conftest import Command

PROBES = [
    ProbeResult(
        name="alpha",
        outcome="passed",
        measurements=[Measurement(name="loss", value=0.25, bound={"at_most": 1}, headline=True)],
        seconds=1.5,
    ),
    ProbeResult(name="beta", outcome="not-run", reason="needs 1 GPU(s), found 0"),
]


@pytest.fixture
def no_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH that holds what a run needs, and no docker."""
    programs = tmp_path / "programs"
    programs.mkdir()
    python = Path(sys.base_prefix) / "bin" / f"python{PYTHON}"
    (programs / python.name).symlink_to(python)  # uv asks an interpreter for what it is
    monkeypatch.setenv("PATH", str(programs))


@pytest.mark.parametrize(
    "argv",
    [
        ["no-such-command"],
        ["list", "--no-such-option"],
        ["show"],
        ["certify", TINY, "--engine", "podman"],
        ["certify", TINY, "--device", "tpu"],
        ["build", TINY, "another"],
    ],
)
def test_a_command_that_is_not_understood_ends_with_2(command: Command, small: Small, argv: list[str]) -> None:
    answer = command(small.root, *argv)
    assert answer.code == 2
    assert "Usage: vetted" in answer.err
    assert answer.out == ""


def test_a_command_of_its_own_process_that_is_not_understood_ends_with_2(small: Small) -> None:
    answer = vetted(small.root, "no-such-command")
    assert (answer.code, answer.out) == (2, "")
    assert "no-such-command" in answer.err


@pytest.mark.parametrize(
    "name",
    ["list", "lock", "render", "build", "certify", "show", "outdated", "recertify", "bisect packages", "bisect config"],
)
def test_every_command_explains_itself(command: Command, small: Small, name: str) -> None:
    answer = command(small.root, *name.split(), "--help")
    assert answer.code == 0
    assert f"Usage: vetted {name}" in answer.out
    assert "--json" in answer.out


@pytest.mark.parametrize(
    "argv",
    [
        ["lock", "nope"],
        ["render", "nope"],
        ["build", "nope"],
        ["certify", "nope"],
        ["show", "../nope"],
        ["outdated", "nope"],
        ["recertify", "nope", "--engine", "host"],
    ],
)
def test_a_stack_that_is_not_there_ends_with_3_for_people_and_programs(
    command: Command, small: Small, argv: list[str]
) -> None:
    answer = command(small.root, *argv)
    assert (answer.code, answer.out) == (3, "")
    assert answer.err.startswith("vetted: ") and "nope" in answer.err
    assert "\nnext: vetted list\n" in answer.err
    answer = command(small.root, *argv, "--json")
    assert (answer.code, answer.err) == (3, "")
    error = answer.json["error"]
    assert set(error) == {"what", "cause", "next", "exit_code"}
    assert (error["exit_code"], error["next"]) == (3, "vetted list")
    assert "nope" in error["what"]


def test_outside_of_a_project_every_command_ends_with_3(command: Command, tmp_path: Path) -> None:
    for argv in (["list"], ["lock"], ["render"], ["show", TINY]):
        answer = command(tmp_path, *argv)
        assert answer.code == 3
        assert "is not inside a Vetted project" in answer.err


def test_a_project_without_stacks_ends_with_3(command: Command, small: Small) -> None:
    small.file("stack.toml").unlink()
    answer = command(small.root, "render")
    assert answer.code == 3
    assert "the project has no stack" in answer.err


def test_a_state_that_cannot_be_written_ends_with_6(
    command: Command, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VETTED_STATE", str(small.file("stack.toml") / "state"))
    answer = command(small.root, "render", "--check")
    assert answer.code == 6
    assert "stack.toml" in answer.err


def test_list_shows_versions_and_where_they_were_certified(command: Command, small: Small) -> None:
    answer = command(small.root, "list")
    assert answer.code == 0
    assert answer.out.splitlines()[0].split()[:2] == ["stack", "trl"]
    assert answer.out.splitlines()[1].split() == [TINY, *["–"] * 6, "not", "certified"]
    hardware = certificate.read(small.issue()).resource("hardware").annotations or {}
    assert f"{hardware['class']} (lock)" in command(small.root, "list").out


def test_list_as_json_says_the_same(command: Command, small: Small) -> None:
    (row,) = command(small.root, "list", "--json").json
    assert (row["stack"], row["device"], row["certified_on"]) == (TINY, "cpu", [])
    assert row["versions"]["torch"] == "–"
    small.issue()
    (row,) = command(small.root, "list", "--json").json
    assert len(row["certified_on"]) == 1


def test_list_of_the_project_itself(command: Command, real: Project) -> None:
    rows = command(real.root, "list", "--json").json
    assert {row["stack"]: row["versions"]["trl"] for row in rows}["trl1.16-cpu"] == "1.16.0"


@pytest.mark.parametrize("json_", [True, False])
def test_show_without_a_certificate_ends_with_1(command: Command, small: Small, json_: bool) -> None:
    answer = command(small.root, "show", TINY, *(["--json"] if json_ else []))
    assert answer.code == 1
    if json_:
        assert answer.json == {}
    else:
        assert answer.out == f"{TINY} is not certified\nnext: vetted certify {TINY}\n"


def test_show_as_json_is_the_certificate_itself(command: Command, small: Small) -> None:
    path = small.issue(probes=PROBES)
    answer = command(small.root, "show", TINY, "--json")
    assert answer.code == 0
    assert answer.json == {"cpu-host": json.loads(path.read_text())}


def test_show_prints_subject_lock_hardware_and_results(command: Command, small: Small) -> None:
    small.issue(probes=PROBES)
    answer = command(small.root, "show", TINY)
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0] == "Tiny"
    assert f"  lock      {small.lock.digest}" in lines
    assert "another lock" not in answer.out
    assert any(line.split() == ["alpha", "passed", "loss", "0.25", "≤", "1", "1.5"] for line in lines)
    assert "not run: beta: needs 1 GPU(s), found 0" in lines


def test_show_says_when_a_certificate_speaks_of_an_earlier_lock(command: Command, small: Small) -> None:
    small.issue(probes=PROBES)
    before = small.lock.digest
    small.edit("lock.toml", "1700000000", "1700000001")
    answer = command(small.root, "show", TINY)
    assert answer.code == 0
    assert "  not valid: it was earned with another lock" in answer.out
    assert f"  lock      {before}" in answer.out


def test_show_says_when_a_certificate_was_issued_and_that_it_expired(command: Command, small: Small) -> None:
    today = certificate.today()
    small.issue(probes=PROBES)
    shown = command(small.root, "show", TINY).out
    assert f"  issued    {today}, expires {today + certificate.LIFETIME}" in shown.splitlines()
    assert "not valid: it expired" not in shown
    day = datetime.date(2025, 1, 1)
    small.issue(probes=PROBES, day=day)
    shown = command(small.root, "show", TINY).out
    assert f"  not valid: it expired on {day + certificate.LIFETIME}: certify again" in shown.splitlines()


def test_show_of_a_certificate_of_before_certificates_expired(command: Command, small: Small) -> None:
    path = small.issue(probes=PROBES)
    data = json.loads(path.read_text())
    del data["predicate"]["issued"], data["predicate"]["expires"]
    path.write_text(json.dumps(data, indent=2) + "\n")
    answer = command(small.root, "show", TINY)
    assert answer.code == 0
    assert "  not valid: it says no expiry: certify again" in answer.out.splitlines()


def test_show_of_one_engine_leaves_the_other_out(command: Command, small: Small) -> None:
    small.issue("host")
    small.issue("docker")
    assert set(command(small.root, "show", TINY, "--json").json) == {"cpu-host", "cpu-docker"}
    assert set(command(small.root, "show", TINY, "--engine", "docker", "--json").json) == {"cpu-docker"}


def test_show_of_a_damaged_certificate_ends_with_3(command: Command, small: Small) -> None:
    small.issue().write_text("{")
    answer = command(small.root, "show", TINY)
    assert answer.code == 3
    assert "cpu-host.json is not a certificate" in answer.err


def test_render_writes_what_is_stale_and_then_nothing(command: Command, small: Small) -> None:
    small.project.dockerfile(TINY).write_text("FROM scratch\n")
    check = command(small.root, "render", "--check", "--json")
    assert check.code == 1
    changed = ["README.md", "docs/certificate.schema.json", f"images/{TINY}/Dockerfile"]
    assert sorted(check.json["changed"]) == changed
    assert small.project.dockerfile(TINY).read_text() == "FROM scratch\n"
    answer = command(small.root, "render")
    assert answer.code == 0
    assert sorted(answer.out.splitlines()) == [f"rendered {path}" for path in changed]
    again = command(small.root, "render", "--check")
    assert (again.code, again.out) == (0, "everything rendered is up to date\n")


def test_lock_check_of_a_sound_lock_ends_with_0(command: Command, wheels: Small) -> None:
    answer = command(wheels.root, "lock", "--check")
    assert answer.code == 0
    assert answer.out == f"{TINY}: sound: 1 distributions, 1 Debian packages\n  {wheels.lock.digest}\n"


def test_lock_check_of_a_changed_hash_ends_with_1_and_writes_nothing(command: Command, wheels: Small) -> None:
    true = wheels.lock.python[0].sha256
    false = f"{(int(true[0], 16) + 1) % 16:x}{true[1:]}"
    wheels.edit("requirements.txt", true, false)
    answer = command(wheels.root, "lock", "--check")
    assert answer.code == 1
    assert f"expected sha256:{false}\n  got      sha256:{true}\n  fix: " in answer.out
    answer = command(wheels.root, "lock", "--check", "--json")
    assert answer.code == 1
    (finding,) = answer.json[TINY]["findings"]
    assert (finding["expected"], finding["got"]) == (f"sha256:{false}", f"sha256:{true}")
    assert false in wheels.file("requirements.txt").read_text()


def test_lock_mends_a_changed_hash(command: Command, wheels: Small) -> None:
    true = wheels.lock.python[0].sha256
    wheels.edit("requirements.txt", true, "0" * 64)
    answer = command(wheels.root, "lock", TINY, "--json")
    assert answer.code == 0
    assert answer.json == {TINY: {"changed": True, "digest": wheels.lock.digest, "findings": []}}
    assert wheels.lock.python[0].sha256 == true


def test_certify_on_the_host_writes_the_certificate_and_then_does_nothing(command: Command, wheels: Small) -> None:
    answer = command(wheels.root, "certify", TINY, "--engine", "host")
    assert answer.code == 0, answer.err
    assert f"certified: lockfiles/{TINY}, {wheels.lock.digest}\n" in answer.out
    assert "(lock)" in (wheels.root / "README.md").read_text()
    again = command(wheels.root, "certify", TINY, "--engine", "host", "--json")
    assert (again.code, again.json["reused"], again.json["result"]) == (0, True, "PASSED")
    assert list(wheels.project.scratch(TINY).parent.iterdir()) == []


def test_certify_that_fails_ends_with_1_and_the_reason(command: Command, wheels: Small) -> None:
    wheels.suite(BAD_RUN)
    answer = command(wheels.root, "certify", TINY, "--engine", "host")
    assert answer.code == 1
    assert "beta: failed: the reward fell\n" in answer.out
    assert "not certified\n" in answer.out
    assert not (wheels.project.stack_dir(TINY) / "certificates").exists()


def test_certify_refuses_a_changed_hash_with_5_and_installs_nothing(command: Command, wheels: Small) -> None:
    true = wheels.lock.python[0].sha256
    wheels.edit("requirements.txt", true, "0" * 64)
    answer = command(wheels.root, "certify", TINY, "--engine", "host", "--json")
    assert answer.code == 5
    what = answer.json["error"]["what"]
    assert "tiny-lib==1.0" in what
    assert f"expected sha256:{'0' * 64}\ngot      sha256:{true}" in what
    assert not (wheels.project.state / "host").exists()


@pytest.mark.parametrize("name", ["build", "certify"])
def test_a_stale_lock_is_neither_built_nor_run(command: Command, wheels: Small, name: str) -> None:
    wheels.edit("stack.toml", "unwanted ;", "unneeded ;")
    answer = command(wheels.root, name, TINY, *(["--engine", "host"] if name == "certify" else []))
    assert answer.code == 1
    assert f"{TINY}: stack.toml was changed after it was locked" in answer.err
    assert f"next: vetted lock {TINY}" in answer.err


def test_a_stale_lock_is_not_certified_already(command: Command, wheels: Small) -> None:
    hostenv.path(wheels.project, wheels.lock).mkdir(parents=True)
    wheels.issue()
    assert command(wheels.root, "certify", TINY, "--engine", "host").code == 0
    wheels.edit("stack.toml", "unwanted ;", "unneeded ;")
    assert command(wheels.root, "certify", TINY, "--engine", "host").code == 1


@pytest.mark.usefixtures("no_docker")
def test_certify_in_docker_without_one_ends_with_4_and_how_to_get_it(command: Command, wheels: Small) -> None:
    answer = command(wheels.root, "certify", TINY, "--engine", "docker")
    assert answer.code == 4
    assert "no Docker engine answers" in answer.err
    assert "scripts/install-engine" in answer.err


@pytest.mark.usefixtures("no_docker", "dead_index")
def test_certify_in_docker_without_one_ends_with_4_offline_too(command: Command, small: Small) -> None:
    assert command(small.root, "certify", TINY, "--engine", "docker").code == 4


@pytest.mark.usefixtures("no_docker")
def test_certify_without_docker_says_so_in_one_line_and_uses_the_host(command: Command, wheels: Small) -> None:
    hostenv.path(wheels.project, wheels.lock).mkdir(parents=True)
    wheels.issue()
    answer = command(wheels.root, "certify", TINY)
    assert answer.code == 0
    assert answer.err == "no Docker engine answers: certifying the lock on this host, in a virtual environment\n"
    assert f"{TINY} is certified already" in answer.out


@pytest.mark.usefixtures("no_docker")
@pytest.mark.parametrize("option", [[], ["--prove"]])
def test_build_without_docker_ends_with_4(command: Command, small: Small, option: list[str]) -> None:
    answer = command(small.root, "build", TINY, *option)
    assert answer.code == 4
    assert "scripts/install-engine" in answer.err


def test_build_into_a_folder_that_holds_something_ends_with_6(command: Command, small: Small) -> None:
    answer = command(small.root, "build", TINY, "--output", "docs/..")
    assert answer.code == 6
    assert "is not an empty folder" in answer.err


def test_a_patch_that_does_not_apply_ends_certify_with_3(command: Command, wheels: Small) -> None:
    wheels.patch.write_text(GREET.replace("-greeting = 'nobody'", "-greeting = 'anybody'"))
    wheels.render()
    answer = command(wheels.root, "certify", TINY, "--engine", "host")
    assert answer.code == 3
    assert "0001-greet.patch: does not apply exactly to tiny_lib.py" in answer.err


def test_a_cpu_stack_is_not_certified_for_cuda(command: Command, small: Small) -> None:
    answer = command(small.root, "certify", TINY, "--device", "cuda")
    assert answer.code == 2
    assert "--device" in answer.err
    assert "cpu stack" in answer.err


def test_the_tool_imports_nothing_that_a_bundle_leaves_behind(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "builder", tmp_path / "builder", ignore=shutil.ignore_patterns("__pycache__"))
    code = "from builder import cli; assert cli.__file__.startswith(__import__('os').getcwd()), cli.__file__"
    with spawn(["-c", code], tmp_path, PYTHONPATH=str(tmp_path)) as child:
        _, stderr = child.communicate()
    assert child.returncode == 0, stderr


def test_square_brackets_are_printed_as_they_are(
    command: Command, wheels: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix = "record an [[override]] with its [bold]reason[/]"
    monkeypatch.setattr(audit, "sound", lambda *_: [Finding("[red]violated[/red]", fix)])
    answer = command(wheels.root, "lock", "--check")
    assert answer.code == 1
    assert answer.out == f"{TINY}: [red]violated[/red]\n  fix: {fix}\n"
