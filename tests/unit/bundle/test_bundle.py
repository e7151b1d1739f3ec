"""A bundle: the same bytes every time, whole or not there, and on the host a certificate only for exactly the lock."""

from __future__ import annotations

import ast
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builder.base import errors, machine
from builder.base.project import Project
from builder.bundle import bundle, unbundle
from builder.bundle import offline as bundled
from builder.bundle.bundle import Made
from builder.bundle.offline import Contents, Installed
from builder.bundle.unbundle import MANIFEST, StopError
from builder.certify import certificate
from builder.certify.certify import Outcome, Request
from builder.lock import index, lockfile
from tests.conftest import BAD_RUN, GOOD_RUN, PYTHON, TINY, Small, make_wheel
from tests.unit.conftest import Command

OTHER_PYTHON = "3.12" if PYTHON != "3.12" else "3.13"


@pytest.fixture
def bare(wheels: Small, monkeypatch: pytest.MonkeyPatch) -> Small:
    """A bundle of it carries no verifier, for which an index would be asked."""
    monkeypatch.setattr(bundle, "tool_pins", lambda _: {})
    return wheels


def make(small: Small, output: Path, have: dict[str, str] | None = None, part_size: int = 100_000) -> Made:
    return bundle.make(
        small.project, small.lock, output, small.scratch(), part_size, small.lock.stack.python, have or {},
        lambda _: None,
    )  # fmt: skip


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def unpacked(folder: Path, to: Path) -> Path:
    manifest = unbundle.read_manifest(folder)
    to.mkdir(exist_ok=True)
    unbundle.collect(folder, manifest, to / "parts")
    unbundle.unpack(to / "parts", manifest, to / "bundle")
    return to / "bundle"


@pytest.mark.parametrize(
    ("text", "size"), [("60M", 60 << 20), ("1k", 1024), ("2G", 2 << 30), ("64MiB", 64 << 20), ("1024", 1024)]
)
def test_a_size_is_read(text: str, size: int) -> None:
    assert bundle.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "60X", "-1M", "1.5M", "1023", "0", "9" * 20 + "G"])
def test_what_is_no_size_is_a_usage_error(command: Command, small: Small, tmp_path: Path, text: str) -> None:
    answer = command(small.root, "bundle", TINY, "--output", str(tmp_path / "out"), f"--part-size={text}")
    assert answer.code == 2
    assert "--part-size" in answer.err


def test_a_freeze_is_read_by_normalised_names() -> None:
    text = """\
# made on the host
Torch==2.11.0
nvidia_cublas==13.1.0.3
some.Thing===1.0+local

pinned==1.0 ; python_version > "3"
-e git+ssh://somewhere#egg=editable
--hash=sha256:00
from-a-file @ file:///wheels/from_a_file-1.0-py3-none-any.whl
ranged>=1.0
several==1.0,!=1.1
commented==1.0 # and why
"""
    assert bundle.parse_have(text, "freeze.txt") == {
        "torch": "2.11.0", "nvidia-cublas": "13.1.0.3", "some-thing": "1.0+local", "pinned": "1.0", "commented": "1.0",
    }  # fmt: skip


@pytest.mark.parametrize("line", ["Package    Version", "torch 2.11.0", "WARNING: no index", "{}", "<html>"])
def test_what_is_no_freeze_names_the_line(line: str) -> None:
    with pytest.raises(errors.BadInputError, match=r"freeze\.txt, line 2: ") as caught:
        bundle.parse_have(f"torch==2.11.0\n{line}\n", "freeze.txt")
    assert "pip freeze" in caught.value.next_step


@pytest.mark.parametrize("freeze", [None, b"\xff\xfet\x00o\x00"])
def test_a_freeze_that_cannot_be_read_ends_with_3(
    command: Command, small: Small, tmp_path: Path, freeze: bytes | None
) -> None:
    if freeze:
        (tmp_path / "freeze.txt").write_bytes(freeze)
    answer = command(
        small.root, "bundle", TINY, "--output", str(tmp_path / "out"), "--have", str(tmp_path / "freeze.txt")
    )
    assert answer.code == 3
    assert "freeze.txt" in answer.err
    assert not (tmp_path / "out").exists()


