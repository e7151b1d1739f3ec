"""A project with many certificates, each a variation of the real one: other stacks, processors and days.

Every file is one of its own, of the size of the real one. Some have expired, and one in a thousand was altered.
"""

from __future__ import annotations

import datetime
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors
from builder.base.machine import Hardware
from builder.base.project import Project
from builder.certify import certificate, judgement
from builder.certify.certificate import LIFETIME, Resource, Statement
from builder.image import render, target
from builder.image.build import Built
from builder.lock import lockfile
from builder.publish import attached, publish, release, signing
from tests import layouts

MODEL = "trl1.16-cpu"
MOST_STACKS = 40
PROCESSORS = ("AMD EPYC 7763", "AMD EPYC 9654", "Intel(R) Xeon(R) Platinum 8488C", "Neoverse-V2", "Intel(R) Xeon(R) 6")
CORES = (2, 8, 32, 64)
STEP = 4  # days between two certificates of the same machine; the oldest have expired
ALTERED = 1000  # one certificate in so many says a number that no suite could
FOLDERS = ("advisories", "images", "runtime", "smoke")


@dataclass(frozen=True)
class Scaled:
    """The project, the names of its stacks, and the bytes of its certificates."""

    project: Project
    stacks: list[str]
    bytes: int


def make(real: Project, root: Path, count: int) -> Scaled:
    """Write a project with so many certificates. Raises VettedError where the real one does not hold today."""
    for part in FOLDERS:
        shutil.copytree(real.root / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    text = _model(real)
    stacks = [f"{MODEL}-{number:02}" for number in range(1, min(MOST_STACKS, -(-count // 20)) + 1)]
    project, total = Project(root), 0
    for name in stacks:
        shutil.copytree(real.stack_dir(MODEL), project.stack_dir(name), ignore=shutil.ignore_patterns("*ies", "*ates"))
        folder = project.stack_dir(name) / "certificates"
        folder.mkdir()
        inputs = target.inputs_of(project, lockfile.load(project, name))
        subject = target.tag(lockfile.load(project, name), inputs)
        own = text.replace(_inputs(text), inputs.removeprefix("sha256:"))
        for number, (hardware, day) in zip(range(count // len(stacks)), _machines_and_days(), strict=False):
            varied = _varied(own, subject, hardware, day)
            if number % ALTERED == ALTERED // 2:
                varied = varied.replace('"peak_memory_mib": ', '"peak_memory_mib": 99999', 1)
            (folder / f"cpu-docker-{number:05}.json").write_text(varied)
            total += len(varied)
    return Scaled(project, stacks, total)


def _model(real: Project) -> str:
    """The real certificate, which must hold but for its age."""
    path = certificate.path(real, MODEL, "cpu", "docker")
    statement = certificate.read(path)
    if doubts := judgement.lasting(statement, judgement.terms(real, lockfile.load(real, MODEL))):
        raise errors.VettedError(f"{path} does not hold: {doubts[0]}", next_step=f"vetted certify {MODEL}")
    return path.read_text()


def _inputs(text: str) -> str:
    """The digest of the inputs that a certificate names."""
    digest = certificate.parse(text.encode()).resource(certificate.INPUTS).digest
    assert digest is not None
    return digest.sha256


def _machines_and_days() -> Iterator[tuple[Hardware, datetime.date]]:
    age = 0
    while True:
        for name in PROCESSORS:
            for cores in CORES:
                yield Hardware(name, cores), certificate.today() - datetime.timedelta(days=age)
        age = (age + STEP) % 100


def _varied(text: str, subject: str, hardware: Hardware, day: datetime.date) -> str:
    """The certificate with another subject, machine and day, as the tool would write it."""
    begin = text.index('"class": ')
    end = text.index("}", begin)
    machine = f'"class": {json.dumps(hardware.hardware_class)},\n          "cpu": {json.dumps(hardware.name)},\n'
    machine += f'          "cores": {hardware.cores}\n        '
    varied = text[:begin] + machine + text[end:]
    for key, value in (("name", subject), ("issued", str(day)), ("expires", str(day + LIFETIME))):
        start = varied.index(f'"{key}": "') + len(key) + 5
        varied = varied[:start] + value + varied[varied.index('"', start) :]
    return varied


# --- an image with many certificates ---------------------------------------------------------------------------------


def image(scaled: Scaled, folder: Path, count: int) -> tuple[Path, Path]:
    """A small image with so many signed certificates about it, as an OCI layout; and the public key."""
    environment = {**os.environ, "COSIGN_PASSWORD": ""}
    subprocess.run(["cosign", "generate-key-pair"], cwd=folder, check=True, capture_output=True, env=environment)
    os.environ["COSIGN_PASSWORD"] = ""
    lock = lockfile.load(scaled.project, scaled.stacks[0])
    dockerfile = scaled.project.dockerfile(lock.name)
    dockerfile.parent.mkdir(exist_ok=True)
    dockerfile.write_text(render.dockerfile(scaled.project, lock))
    layout = folder / "layout"
    tiny = layouts.write(layout, [_archive()], {"architecture": "amd64", "os": "linux"}, name=MODEL)
    name = target.reference(scaled.project, lock)
    built = Built(tiny, name, "v0", target.inputs_of(scaled.project, lock))
    about = Resource(name=name, digest=certificate.bare(tiny.manifest))
    certificates = [_about(path, about) for path in certificate.files(scaled.project, lock.name)[:count]]
    payloads = [
        *publish.statements(scaled.project, lock, built, certificates, []),
        publish._statement(about, attached.RELEASE, release.make((lock.name,), {})),
    ]
    key = str(folder / "cosign.key")
    attached.add(layout, tiny, [signing.sign(payload, key, folder) for payload in payloads])
    return layout, folder / "cosign.pub"


def _about(path: Path, subject: Resource) -> Statement:
    return certificate.read(path).model_copy(update={"subject": [subject]})


def _archive() -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("empty"))
    return data.getvalue()
