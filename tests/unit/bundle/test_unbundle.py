"""On the host, before anything is installed: parts are checked and kept, and a hostile bundle writes nothing."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builder.base import quantities
from builder.base.project import Project
from builder.bundle import archive, destination, unbundle
from builder.bundle.contents import read_unpacked
from builder.bundle.unbundle import parts as unpacking
from builder.bundle.unbundle import stop, work
from builder.bundle.unbundle.manifest import FORMAT, MANIFEST, Part, read_manifest
from builder.bundle.unbundle.stop import StopError
from tests.conftest import PYTHON, Small
from tests.unit.bundle.conftest import unpacked


def manifest_of(folder: Path) -> Any:
    return json.loads((folder / MANIFEST).read_text())


def test_what_is_unpacked_is_what_was_bundled(carried: Path, bare: Small, tmp_path: Path) -> None:
    root = unpacked(carried, tmp_path / "to")
    lock, contents = read_unpacked(Project(root))
    assert lock.digest == bare.lock.digest
    assert [file.name for file in contents.distributions] == ["tiny-lib"]
    assert not list((tmp_path / "to").rglob("*.partial*"))


def test_parts_that_are_missing_are_named_and_the_others_kept(carried: Path, tmp_path: Path) -> None:
    manifest = read_manifest(carried)
    names = [part.name for part in manifest.parts]
    late = carried / names[1]
    late.rename(tmp_path / "late")
    kept = tmp_path / "parts"
    with pytest.raises(StopError) as caught:
        unpacking.collect(carried, manifest, kept)
    assert caught.value.code == 3
    assert f"missing: {names[1]}" in caught.value.text
    assert "next: " in caught.value.text
    # What arrived needs not be there again.
    for name in names:
        (carried / name).unlink(missing_ok=True)
    (tmp_path / "late").rename(late)
    unpacking.collect(carried, manifest, kept)
    assert sorted(path.name for path in kept.iterdir()) == names


@pytest.mark.parametrize("damage", ["bit", "cut", "longer"])
def test_a_damaged_part_is_named_and_not_kept(carried: Path, tmp_path: Path, damage: str) -> None:
    manifest = read_manifest(carried)
    part = carried / manifest.parts[0].name
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes({"bit": bytes(data), "cut": part.read_bytes()[:-1], "longer": part.read_bytes() + b"x"}[damage])
    with pytest.raises(StopError) as caught:
        unpacking.collect(carried, manifest, tmp_path / "parts")
    assert caught.value.code == 1
    assert f"damaged: {part.name}" in caught.value.text
    assert not (tmp_path / "parts" / part.name).exists()


def test_a_foreign_part_is_passed_over(carried: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (carried / "other.part001").write_bytes(b"of another bundle")
    unpacked(carried, tmp_path / "to")
    assert "other.part001" in capsys.readouterr().err


def test_a_kept_part_that_changed_afterwards_is_found_while_unpacking(carried: Path, tmp_path: Path) -> None:
    manifest = read_manifest(carried)
    kept, final = tmp_path / "parts", tmp_path / "bundle"
    unpacking.collect(carried, manifest, kept)
    last = kept / manifest.parts[-1].name
    last.write_bytes(last.read_bytes()[:-1] + b"x")
    with pytest.raises(StopError, match="has changed"):
        unpacking.unpack(kept, manifest, final)
    assert not final.exists() and not last.exists()
    assert not final.with_name("bundle.partial").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"format": 1}, {"carried": 1}, {"stack": "../up"}, {"stack": None}, {"device": "tpu"}, {"python": "3"},
        {"size": 1},
        {"parts": []}, {"parts": "all"}, {"parts": [{"name": "a.part001"}]},
    ],
)  # fmt: skip
def test_a_manifest_that_cannot_be_is_refused(carried: Path, change: dict[str, Any]) -> None:
    (carried / MANIFEST).write_text(json.dumps({**manifest_of(carried), **change}))
    with pytest.raises(StopError, match=r"is not a manifest") as caught:
        read_manifest(carried)
    assert caught.value.code == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "../../etc/passwd"), ("name", "/etc/passwd"), ("name", "a.part001/../x"), ("name", ".a.part001"),
        ("name", "a.part001\n"), ("size", -1), ("size", "1"), ("size", True), ("sha256", "0"), ("sha256", None),
    ],
)  # fmt: skip
def test_a_part_of_a_hostile_manifest_is_refused(carried: Path, key: str, value: object) -> None:
    data = manifest_of(carried)
    data["parts"][0][key] = value
    (carried / MANIFEST).write_text(json.dumps(data))
    with pytest.raises(StopError, match="is not a manifest"):
        read_manifest(carried)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 1}', "\0"])
def test_a_manifest_that_is_no_json_or_lacks_something_is_refused(carried: Path, text: str) -> None:
    (carried / MANIFEST).write_text(text)
    with pytest.raises(StopError, match="is not a manifest"):
        read_manifest(carried)


def test_a_missing_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(StopError, match=MANIFEST) as caught:
        read_manifest(tmp_path)
    assert caught.value.code == 3


def evil_manifest(folder: Path, parts: list[Part]) -> Path:
    """Give a folder with parts its manifest; the folder."""
    size, listed = sum(part.size for part in parts), [part._asdict() for part in parts]
    data = {
        "format": FORMAT, "stack": "evil", "device": "cpu", "python": PYTHON, "carried": False, "size": size,
        "parts": listed,
    }  # fmt: skip
    (folder / MANIFEST).write_text(json.dumps(data))
    return folder


def packed(folder: Path, fill: Callable[[tarfile.TarFile], None]) -> Path:
    """A bundle of any archive, as an attacker would make it."""
    folder.mkdir()
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        fill(tar)
    parts = list(archive.split([stream.getvalue()], folder, "evil", 4096))
    return evil_manifest(folder, parts)


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> Callable[[tarfile.TarFile], None]:
    def fill(tar: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.size = kind, link, 4 if kind == tarfile.REGTYPE else 0
        tar.addfile(info, io.BytesIO(b"evil"))

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
    evil_manifest(folder, list(archive.split([b"no archive" * 1000], folder, "evil", 100_000)))
    with pytest.raises(StopError, match="not an archive"):
        unpacked(folder, tmp_path / "to")


def entry(folder: Path, to: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(folder / destination.ENTRY), "--to", str(to), *argv],
        capture_output=True,
        text=True,
        cwd=folder,
    )


def test_the_entry_script_ends_without_a_traceback_whatever_is_wrong(carried: Path, tmp_path: Path) -> None:
    data = manifest_of(carried)
    part = carried / data["parts"][0]["name"]
    part.rename(tmp_path / "away")
    result = entry(carried, tmp_path / "to")
    assert result.returncode == 3
    assert f"missing: {part.name}" in result.stderr
    assert "Traceback" not in result.stderr
    (carried / MANIFEST).write_text(json.dumps({**data, "python": "3.99"}))
    result = entry(carried, tmp_path / "to")
    assert result.returncode == 4
    assert "3.99" in result.stderr
    (carried / MANIFEST).write_text(json.dumps(data))
    (tmp_path / "file").touch()
    result = entry(carried, tmp_path / "file" / "to")
    assert result.returncode == 6
    assert "--to" in result.stderr and "Traceback" not in result.stderr
    for device in ("tpu", "cuda"):
        assert entry(carried, tmp_path / "to", "--device", device).returncode == 2


def test_the_entry_script_is_of_the_standard_library_and_of_an_old_python() -> None:
    for file in Path(unbundle.__file__).parent.glob("*.py"):
        tree = ast.parse(file.read_text(), feature_version=(3, 10))
        imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
        named = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 0]
        imported |= {node.module or "" for node in named}
        assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names


def test_a_run_in_the_background_is_asked_for_its_state(carried: Path, tmp_path: Path) -> None:
    """This bundle has no verifier, so that the run ends there."""
    to = tmp_path / "to"
    early = entry(carried, to, "--status")
    assert (early.returncode, "nothing has run" in early.stderr) == (3, True)
    part = carried / manifest_of(carried)["parts"][0]["name"]
    part.rename(tmp_path / "away")
    assert entry(carried, to, "--background").returncode == 3  # before anything is started
    (tmp_path / "away").rename(part)
    started = entry(carried, to, "--background")
    assert started.returncode == 0 and "--status" in started.stdout, started.stderr
    while (state := entry(carried, to, "--status")).returncode == 3:
        assert "at work" in state.stdout
    assert state.returncode == 1
    assert "ended early" in state.stdout and "the bundle has no verifier" in state.stdout
    assert (to / "results" / "run.log").is_file()


def test_the_state_of_a_run_counts_its_probes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "results" / "status.json"
    kept.parent.mkdir()
    (tmp_path / "lock").touch()
    state: dict[str, object] = {"step": "beta", "of": 3, "probes": {"alpha": "passed", "gamma": "failed"}}
    kept.write_text(json.dumps(state))
    lock = work.hold(tmp_path)
    assert not kept.exists()  # it was of an earlier run
    kept.write_text(json.dumps(state))
    assert work.status(tmp_path) == 3
    assert capsys.readouterr().out == "at work: beta\nprobes: 2 of 3 ended: 1 passed, 1 failed\n"
    os.close(lock)
    assert work.status(tmp_path) == 1
    assert "ended early: beta" in capsys.readouterr().out
    for code in (0, 1):
        kept.write_text(json.dumps({**state, "exit": code, "answer": "certified: x"}))
        assert work.status(tmp_path) == code
        assert "ended: certified: x" in capsys.readouterr().out


def test_results_that_no_run_wrote_stay(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "status.json").write_text("mine")
    with pytest.raises(StopError, match="no earlier run wrote it"):
        work.hold(tmp_path)
    assert (tmp_path / "results" / "status.json").read_text() == "mine"
    assert not (tmp_path / "lock").exists()


@pytest.mark.parametrize("count", [0, 1234, 499_949, 500_000, 500_001, 1_500_001, 3_000_000_000])
def test_the_entry_script_says_sizes_as_the_tool_does(count: int) -> None:
    assert stop.readable_size(count) == quantities.size(count)


def test_what_an_earlier_bundle_left_goes_and_nothing_else(tmp_path: Path) -> None:
    ours, theirs = "0123456789ab", "ba9876543210"
    stay = [
        "results",
        f"python-{ours}",
        f"bundle-{ours}",
        f"verifier-{ours}.partial",
        "bundle-photos",
        "certificates",
        "lock",
    ]
    for name in (*stay, f"bundle-{theirs}", f"parts-{theirs}", f"verifier-{theirs}.partial"):
        (tmp_path / name).mkdir()
    work.remove_others(tmp_path, ours)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(stay)
