"""Attacks on a folder with an image, by whoever carries it to a host without a network."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest

from builder.publish import airgap, folder, signing
from tests.registry.conftest import Keys, Stack, verify
from tests.registry.conftest import built as built
from tests.registry.conftest import certified as certified
from tests.registry.conftest import isolated as isolated
from tests.registry.conftest import keys as keys
from tests.registry.conftest import other_keys as other_keys
from tests.registry.test_airgap import bundle
from tests.unit.conftest import Command

pytestmark = pytest.mark.engine

CHOSEN = "VETTED_IMAGE=vetted/tiny@sha256:1\nVETTED_USER=1000:1000\n"
ENVIRONMENT = {"VETTED_IMAGE": "vetted/tiny@sha256:1", "VETTED_USER": "[1-9][0-9]*:[0-9]+"}


@pytest.fixture
def carried(tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COSIGN_PASSWORD", "correct horse")
    root = tmp_path / "carried"
    for name in ("load", "compose.yaml", "smoke/__main__.py", "image/index.json"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    folder.sign(root, ENVIRONMENT, str(keys.private), tmp_path)
    assert airgap.check(root, keys.public, tmp_path) == []
    return root


@pytest.mark.parametrize("name", ["load", "compose.yaml", "smoke/__main__.py", "image/index.json"])
def test_a_file_of_the_folder_is_changed(carried: Path, keys: Keys, tmp_path: Path, name: str) -> None:
    """The list of files is signed with their digests."""
    (carried / name).write_text("another")
    assert airgap.check(carried, keys.public, tmp_path) == [f"{name} was changed"]


@pytest.mark.parametrize("name", ["compose.override.yaml", "smoke/outcome/__init__.pyc", "runs.yaml", "\x1b[2J"])
def test_a_file_is_added_to_the_folder(carried: Path, keys: Keys, tmp_path: Path, name: str) -> None:
    """Compose and Python would read it automatically."""
    (carried / name).parent.mkdir(exist_ok=True)
    (carried / name).touch()
    (doubt,) = airgap.check(carried, keys.public, tmp_path)
    assert doubt == f"{ascii(name)[1:-1]} was added"


def test_a_file_is_taken_away(carried: Path, keys: Keys, tmp_path: Path) -> None:
    """The missing file is named."""
    (carried / "load").unlink()
    assert airgap.check(carried, keys.public, tmp_path) == ["load is missing"]


def test_a_link_takes_the_place_of_a_file_or_a_folder(carried: Path, keys: Keys, tmp_path: Path) -> None:
    """The link could lead to other bytes later."""
    shutil.move(carried / "load", tmp_path / "load")
    (carried / "load").symlink_to(tmp_path / "load")
    shutil.move(carried / "smoke", tmp_path / "smoke")
    (carried / "smoke").symlink_to(tmp_path / "smoke")
    assert airgap.check(carried, keys.public, tmp_path) == [
        "load is not a file", "smoke is not a file", "smoke/__main__.py is missing",
    ]  # fmt: skip


def test_a_container_would_get_the_folder_behind_a_link(carried: Path, keys: Keys, tmp_path: Path) -> None:
    """The cache is mounted: a link in its place, or a folder beside its two, is a doubt."""
    (carried / ".huggingface").mkdir()
    (carried / ".huggingface" / "hub").symlink_to(tmp_path)
    (carried / ".huggingface" / "other").mkdir()
    (carried / ".huggingface" / "other" / "file").touch()
    assert airgap.check(carried, keys.public, tmp_path) == [
        ".huggingface/hub is not a file", ".huggingface/other/file was added",
    ]  # fmt: skip


def test_the_list_is_taken_away_or_signed_anew(carried: Path, keys: Keys, other_keys: Keys, tmp_path: Path) -> None:
    """Without the list, or with a list signed by another key, nothing is accepted."""
    (carried / "load").write_text("another")
    folder.sign(carried, ENVIRONMENT, str(other_keys.private), tmp_path)
    assert "another key" in airgap.check(carried, keys.public, tmp_path)[0]
    (carried / folder.MANIFEST).unlink()
    assert "are not signed" in airgap.check(carried, keys.public, tmp_path)[0]


def test_the_list_is_changed_under_its_signature(carried: Path, keys: Keys, tmp_path: Path) -> None:
    """The list is the subject of the statement, and the statement is what is signed."""
    envelope = json.loads((carried / folder.MANIFEST).read_text())
    parsed = signing.parse((carried / folder.MANIFEST).read_bytes())
    assert parsed is not None
    forged = parsed.payload.replace(b'"load"', b'"lord"')
    envelope["payload"] = base64.b64encode(forged).decode()
    (carried / folder.MANIFEST).write_text(json.dumps(envelope))
    (doubt,) = airgap.check(carried, keys.public, tmp_path)
    assert doubt.startswith(f"{folder.MANIFEST}: ")


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000])
def test_the_list_is_rubbish(carried: Path, keys: Keys, tmp_path: Path, text: str) -> None:
    """An error says so, without a traceback."""
    (carried / folder.MANIFEST).write_text(text)
    assert airgap.check(carried, keys.public, tmp_path) == [f"{folder.MANIFEST} is not a signed list of files"]


def test_another_image_is_chosen_in_the_folder(carried: Path, keys: Keys, tmp_path: Path) -> None:
    """The content that `load` writes is known, and only results may be new on the host."""
    (carried / "runs" / "1").mkdir(parents=True)
    (carried / "runs" / "1" / "metrics.jsonl").touch()
    (carried / ".huggingface" / "hub" / "models--x").mkdir(parents=True)
    (carried / ".huggingface" / "hub" / "models--x" / "weights").touch()
    (carried / ".env").write_text(CHOSEN)
    assert airgap.check(carried, keys.public, tmp_path) == []
    for other in (CHOSEN.replace("tiny", "evil"), CHOSEN + "COMPOSE_FILE=evil.yaml\n", CHOSEN.replace("=1000", "=0")):
        (carried / ".env").write_text(other)
        (doubt,) = airgap.check(carried, keys.public, tmp_path)
        assert doubt.startswith(".env is not what carried/load writes")


@pytest.fixture
def real(command: Command, certified: Stack, keys: Keys, tmp_path: Path) -> Path:
    """A folder as `vetted bundle --image` writes it, whose image verifies."""
    done = bundle(command, certified, keys, tmp_path / "real")
    assert done.code == 0, done.err
    assert verify(command, certified, str(tmp_path / "real"), keys, "--offline").out.endswith("\nverified\n")
    return tmp_path / "real"


@pytest.mark.parametrize(
    ("named", "also"),
    [("real", ("load",)), ("real", ()), ("real/image", ()), ("real/image", ("load", "judged")), ("link", ("load",))],
)
def test_the_list_is_taken_away_and_a_file_changed(
    command: Command, certified: Stack, keys: Keys, real: Path, named: str, also: tuple[str, ...]
) -> None:
    """Without the list, the folder is no layout alone, whichever of its folders is named: it is not verified."""
    for name in (folder.MANIFEST, *also):
        shutil.rmtree(real / name) if (real / name).is_dir() else (real / name).unlink()
    (real / "compose.network.yaml").write_text("services: {train: {image: evil}}\n")
    (real.parent / "link").symlink_to("real/image")
    answer = verify(command, certified, str(real.parent / named), keys, "--offline")
    assert (answer.code, answer.out.splitlines()[-1]) == (1, "not verified"), answer.out
    assert "doubt: folder.dsse.json is not there: the folder's files are not signed" in answer.out
    assert "next: copy the whole folder again" in answer.out


def test_everything_is_signed_anew_with_the_key_in_the_folder(
    command: Command, certified: Stack, other_keys: Keys, real: Path, tmp_path: Path
) -> None:
    """Whoever carries it makes it anew, with a key of their own: the key in the folder proves nothing."""
    shutil.rmtree(real)
    assert bundle(command, certified, other_keys, real).code == 0
    for named, key in ((real, real / "cosign.pub"), (real / "image", tmp_path / "link.pub")):
        (tmp_path / "link.pub").unlink(missing_ok=True)
        (tmp_path / "link.pub").symlink_to(real / "cosign.pub")
        answer = verify(command, certified, str(named), Keys(other_keys.private, key), "--offline")
        assert (answer.code, answer.out.splitlines()[-1]) == (1, "not verified"), answer.out
        assert "cosign.pub lies in the folder that it is to prove" in answer.out.replace("link.pub", "cosign.pub")


def test_results_are_carried_along_that_nobody_signed(
    command: Command, certified: Stack, keys: Keys, real: Path
) -> None:
    """runs/ and the cache of models are the host's own: a note counts what lies there already."""
    cache = real / airgap.CACHE / "hub" / "models--evil"
    cache.mkdir(parents=True)
    (cache / "model.safetensors").touch()
    answer = verify(command, certified, str(real), keys, "--offline")
    assert "1 files in runs/ and .huggingface/ are of this host: no signature covers them" in answer.out
