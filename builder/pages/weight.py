"""What an image weighs: every layer, and the locked files that went into it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from builder.base import errors
from builder.base.project import Project
from builder.certify import certificate
from builder.image import oci, render
from builder.image.build import Built
from builder.lock import index
from builder.lock.index import File
from builder.lock.lockfile import Lock
from builder.pages import evidence

EVIDENCE = "images"
GOAL = 0.9  # an image's bytes over those of its locked files, at most; where it is missed, the documents say so
AT_ONCE = 16  # questions to an index


def measure(project: Project, lock: Lock, built: Built, scratch: Path) -> dict[str, Any]:
    """The image's digest, its bytes by layer, the bytes of the locked files, and what ran inside without a GPU."""
    files = locked_files(lock, scratch)
    groups = {group.name: sum(files[entry.name] for entry in group.entries) for group in render.groups(lock)}
    names = render.layers(lock)
    return {
        "lock": lock.digest,
        "inputs": built.inputs,
        "manifest": built.image.manifest,
        "buildkit": built.buildkit,
        "bytes": built.image.size,
        "files_bytes": sum(files.values()),
        "layers": [
            {"name": name, "digest": layer.digest, "bytes": layer.size, "files_bytes": groups.get(name)}
            for name, layer in zip(names, _checked(built.image, names), strict=True)
        ],
        **({"without_gpu": ran} if (ran := without_gpu(project, lock, built)) else {}),
    }


def _checked(image: oci.Image, names: list[str]) -> tuple[oci.Layer, ...]:
    if len(image.layers) != len(names):
        raise errors.VettedError(
            f"the image has {len(image.layers)} layers, and its Dockerfile makes {len(names)}: {', '.join(names)}",
            cause="the image is older than the Dockerfile, or a template gained a layer that render.layers lacks",
            next_step=f"rm -r {image.layout}, then build again",
        )
    return image.layers


def locked_files(lock: Lock, scratch: Path) -> dict[str, int]:
    """The bytes of every locked distribution's file, as the index says or as it lies in the wheelhouse."""
    offered = index.offers(lock.stack, scratch, [f"{entry.name}=={entry.version}" for entry in lock.python])[0]
    locked = {entry.name: entry.sha256 for entry in lock.python}
    files = [file for name, found in offered.items() for file in found if file.sha256 == locked[name]]
    if missing := locked.keys() - {file.name for file in files}:
        raise errors.NetworkError(
            f"no file with the locked hash is offered of {', '.join(sorted(missing))}",
            next_step=f"vetted lock --check {lock.name}",
        )
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip([file.name for file in files], pool.map(_bytes, files), strict=True))


def _bytes(file: File) -> int:
    if (known := index.size(file)) is None:
        raise errors.NetworkError(
            f"{file.filename}: its size is not known",
            cause="the index named the file, but its host did not answer",
            next_step="run this again",
        )
    return known


def without_gpu(project: Project, lock: Lock, built: Built) -> dict[str, Any] | None:
    """What a `vetted certify --device cpu` of this very image said, where its stack is made for GPUs: a report."""
    path = certificate.report_path(project, lock.name, "cpu", "docker")
    if lock.stack.device == "cpu" or not path.is_file():
        return None
    statement = certificate.read(path)
    subject = statement.subject[0].digest
    if subject != certificate.bare(built.image.manifest):
        return None
    predicate = statement.predicate
    suite = statement.resource("suite").digest
    return {
        "suite": f"sha256:{suite.sha256}" if suite else "",
        "passed": predicate.passedTests,
        "not_run": predicate.notRun,
        "red": {
            probe.name: (probe.reason or probe.outcome).splitlines()[0]
            for probe in predicate.probes
            if probe.name in predicate.failedTests
        },
    }


def record(project: Project, lock: Lock, built: Built, command: str, scratch: Path) -> Path:
    """Put this stack's row into docs/evidence/images.json; those of the others stay."""
    rows: dict[str, Any] = (evidence.read(project, EVIDENCE) or {}).get("images", {})
    rows[lock.name] = {**evidence.head(command), **measure(project, lock, built, scratch)}
    return evidence.store(project, EVIDENCE, {"images": dict(sorted(rows.items()))}, scratch)