def test_only_the_locked_version_is_left_out_and_never_what_is_patched(real: Project, small: Small) -> None:
    lock = lockfile.load(real, "trl1.16-cpu")
    have = {**lock.versions, "transformers": "5.16.0", "unknown": "1.0"}
    without = bundle.left_out(lock, have)
    patched = {patch.package for patch in lock.stack.patch}
    assert set(lock.versions) - set(without) == {*patched, "transformers"}
    assert bundle.left_out(small.lock, {"tiny-lib": "1.0"}) == []


def test_the_same_input_gives_the_same_bytes_wherever_it_is_made(bare: Small, tmp_path: Path) -> None:
    first = make(bare, tmp_path / "first")
    moved = Small(shutil.copytree(bare.root, tmp_path / "moved"))
    for path in moved.root.rglob("*"):
        os.utime(path, (1, 1))
    shutil.rmtree(moved.project.state)
    second = make(moved, tmp_path / "second")
    assert content(first.folder) == content(second.folder)
    assert (first.digest, first.parts) == (second.digest, second.parts)
    assert first.parts > 1
    assert all(path.stat().st_size <= 100_000 for path in first.folder.glob("*.part*"))


def test_a_part_that_is_there_is_left_alone_and_one_of_an_earlier_bundle_goes(bare: Small, tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = make(bare, out)
    before = content(out)
    first, second = sorted(out.glob("*.part*"))[:2]
    kept = first.stat().st_ino
    second.write_bytes(b"cut short")
    (out / f"{TINY}.part999").write_bytes(b"of an earlier bundle")
    (out / f".{TINY}.part003.partial").write_bytes(b"half")
    (out / MANIFEST).unlink()
    assert make(bare, out) == made
    assert content(out) == before
    assert first.stat().st_ino == kept


def test_a_download_is_kept_and_one_that_was_damaged_is_made_anew(bare: Small, tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = make(bare, out)
    (kept,) = (bare.project.state / "wheels").rglob("*.whl")
    shutil.rmtree(bare.wheelhouse)
    assert make(bare, out) == made  # no index was asked, and no wheelhouse
    kept.write_bytes(b"damaged")
    with pytest.raises(errors.VettedError):
        make(bare, out)


def test_a_file_that_is_not_the_locked_one_is_a_network_error(bare: Small, tmp_path: Path) -> None:
    true = bare.lock.python[0].sha256
    false = f"{(int(true[0], 16) + 1) % 16:x}{true[1:]}"
    bare.edit("requirements.txt", true, false)
    with pytest.raises(errors.NetworkError, match=f"expected sha256:{false}\ngot      sha256:{true}"):
        make(bare, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_something_else_is_refused(bare: Small, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").touch()
    for output in (folder, folder / "thesis.txt"):
        with pytest.raises(errors.StorageError, match=r"something else|not a folder"):
            make(bare, output)
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


def test_the_command_explains_itself(command: Command, small: Small) -> None:
    answer = command(small.root, "bundle", "--help")
    assert answer.code == 0
    for option in ("--output", "--part-size", "--have", "--python", "--json"):
        assert option in answer.out
    assert "run-bundle" not in command(small.root, "--help").out


def test_the_command_says_what_it_made(command: Command, bare: Small, tmp_path: Path) -> None:
    output = tmp_path / "out"
    answer = command(bare.root, "bundle", TINY, "--output", str(output), "--part-size", "100K")
    assert answer.code == 0
    assert f"{TINY}: " in answer.out and "parts" in answer.out
    assert f"python{PYTHON} out/run.py" in answer.out
    said = command(bare.root, "bundle", TINY, "--output", str(output), "--part-size", "100K", "--json").json
    assert said["parts"] == len(list(output.glob("*.part*")))
    assert (said["left_out"], said["python"]) == ([], PYTHON)


def test_a_python_that_the_verifier_does_not_run_on_is_refused(command: Command, small: Small, tmp_path: Path) -> None:
    answer = command(small.root, "bundle", TINY, "--output", str(tmp_path / "out"), "--python", "3.10")
    assert answer.code == 3
    assert "3.10" in answer.err
    assert command(small.root, "bundle", TINY, "--output", "out", "--python", "three").code == 2


def test_the_files_for_another_python_are_those_that_fit_it(wheels: Small) -> None:
    """Of the same version, and what they are is written down in the bundle."""
    lock = wheels.lock
    wheel = next(wheels.wheelhouse.glob("*.whl"))
    digest = OTHER_PYTHON.replace(".", "")
    other = wheels.wheelhouse / f"tiny_lib-1.0-cp{digest}-cp{digest}-manylinux_2_17_x86_64.whl"
    shutil.copyfile(wheel, other)
    with other.open("ab") as file:
        file.write(b"another file")
    stack = lock.stack.model_copy(update={"python": OTHER_PYTHON})
    (file_,) = bundle._locked(wheels.project, lock, stack, wheels.scratch(), lock.python)
    # The locked one fits as well, so it is taken; without it, the other.
    assert file_.sha256 == lock.python[0].sha256
    wheel.unlink()
    (file_,) = bundle._locked(wheels.project, lock, stack, wheels.scratch(), lock.python)
    assert (file_.filename, file_.version) == (other.name, "1.0")


def test_a_python_for_which_there_is_no_file_names_the_way_on(wheels: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise errors.BadInputError("no file fits", next_step="vetted lock")

    monkeypatch.setattr(index, "offers", none)
    lock = wheels.lock
    other = lock.stack.model_copy(update={"python": OTHER_PYTHON})
    for stack, next_step in ((lock.stack, "vetted lock"), (other, f"install python{PYTHON} on the host")):
        with pytest.raises(errors.BadInputError, match="no file fits") as caught:
            bundle._locked(wheels.project, lock, stack, wheels.scratch(), lock.python)
        assert next_step in caught.value.next_step


def test_the_verifiers_own_packages_are_those_of_the_tools_lock() -> None:
    pins = bundle.tool_pins(PYTHON)
    assert {"pydantic", "pydantic-core", "typer", "uv", "unidiff"} <= pins.keys()
    assert not {"pytest", "mypy", "ruff", "nox", "colorama"} & pins.keys()
    assert all(hashes for versions in pins.values() for hashes in versions.values())


# --- on the host: the parts ---


def manifest_of(folder: Path) -> Any:
    return json.loads((folder / MANIFEST).read_text())


@pytest.fixture
def made(bare: Small, tmp_path: Path) -> Path:
    folder = tmp_path / "carried"
    make(bare, folder)
    return folder


def test_what_is_unpacked_is_what_was_bundled(made: Path, bare: Small, tmp_path: Path) -> None:
    root = unpacked(made, tmp_path / "to")
    lock, contents = bundled.read(Project(root))
    assert lock.digest == bare.lock.digest
    assert [one.name for one in contents.distributions] == ["tiny-lib"]
    assert not list((tmp_path / "to").rglob("*.partial*"))


def test_parts_that_are_missing_are_named_and_the_others_kept(made: Path, tmp_path: Path) -> None:
    manifest = unbundle.read_manifest(made)
    names = [part.name for part in manifest.parts]
    late = made / names[1]
    late.rename(tmp_path / "late")
    kept = tmp_path / "parts"
    with pytest.raises(StopError) as caught:
        unbundle.collect(made, manifest, kept)
    assert caught.value.code == 3
    assert f"missing: {names[1]}" in caught.value.said
    assert "next: " in caught.value.said
    # What arrived needs not be there again.
    for name in names:
        (made / name).unlink(missing_ok=True)
    (tmp_path / "late").rename(late)
    unbundle.collect(made, manifest, kept)
    assert sorted(path.name for path in kept.iterdir()) == names


@pytest.mark.parametrize("damage", ["bit", "cut", "longer"])
def test_a_damaged_part_is_named_and_not_kept(made: Path, tmp_path: Path, damage: str) -> None:
    manifest = unbundle.read_manifest(made)
    part = made / manifest.parts[0].name
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes({"bit": bytes(data), "cut": part.read_bytes()[:-1], "longer": part.read_bytes() + b"x"}[damage])
    with pytest.raises(StopError) as caught:
        unbundle.collect(made, manifest, tmp_path / "parts")
    assert caught.value.code == 1
    assert f"damaged: {part.name}" in caught.value.said
    assert not (tmp_path / "parts" / part.name).exists()


def test_a_foreign_part_is_passed_over(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (made / "other.part001").write_bytes(b"of another bundle")
    unpacked(made, tmp_path / "to")
    assert "other.part001" in capsys.readouterr().err


def test_a_kept_part_that_changed_afterwards_is_found_while_unpacking(made: Path, tmp_path: Path) -> None:
    manifest = unbundle.read_manifest(made)
    kept, final = tmp_path / "parts", tmp_path / "bundle"
    unbundle.collect(made, manifest, kept)
    last = kept / manifest.parts[-1].name
    last.write_bytes(last.read_bytes()[:-1] + b"x")
    with pytest.raises(StopError, match="has changed"):
        unbundle.unpack(kept, manifest, final)
    assert not final.exists() and not last.exists()
    assert not final.with_name("bundle.partial").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2}, {"stack": "../up"}, {"stack": None}, {"device": "tpu"}, {"python": "3"}, {"size": 1},
        {"parts": []}, {"parts": "all"}, {"parts": [{"name": "a.part001"}]},
    ],
)  # fmt: skip
def test_a_manifest_that_cannot_be_is_refused(made: Path, change: dict[str, Any]) -> None:
    (made / MANIFEST).write_text(json.dumps({**manifest_of(made), **change}))
    with pytest.raises(StopError, match=r"is no manifest") as caught:
        unbundle.read_manifest(made)
    assert caught.value.code == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "../../etc/passwd"), ("name", "/etc/passwd"), ("name", "a.part001/../x"), ("name", ".a.part001"),
        ("name", "a.part001\n"), ("size", -1), ("size", "1"), ("size", True), ("sha256", "0"), ("sha256", None),
    ],
)  # fmt: skip
def test_a_part_of_a_hostile_manifest_is_refused(made: Path, key: str, value: object) -> None:
    data = manifest_of(made)
    data["parts"][0][key] = value
    (made / MANIFEST).write_text(json.dumps(data))
    with pytest.raises(StopError, match="is no manifest"):
        unbundle.read_manifest(made)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 1}', "\0"])
