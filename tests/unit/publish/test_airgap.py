"""The script of a carried folder: it loads the image from anywhere, and chooses it only where Docker knows it.

The whole folder, signed, is in tests/registry.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from builder.publish import airgap, dotenv
from builder.publish import folder as folders
from builder.publish.verify import Verdict
from tests.conftest import Small

IMAGE = "vetted/tiny@sha256:" + "1" * 64
# A Docker that writes down what it is called with, and knows one image.
DOCKER = """\
#!/bin/sh
case "$1" in
    load) tar -t > "$NOTES/loaded" ;;
    image) [ "$3" = "$KNOWN" ] ;;
esac
"""


def load(folder: Path, notes: Path, image: str) -> subprocess.CompletedProcess[str]:
    (notes / "bin").mkdir(parents=True)
    (notes / "bin" / "docker").write_text(DOCKER)
    (notes / "bin" / "docker").chmod(0o755)
    path = f"{notes / 'bin'}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "NOTES": str(notes), "KNOWN": image}
    argv = ["sh", str(folder / airgap.LOAD)]
    return subprocess.run(argv, cwd="/", env=environ, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "carried" / airgap.IMAGE).mkdir(parents=True)
    (tmp_path / "carried" / airgap.IMAGE / "index.json").touch()
    (tmp_path / "carried" / airgap.LOAD).write_text(airgap.script(IMAGE, "tiny", "compose.yaml:compose.gpu.yaml"))
    return tmp_path / "carried"


def test_the_image_is_loaded_and_chosen(folder: Path, tmp_path: Path) -> None:
    result = load(folder, tmp_path / "notes", IMAGE)
    assert (result.returncode, result.stderr) == (0, "")
    assert "./index.json" in (tmp_path / "notes" / "loaded").read_text().splitlines()
    runs = (folder / "runs").stat()
    assert runs.st_uid != 0
    assert (folder / airgap.CACHE / "datasets").stat().st_uid == runs.st_uid
    assert (folder / ".env").read_text() == (
        f"{dotenv.IMAGE}={IMAGE}\n{dotenv.STACK}=tiny\n{dotenv.CERTIFICATES}=./judged\n"
        f"{dotenv.USER}={runs.st_uid}:{runs.st_gid}\n{dotenv.FILES}=compose.yaml:compose.gpu.yaml\n"
        f"{dotenv.CACHE}=./{airgap.CACHE}\n"
        f"{dotenv.MEMORY}={dotenv.limits()[dotenv.MEMORY]}\n"
    )


def test_an_engine_that_knows_no_digests_chooses_nothing(folder: Path, tmp_path: Path) -> None:
    result = load(folder, tmp_path / "notes", "another")
    assert result.returncode == 4
    assert 'next: in /etc/docker/daemon.json set {"features": {"containerd-snapshotter": true}}' in result.stderr
    assert not (folder / ".env").exists()


@pytest.mark.parametrize("name", ["runs", ".huggingface", ".huggingface/hub", ".huggingface/datasets"])
def test_a_link_in_the_place_of_a_folder_that_a_container_gets_is_not_followed(
    folder: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "private").mkdir()
    before = (tmp_path / "private").stat()
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).symlink_to(tmp_path / "private")
    result = load(folder, tmp_path / "notes", IMAGE)
    assert result.returncode == 6
    assert f"{folder}/{name} is a link" in result.stderr and f"next: rm '{name}'" in result.stderr
    assert not (folder / ".env").exists()
    after = (tmp_path / "private").stat()
    assert (after.st_uid, list((tmp_path / "private").iterdir())) == (before.st_uid, [])


def test_files_of_the_host_are_counted_among_results_and_downloads(folder: Path) -> None:
    for name in ("runs/a", ".huggingface/hub/b", ".huggingface/datasets/c/d"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    assert folders.unsigned(folder) == 3


GOOD = Verdict("folder", "sha256:" + "1" * 64)


@pytest.mark.parametrize("gone", [(), (airgap.LOAD,)])
def test_without_its_list_a_carried_folder_is_no_layout_alone(
    small: Small, folder: Path, tmp_path: Path, gone: tuple[str, ...]
) -> None:
    (folder / "compose.yaml").touch()
    for name in gone:
        (folder / name).unlink()
    (tmp_path / "link").symlink_to(folder / airgap.IMAGE)
    for named in (folder, folder / airgap.IMAGE, *([] if gone else [tmp_path / "link"])):
        place, around = airgap.layout(small.project, named)
        assert around is not None and around.resolve() == folder and place.resolve() == folder / airgap.IMAGE
        (doubt,) = airgap.judged(
            GOOD, place, around, [tmp_path / "cosign.pub"], [tmp_path / "cosign.pub"], tmp_path
        ).doubts
        assert doubt.startswith("folder.dsse.json is not there: the folder's files are not signed")
        assert "\nusual cause: " in doubt and "\nnext: " in doubt


def test_a_layout_alone_says_that_no_file_beside_it_was_judged(small: Small, tmp_path: Path) -> None:
    layout = small.root / airgap.IMAGE  # beside the project's own compose.yaml
    layout.mkdir()
    (small.root / "compose.yaml").touch()
    (small.root / airgap.LOAD).touch()  # of another project
    (layout / "index.json").touch()
    assert airgap.layout(small.project, layout) == (layout, None)
    verdict = airgap.judged(GOOD, layout, None, [tmp_path / "cosign.pub"], [tmp_path / "cosign.pub"], tmp_path)
    assert (verdict.doubts, verdict.notes) == ((), (airgap.ALONE,))


def test_a_key_from_the_folder_proves_nothing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link.pub").symlink_to(folder / "cosign.pub")
    for key in (folder / "cosign.pub", folder / "image" / ".." / "cosign.pub", tmp_path / "link.pub"):
        first, _ = airgap.judged(GOOD, folder / airgap.IMAGE, folder, [key], [key], tmp_path).doubts
        assert "lies in the folder that it is to prove" in first and "\nnext: " in first
