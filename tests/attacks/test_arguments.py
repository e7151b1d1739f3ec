"""Attacks on what `verify` was asked: a folder in the way, a list that is gone, a requirement that requires nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builder.base import errors, project
from builder.commands import verify
from builder.publish import airgap, training
from builder.publish import verify as verifying
from builder.publish.verify import Verdict
from runtime.monitor import certificate
from tests.conftest import ROOT, Small
from tests.unit.conftest import Command
from tests.unit.conftest import command as command
from tests.unit.publish import keyfiles
from tests.unit.runtime.monitor.conftest import finished as finished

DIGEST = "sha256:" + "cd" * 32


def test_a_folder_that_is_named_like_a_digest_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the carried folder lies one whose name is what was typed, FOLDER@DIGEST: the digest still counts."""
    monkeypatch.chdir(tmp_path)
    for name in ("carried", f"carried@{DIGEST}"):
        (tmp_path / name).mkdir()
    assert verify._folder(f"carried@{DIGEST}") == (tmp_path / "carried", DIGEST)
    assert verify._folder(f"carried@{DIGEST}@{DIGEST}") == (tmp_path / f"carried@{DIGEST}", DIGEST)
    assert verify._folder("carried") == (tmp_path / "carried", None)


def test_the_key_that_is_named_lies_in_the_folder(
    small: Small, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are copied before cosign gets them: what counts is where the one was that was typed."""
    good = Verdict("carried", DIGEST)
    monkeypatch.setattr(verifying, "local", lambda *_: good)
    monkeypatch.setattr(airgap, "check", lambda *_: [])
    carried = small.root / "carried"
    (carried / airgap.IMAGE).mkdir(parents=True)
    (carried / airgap.LOAD).touch()
    for place in (carried, small.root):
        (place / "cosign.pub").write_text(keyfiles.pem(keyfiles.OTHER))
    doubt = "the key cosign.pub lies in the folder that it is to prove"
    assert doubt in command(small.root, "verify", "carried", "--offline", "--key", "carried/cosign.pub").out
    assert doubt not in command(small.root, "verify", "carried", "--offline", "--key", "cosign.pub").out


@pytest.mark.parametrize("hardware", ["", " ", ",", '"', "(", "-"])
def test_a_requirement_that_every_certificate_meets(small: Small, command: Command, hardware: str) -> None:
    """`--hardware "$GPU"` where GPU is not set, or is a comma, which is in every certificate."""
    (small.root / "cosign.pub").write_text(keyfiles.pem(keyfiles.OTHER))
    argv = ("verify", "registry.example/a/b:c", "--key", "cosign.pub", f"--hardware={hardware}")
    answer = command(small.root, *argv)
    assert answer.code == 2
    assert "--hardware" in answer.err and ("H200" in answer.err or "is empty" in answer.err)


def set_(**values: object) -> Callable[[dict[str, Any]], None]:
    return lambda predicate: predicate["checks"][0].update(values)


LAX: dict[str, Callable[[dict[str, Any]], None]] = {
    "a text as a number": set_(findings="0"),
    "a text as a bound": set_(at_most="0.02"),
    "a yes as a number": set_(findings=False),
    "a fraction as a count": set_(steps=3.0),
    "a text as a step": lambda predicate: predicate["steps"].update(judged="3"),
}


@pytest.mark.parametrize("lax", LAX)
def test_a_run_certificate_whose_numbers_are_texts(finished: Path, lax: str) -> None:
    """Other programs read a text, a yes or a fraction where this one would read the right number."""
    path = finished / certificate.NAME
    document = json.loads(path.read_text())
    LAX[lax](document["predicate"])
    path.write_text(json.dumps(document))
    with pytest.raises(errors.BadInputError, match="is no run certificate"):
        training.judge(project.Project(ROOT), finished)