def test_a_manifest_that_is_no_json_or_lacks_something_is_refused(made: Path, text: str) -> None:
    (made / MANIFEST).write_text(text)
    with pytest.raises(StopError, match="is no manifest"):
        unbundle.read_manifest(made)


def test_a_missing_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(StopError, match=MANIFEST) as caught:
        unbundle.read_manifest(tmp_path)
    assert caught.value.code == 3


def packed(folder: Path, fill: Callable[[tarfile.TarFile], None]) -> Path:
    """A bundle of any archive, as somebody who wants harm would make it."""
    folder.mkdir()
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        fill(archive)
    parts = list(bundle.split([stream.getvalue()], folder, "evil", 4096))
    size = sum(part["size"] for part in parts)
    data = {"format": 1, "stack": "evil", "device": "cpu", "python": PYTHON, "size": size, "parts": parts}
    (folder / MANIFEST).write_text(json.dumps(data))
    return folder


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> Callable[[tarfile.TarFile], None]:
    def fill(archive: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.size = kind, link, 4 if kind == tarfile.REGTYPE else 0
        archive.addfile(info, io.BytesIO(b"evil"))

    return fill


@pytest.mark.parametrize(
    "fill",
    [
        member("../escaped"), member("/tmp/escaped"), member("a/../../escaped"), member("./escaped"), member(".."),
        member("a\\..\\escaped"), member("link", tarfile.SYMTYPE, "/etc"), member("hard", tarfile.LNKTYPE, "/etc/x"),
        member("pipe", tarfile.FIFOTYPE), member("device", tarfile.CHRTYPE), member("folder", tarfile.DIRTYPE),
    ],
)  # fmt: skip
def test_an_archive_that_holds_anything_but_plain_files_below_its_folder_is_refused(
    tmp_path: Path, fill: Callable[[tarfile.TarFile], None]
) -> None:
    folder = packed(tmp_path / "evil", fill)
    with pytest.raises(StopError, match="not a plain file") as caught:
        unpacked(folder, tmp_path / "to")
    assert caught.value.code == 1
    assert not list(tmp_path.rglob("escaped"))
    assert not (tmp_path / "to" / "bundle").exists()


def test_parts_that_are_no_archive_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "evil"
    folder.mkdir()
    (part,) = bundle.split([b"no archive" * 1000], folder, "evil", 100_000)
    data = {"format": 1, "stack": "evil", "device": "cpu", "python": PYTHON, "size": part["size"], "parts": [part]}
    (folder / MANIFEST).write_text(json.dumps(data))
    with pytest.raises(StopError, match="no archive"):
        unpacked(folder, tmp_path / "to")


@pytest.mark.parametrize("size", [1024, 4096, 10_000, 10**6])
def test_splitting_and_joining_give_the_stream(tmp_path: Path, size: int) -> None:
    rng = random.Random(size)
    data = rng.randbytes(50_000)
    cuts = sorted(rng.sample(range(len(data)), 20))
    chunks = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    parts = [unbundle.Part(**part) for part in bundle.split(chunks, tmp_path, "x", size)]
    assert [part.size for part in parts[:-1]] == [size] * (len(parts) - 1)
    assert io.BufferedReader(unbundle.Joined(tmp_path, parts), 777).read() == data
    assert list(tmp_path.glob(".*")) == []


def entry(folder: Path, to: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(folder / bundle.ENTRY), "--to", str(to), *argv], capture_output=True, text=True, cwd=folder
    )


