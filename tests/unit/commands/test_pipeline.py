"""Render, lock, certify and build: what each writes and says, and what it refuses."""

from __future__ import annotations

import errno
import json
import shutil
import sys
from pathlib import Path

import pytest

from builder.base import errors
from builder.certify import hostenv
from builder.image import build
from builder.lock import audit
from builder.lock.audit import AuditFinding
from builder.pages import generate, weight
from tests.conftest import BAD_RUN, GREET, PYTHON, TINY, Small
from tests.registry.conftest import make_image
from tests.unit.conftest import Command


@pytest.fixture
def no_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH that holds what a run needs, and no docker."""
    programs = tmp_path / "programs"
    programs.mkdir()
    python = Path(sys.base_prefix) / "bin" / f"python{PYTHON}"
    (programs / python.name).symlink_to(python)  # uv asks an interpreter for what it is
    monkeypatch.setenv("PATH", str(programs))


pytestmark = pytest.mark.usefixtures("other_debian")


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


def test_lock_check_without_a_mirror_says_what_it_left_out(
    command: Command, wheels: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> None:
        raise errors.NetworkError("the Debian mirror did not answer\nE: Failed to fetch")

    monkeypatch.setattr(audit, "mirrored", unreachable)
    answer = command(wheels.root, "lock", "--check")
    assert answer.code == 0
    assert answer.err.splitlines()[-1] == (
        f"{TINY}: its Debian packages were not compared with a mirror: the Debian mirror did not answer"
    )


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


def test_certify_of_a_config_writes_a_report_and_no_certificate(command: Command, wheels: Small) -> None:
    (wheels.root / "my.yaml").write_text("beta: 0.1\nlr_scheduler_type: cosine\n")
    answer = command(wheels.root, "certify", TINY, "--engine", "host", "--config", "my.yaml")
    assert answer.code == 0, answer.err
    assert "no config.json of its model: --model-config FILE names one" in answer.err
    assert "  the schedule cosine\n" in answer.out
    assert f"my.yaml passes on {TINY}. A report, and no certificate:\n" in answer.out
    (report,) = (wheels.root / ".vetted/configurations" / TINY).iterdir()
    assert json.loads(report.read_text())["combination"]["kl"] == "weighted"
    assert not list(wheels.root.glob("lockfiles/*/certificates/*"))
    assert command(wheels.root, "certify", TINY, "--engine", "host", "--config", "my.yaml", "--json").json == (
        json.loads(report.read_text())
    )


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--config", "my.yaml", "--force"), 2, "not together with --force"),
        (("--model-config", "config.json"), 2, "it is the model of a --config"),
        (("--config", "not-there.yaml"), 3, "not-there.yaml: No such file or directory"),
    ],
)
def test_certify_of_a_config_says_what_it_does_not_take(
    command: Command, wheels: Small, options: tuple[str, ...], code: int, words: str
) -> None:
    answer = command(wheels.root, "certify", TINY, "--engine", "host", *options)
    assert answer.code == code
    assert words in answer.err


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


def test_certify_names_a_misspelt_probe_before_anything_is_installed(command: Command, wheels: Small) -> None:
    (wheels.project.smoke / "probes").mkdir(exist_ok=True)
    (wheels.project.smoke / "probes" / "logprob_padding.py").touch()
    answer = command(wheels.root, "certify", TINY, "--engine", "host", "--probe", "logprob-pading")
    assert answer.code == 3
    assert answer.err.splitlines()[0].endswith("there is no probe logprob-pading; did you mean logprob-padding?")
    assert not hostenv.path(wheels.project, wheels.lock).exists()


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


def test_a_build_that_is_proven_is_weighed_and_copied_too(
    command: Command, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = make_image(small)
    proof = build.Proof(built.image.manifest, built.image.manifest, None)
    weighed: list[str] = []
    monkeypatch.setattr(build, "prove", lambda *_: proof)
    monkeypatch.setattr(weight, "record", lambda *fields: weighed.append(fields[3]))
    monkeypatch.setattr(generate, "refresh", lambda *_: None)
    answer = command(small.root, "build", TINY, "--prove", "--record", "--output", str(tmp_path / "copy"))
    assert answer.code == 0, answer.err
    assert f"identical: two builds without cache gave {built.image.manifest}" in answer.out
    assert weighed == [f"vetted build {TINY} --prove --record"]
    assert (tmp_path / "copy" / "index.json").is_file()
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_a_copy_of_an_image_that_fails_leaves_nothing_and_no_link_is_followed(
    command: Command, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = make_image(small)
    monkeypatch.setattr(build, "build", lambda *_: built)
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    answer = command(small.root, "build", TINY, "--output", str(tmp_path / "link"))
    assert (answer.code, f"{tmp_path}/link is a link" in answer.err) == (6, True)

    def full(source: Path, target: Path, **_: bool) -> None:
        shutil.copy(source / "index.json", target)
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copytree", full)
        for name in ("empty", "new"):
            assert command(small.root, "build", TINY, "--output", str(tmp_path / name)).code == 6
    assert list((tmp_path / "empty").iterdir()) == [] and not (tmp_path / "new").exists()
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []
    for name in ("empty", "new"):
        assert command(small.root, "build", TINY, "--output", str(tmp_path / name)).code == 0
        assert (tmp_path / name / "index.json").is_file()


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


def test_square_brackets_are_printed_as_they_are(
    command: Command, wheels: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix = "record an [[override]] with its [bold]reason[/]"
    monkeypatch.setattr(audit, "sound", lambda *_: [AuditFinding("[red]violated[/red]", fix)])
    answer = command(wheels.root, "lock", "--check")
    assert answer.code == 1
    assert answer.out == f"{TINY}: [red]violated[/red]\n  fix: {fix}\n"
