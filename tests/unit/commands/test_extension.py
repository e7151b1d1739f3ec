"""An extension after it was made: locked again, rendered, certified, chosen, and installed into."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from builder.base import machine
from builder.certify import choice
from builder.image import own, render
from tests.conftest import TINY
from tests.unit.commands.conftest import MINE, Shop


def test_locking_an_extension_again_keeps_the_parent_though_the_parent_moved_on(shop: Shop) -> None:
    shop.offer("extra", "1.0")
    assert shop.extend(["extra"]).code == 0
    before = shop.lock
    home = shop.small.root
    shop.offer("extra", "1.1")
    shop.offer("tiny-lib", "1.1")
    shop.small.edit("requirements.txt", "tiny-lib==1.0", "tiny-lib==1.1")  # whatever its hash
    assert shop.command(home, "lock", MINE, "--json").json[MINE]["changed"] is False
    shop.small.edit("requirements.txt", "tiny-lib==1.1", "tiny-lib==1.0")
    text = (shop.folder / "stack.toml").read_text()
    (shop.folder / "stack.toml").write_text(text.replace('"extra==1.0"', '"extra"'))
    assert shop.command(home, "lock", MINE, "--upgrade", "all").code == 0
    assert shop.lock.versions["extra"] == "1.1"
    assert shop.lock.parent.digest == before.parent.digest
    refused = shop.command(home, "lock", MINE, "--upgrade", "tiny-lib")
    assert refused.code == 3 and "tiny-lib belongs to tiny, which mine extends" in refused.err


def test_a_lock_whose_parents_part_was_edited_is_refused(shop: Shop) -> None:
    shop.offer("extra", "1.0")
    shop.extend(["extra"])
    path = shop.folder / "requirements.txt"
    sha256 = shop.small.lock.python[0].sha256
    path.write_text(path.read_text().replace(sha256, "0" * 64))
    answer = shop.command(shop.small.root, "build", MINE)
    assert answer.code == 5 and "what tiny had is not what it had when it was extended" in answer.err


def test_the_image_has_the_parents_layers_and_one_more(shop: Shop) -> None:
    shop.offer("extra", "1.0")
    shop.extend(["extra"])
    home = shop.small.project
    theirs, ours = (render.dockerfile(home, lock) for lock in (shop.small.lock, shop.lock))
    stages = [each.partition("\n# Every layer below")[0].strip() for each in theirs.split("\nFROM ")[1:-1]]
    for stage in stages:
        assert stage in ours
    joined = [line for line in ours.splitlines() if line.startswith("COPY --link")]
    parents = [line for line in theirs.splitlines() if line.startswith("COPY --link")]
    assert joined == [*parents, "COPY --link --from=own /layer /"]
    assert render.layers(shop.lock) == [*render.layers(shop.small.lock), "own"]
    for name in ("PIP_CONSTRAINT", "UV_CONSTRAINT"):
        assert f"    {name}=/etc/vetted/constraints.txt \\\n" in ours and name not in theirs
    assert f'dev.vetted.extends="tiny {shop.small.lock.digest}"' in ours


def test_it_is_certified_and_shown_as_any_stack(shop: Shop) -> None:
    shop.offer("extra", "1.0")
    shop.extend(["extra"])
    answer = shop.command(shop.small.root, "certify", MINE, "--engine", "host")
    assert answer.code == 0, answer.err
    assert [row["stack"] for row in shop.command(shop.small.root, "list", "--json").json] == [MINE, TINY]
    statement = json.loads((shop.folder / "certificates" / "cpu-host.json").read_text())
    assert shop.lock.digest.removeprefix("sha256:") in json.dumps(statement)


def test_it_lies_in_the_folder_of_own_stacks_where_there_is_one(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("VETTED_STACKS", str(own))
    shop.offer("extra", "1.0")
    assert shop.extend(["extra"]).code == 0
    assert sorted(path.name for path in (own / MINE).iterdir()) == [
        "Dockerfile", "build.txt", "debian.txt", "lock.toml", "requirements.txt", "stack.toml",
    ]  # fmt: skip
    assert not shop.folder.exists()


def test_it_is_not_chosen_for_a_machine_unasked(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.offer("extra", "1.0")
    (shop.small.root / "mine.txt").write_text("extra\n")
    assert shop.command(shop.small.root, "extend", TINY, "mine.txt", "--name", "z-mine").code == 0
    monkeypatch.setattr(machine, "gpus", list)
    assert choice.choose(shop.small.project).name == TINY


def test_an_installation_into_a_folder_cannot_bring_another_release(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.offer("extra", "1.0")
    shop.extend(["extra"])
    own.files(shop.lock, tmp_path / "layer", "{}")
    for number in ("2.0", "3.0"):
        shop.offer("tiny-lib", number)
    shop.offer("late", "1.0", "tiny-lib")
    monkeypatch.setenv("UV_CONSTRAINT", str(tmp_path / "layer" / own.CONSTRAINTS))
    links = ["--find-links", str(shop.small.wheelhouse), "--no-index", "--python", sys.executable]

    def install(line: str) -> subprocess.CompletedProcess[str]:
        argv = [machine.uv_binary(), "pip", "install", *links, "--target", str(tmp_path / "late"), line]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    assert install("tiny-lib>=2").returncode == 1
    assert install("late").returncode == 0
    assert (tmp_path / "late" / "tiny_lib-1.0.dist-info").is_dir()