def test_the_entry_script_ends_without_a_traceback_whatever_is_wrong(made: Path, tmp_path: Path) -> None:
    data = manifest_of(made)
    part = made / data["parts"][0]["name"]
    part.rename(tmp_path / "away")
    done = entry(made, tmp_path / "to")
    assert done.returncode == 3
    assert f"missing: {part.name}" in done.stderr
    assert "Traceback" not in done.stderr
    (made / MANIFEST).write_text(json.dumps({**data, "python": "3.99"}))
    done = entry(made, tmp_path / "to")
    assert done.returncode == 4
    assert "3.99" in done.stderr
    (made / MANIFEST).write_text(json.dumps(data))
    (tmp_path / "file").touch()
    done = entry(made, tmp_path / "file" / "to")
    assert done.returncode == 6
    assert "--to" in done.stderr and "Traceback" not in done.stderr
    for device in ("tpu", "cuda"):
        assert entry(made, tmp_path / "to", "--device", device).returncode == 2


def test_the_entry_script_is_of_the_standard_library_and_of_an_old_python() -> None:
    tree = ast.parse(Path(unbundle.__file__).read_text(), feature_version=(3, 10))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names


def test_what_an_earlier_bundle_left_goes_and_nothing_else(tmp_path: Path) -> None:
    ours, theirs = "0123456789ab", "ba9876543210"
    stay = [f"bundle-{ours}", f"verifier-{ours}.partial", "bundle-photos", "certificates", "lock"]
    for name in (*stay, f"bundle-{theirs}", f"parts-{theirs}", f"verifier-{theirs}.partial"):
        (tmp_path / name).mkdir()
    unbundle.remove_others(tmp_path, ours)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(stay)


