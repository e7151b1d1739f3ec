"""The verdict on an image, which the host writes and preflight reads in the image."""

from __future__ import annotations

import datetime
import json
import shutil
from pathlib import Path

import pytest

from builder.certify import certificate, verdict
from builder.certify.certificate import ProbeResult
from builder.image import context
from runtime import preflight
from runtime import verdict as mounted_verdict
from tests.conftest import TINY, Small

IMAGE = "sha256:" + "a" * 64


def write(small: Small, image: str = IMAGE) -> Path:
    target = verdict.folder(small.project, TINY)
    statements = certificate.of_stack(small.project, TINY).values()
    verdict.write(small.project, small.lock, image, statements, target, small.scratch())
    return target


def test_preflight_reads_in_the_image_what_was_judged_on_the_host(small: Small, tmp_path: Path) -> None:
    issued = small.issue("docker", subject=IMAGE)
    root = tmp_path / "container"
    shutil.copytree(write(small), root / mounted_verdict.FOLDER)
    (root / "etc/vetted").mkdir(parents=True)
    (root / preflight.STACK).write_text(json.dumps(context.description(small.project, small.lock)))
    image = preflight.stack(root)
    mounted = mounted_verdict.read(root)
    assert mounted is not None and mounted.applies_to(image)
    (path,) = mounted_verdict.certificate_files(root, image)
    assert json.loads(path.read_text()) == json.loads(issued.read_text())
    hardware = certificate.read(issued).resource("hardware").annotations or {}
    assert [entry.hardware for entry in mounted.certificates] == [hardware["class"]]
    assert mounted.certificates[0].expires == str(certificate.today() + certificate.LIFETIME)


@pytest.mark.parametrize("kind", ["of another image", "expired", "failed"])
def test_what_is_no_certificate_of_the_image_today_is_not_in_the_verdict(small: Small, kind: str) -> None:
    other = "sha256:" + "b" * 64
    small.issue(
        "docker",
        subject=other if kind == "of another image" else IMAGE,
        probes=[ProbeResult(name="alpha", outcome="failed")] if kind == "failed" else [],
        day=certificate.today() - (certificate.LIFETIME + datetime.timedelta(1)) if kind == "expired" else None,
    )
    target = write(small)
    assert json.loads((target / verdict.VERDICT).read_text())["certificates"] == []
    assert list((target / verdict.CERTIFICATES).iterdir()) == []


def test_nothing_of_an_earlier_image_is_left(small: Small) -> None:
    small.issue("docker", subject=IMAGE)
    target = write(small)
    assert [path.name for path in (target / verdict.CERTIFICATES).iterdir()] == ["0.json"]
    write(small, "sha256:" + "b" * 64)
    assert list((target / verdict.CERTIFICATES).iterdir()) == []