# --- on the host: the statement ---


HOST = Request("cpu", "host")
EXACT = [Installed("tiny-lib", "1.0", of_host=False)]


def contents_of(small: Small, python: str = PYTHON, sha256: str = "") -> Contents:
    (one,) = small.lock.python
    carried = bundled.Carried(
        name=one.name, version=one.version, file="tiny_lib-1.0-py3-none-any.whl", sha256=sha256 or one.sha256
    )
    return Contents(
        stack=TINY, lock=small.lock.digest, suite="", python=python, distributions=[carried], build=[], left_out=[]
    )


def test_an_environment_that_is_exactly_the_lock_has_no_differences(small: Small) -> None:
    assert bundled.differences(small.lock, contents_of(small), f"{PYTHON}.7", EXACT) == {}
    # What builds the source distributions is no part of it, even where it has the name of one that is.
    small.edit("build.txt", "setuptools==80.0", "tiny-lib==0.9")
    assert bundled.differences(small.lock, contents_of(small), f"{PYTHON}.7", EXACT) == {}


@pytest.mark.parametrize(
    ("python", "found", "sha256", "said"),
    [
        ("3.99.1", EXACT, "", {"python": f"3.99.1, not {PYTHON}"}),
        (f"{PYTHON}9.1", EXACT, "", {"python": f"{PYTHON}9.1, not {PYTHON}"}),
        (f"{PYTHON}.7", [], "", {"distributions": ["tiny-lib missing: 1.0"]}),
        (f"{PYTHON}.7", [Installed("tiny-lib", "1.0+cu130", False)], "",
         {"distributions": ["tiny-lib 1.0+cu130, not 1.0"]}),
        (f"{PYTHON}.7", [*EXACT, Installed("tiny-lib", "0.9", False)], "",
         {"distributions": ["tiny-lib 1.0 and 0.9, not 1.0"]}),
        (f"{PYTHON}.7", [*EXACT, Installed("more", "2", False)], "", {"distributions": ["more 2, not in the lock"]}),
        (f"{PYTHON}.7", [Installed("tiny-lib", "1.0", True)], "", {"files of the host": ["tiny-lib 1.0"]}),
        (f"{PYTHON}.7", EXACT, "0" * 64, {"files not of the lock": ["tiny-lib"]}),
    ],
)  # fmt: skip
def test_every_difference_is_named(
    small: Small, python: str, found: list[Installed], sha256: str, said: dict[str, object]
) -> None:
    assert bundled.differences(small.lock, contents_of(small, sha256=sha256), python, found) == said


def test_long_lists_are_cut_for_people() -> None:
    lines = bundled.summary({"python": "3.12.3, not 3.11", "files of the host": [f"a{n} 1" for n in range(20)]})
    assert lines[0] == "python: 3.12.3, not 3.11"
    assert lines[1].endswith("a7 1 and 12 more")


Host = Callable[..., Outcome]


@pytest.fixture
def on_host(bare: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Bundle, carry, unpack, and run on a host that this Python stands for."""

    def run(have: dict[str, str] | None = None, host: Path | None = None) -> Outcome:
        folder, to = tmp_path / "carried", tmp_path / "to"
        make(bare, folder, have)
        project = Project(unpacked(folder, to))
        monkeypatch.setenv("VETTED_STATE", str(to))
        monkeypatch.delenv("VETTED_WHEELHOUSE")  # from the bundle only
        lock, contents = bundled.read(project)
        with project.holding(TINY) as scratch:
            return bundled.run(
                project, lock, contents, HOST, host or Path(sys.executable), scratch, lambda _: None, lambda _: None
            )

    return run


def test_exactly_the_lock_and_a_suite_that_passes_earn_a_certificate(on_host: Host, bare: Small) -> None:
    bare.suite(
        'import sys, tiny_lib\nassert tiny_lib.greeting == "somebody"\n' + GOOD_RUN  # patched
    )
    outcome = on_host()
    statement, path = outcome.statement, outcome.certificate
    assert path is not None
    assert path.parts[-2:] == ("certificates", "cpu-host.json")
    assert certificate.read(path) == statement
    assert statement.subject[0].digest == certificate.bare(bare.lock.digest)
    engine = statement.resource("engine").annotations or {}
    assert engine["name"] == "host" and str(engine["bundle"]).startswith("sha256:")
    assert certificate.DIFFERENCES not in {one.name for one in statement.predicate.configuration}
    # Copied back, it is found there.
    back = certificate.path(bare.project, TINY, "cpu", "host")
    back.parent.mkdir()
    shutil.copy(path, back)
    assert certificate.of_stack(bare.project, TINY) == {"cpu-host": statement}


def test_a_suite_that_fails_writes_a_report(on_host: Host, bare: Small) -> None:
    bare.suite(BAD_RUN)
    outcome = on_host()
    assert (outcome.statement.predicate.result, outcome.certificate) == ("FAILED", None)
    path = outcome.report
    assert path is not None
    assert path.parts[-2:] == ("reports", "cpu-host.json")


@pytest.fixture
def host_python(tmp_path: Path) -> Path:
    """The interpreter of a host that has a distribution at another version than its freeze says."""
    uv = [machine.uv_binary(), "--quiet"]
    host = tmp_path / "host"
    subprocess.run([*uv, "venv", "--no-project", "--python", sys.executable, str(host)], check=True)
    wheel, _ = make_wheel(tmp_path / "own", "more-lib", "0.9", {"more_lib/__init__.py": "", "more_lib/x.py": ""})
    install = [*uv, "pip", "install", "--no-index", "--python", str(host / "bin" / "python"), str(wheel)]
    subprocess.run(install, check=True)
    return host / "bin" / "python"


def test_a_host_with_another_version_ends_in_a_report_that_names_it(
    on_host: Host, bare: Small, host_python: Path
) -> None:
    """Even when all passes; and a report that was copied back all the same is no certificate."""
    _, sha256 = make_wheel(bare.wheelhouse, "more-lib", "1.0", {"more_lib/__init__.py": ""})
    bare.edit("stack.toml", '["tiny-lib==1.0"]', '["tiny-lib==1.0", "more-lib==1.0"]')
    requirements = bare.file("requirements.txt")
    requirements.write_text(f"{requirements.read_text()}more-lib==1.0 --hash=sha256:{sha256}\n")
    bare.file("lock.toml").write_text(
        lockfile.header(TINY) + lockfile.format_meta(lockfile.intent(bare.lock.stack), 1_700_000_000)
    )
    bare.suite("import sys, more_lib.x\n" + GOOD_RUN)
    outcome = on_host({"more-lib": "1.0", "tiny-lib": "1.0"}, host_python)
    statement, path = outcome.statement, outcome.report
    assert (statement.predicate.result, outcome.certificate) == ("PASSED", None)
    assert path is not None
    assert path.parts[-2:] == ("reports", "cpu-host.json")
    differences = statement.resource(certificate.DIFFERENCES).annotations
    assert differences == {
        "distributions": ["more-lib 0.9, not 1.0"], "files of the host": ["more-lib 0.9"],
    }  # fmt: skip
    back = certificate.path(bare.project, TINY, "cpu", "host")
    back.parent.mkdir()
    shutil.copy(path, back)
    with pytest.raises(errors.BadInputError, match="is a report"):
        certificate.of_stack(bare.project, TINY)


def test_a_host_without_what_was_left_out_is_told_before_any_work(
    bare: Small, tmp_path: Path, host_python: Path
) -> None:
    contents = contents_of(bare).model_copy(update={"left_out": ["more-lib", "gone"]})
    with pytest.raises(errors.BadInputError, match="does not have: gone") as caught:
        bundled.prepare(bare.project, bare.lock, contents, host_python, tmp_path, lambda _: None)
    assert "--have" in caught.value.next_step


def test_the_hosts_own_files_are_linked_and_never_written(tmp_path: Path, host_python: Path) -> None:
    (found,) = bundled.of_host(host_python, ["more-lib", "not-there"])
    assert (found.name, found.version) == ("more-lib", "0.9")
    made = tmp_path / "made"
    site = made / "lib" / "site-packages"
    (site / "more_lib").mkdir(parents=True)
    (site / "more_lib" / "x.py").write_text("ours")
    bundled.link(found, made, site)
    assert (site / "more_lib" / "x.py").read_text() == "ours"
    assert (site / "more_lib" / "__init__.py").resolve() == found.folder / "more_lib" / "__init__.py"
    # Whatever a list of files says, nothing is linked outside of the environment.
    hostile = bundled.Found("evil", "1", tmp_path, ("../../escaped", "/etc/passwd", "a/../../x", "bin/../../../y"))
    before = sorted(tmp_path.rglob("*"))
    bundled.link(hostile, made, site)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("what", ["stack.toml", "suite", "bundle.json", "nothing"])
def test_an_unpacked_bundle_that_was_edited_is_refused(made: Path, tmp_path: Path, what: str) -> None:
    root = unpacked(made, tmp_path / "to")
    if what == "stack.toml":
        path = root / "lockfiles" / TINY / "debian.txt"
        path.write_text(path.read_text() + "# a line\n" + f"zlib1g=1 sha256:{'0' * 64}\n")
    elif what == "suite":
        (root / "smoke" / "late.py").touch()
    elif what == "bundle.json":
        (root / "bundle.json").write_text("{}")
    else:
        (root / "bundle.json").unlink()
    with pytest.raises(errors.BadInputError):
        bundled.read(Project(root))
