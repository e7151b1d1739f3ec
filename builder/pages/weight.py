"""What an image weighs: every layer, the bytecode in it, and the locked files that went into it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import zstandard

from builder.base import errors
from builder.base.project import Project
from builder.base.text import word
from builder.certify import certificate
from builder.image import oci, render, target
from builder.image.build import Built
from builder.lock import index
from builder.lock.index import File
from builder.lock.lockfile import Lock
from builder.pages import evidence
from builder.pages.records import Image, Images, Layer, WithoutGpu

AT_ONCE = 16  # requests to an index
PART = 1 << 20  # bytes that are read at once


def measure(project: Project, lock: Lock, built: Built, command: str, scratch: Path) -> Image:
    """The image's digest, its bytes by layer, the bytes of the locked files, and what ran inside without a GPU."""
    files = locked_files(lock, scratch)
    groups = {group.name: sum(files[entry.name] for entry in group.entries) for group in render.groups(lock)}
    names = render.layers(lock)
    layers = _checked(built.image, names)
    with ThreadPoolExecutor() as pool:
        bytecode = list(pool.map(lambda layer: bytecode_bytes(built.image, layer), layers))
    row: dict[str, object] = {
        **evidence.head(command),
        "lock": lock.digest,
        "inputs": built.inputs,
        "manifest": built.image.manifest,
        "buildkit": built.buildkit,
        "bytes": built.image.size,
        "files_bytes": sum(files.values()),
        "layers": [
            Layer(
                name=name, digest=layer.digest, bytes=layer.size, files_bytes=groups.get(name), bytecode_bytes=compiled
            )
            for name, layer, compiled in zip(names, layers, bytecode, strict=True)
        ],
    }
    if report := without_gpu(project, lock, built):
        row["without_gpu"] = report
    return Image.model_validate(row)


def _checked(image: oci.Image, names: list[str]) -> tuple[oci.Layer, ...]:
    if len(image.layers) != len(names):
        raise errors.VettedError(
            f"the image has {len(image.layers)} layers, and its Dockerfile makes {len(names)}: {', '.join(names)}",
            cause="the image is older than the Dockerfile, or a template gained a layer that render.layers lacks",
            next_step=f"rm -r {word(image.layout)}, then build again",
        )
    return image.layers


def bytecode_bytes(image: oci.Image, layer: oci.Layer) -> int:
    """The bytes of a layer's bytecode, compressed as the layer is, but by itself. Raises BadInputError."""
    compressor = zstandard.ZstdCompressor(level=target.LEVEL).compressobj()
    unpacked = packed = 0
    for _, size, content in oci.members(replace(image, layers=(layer,)), lambda name: name.endswith(".pyc")):
        if not isinstance(content, str):
            unpacked += size
            while part := content.read(PART):
                packed += len(compressor.compress(part))
    return packed + len(compressor.flush()) if unpacked else 0


def locked_files(lock: Lock, scratch: Path) -> dict[str, int]:
    """The bytes of every locked distribution's file, as the index says or as it lies in the wheelhouse."""
    offers = index.offers(lock.stack, scratch, [entry.pin for entry in lock.python])[0]
    locked = {entry.name: entry.sha256 for entry in lock.python}
    files = [file for name, offered in offers.items() for file in offered if file.sha256 == locked[name]]
    if missing := locked.keys() - {file.name for file in files}:
        raise errors.NetworkError(
            f"the index offers no file with the locked hash for {', '.join(sorted(missing))}",
            next_step=f"vetted lock --check {word(lock.name)}",
        )
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip([file.name for file in files], pool.map(_bytes, files), strict=True))


def _bytes(file: File) -> int:
    if (size := index.size(file)) is None:
        raise errors.NetworkError(
            f"{file.filename}: its size is not known",
            cause="the index named the file, but its host did not answer",
            next_step="run this again",
        )
    return size


def without_gpu(project: Project, lock: Lock, built: Built) -> WithoutGpu | None:
    """What `vetted certify --device cpu` reported of this very image, when its stack is made for GPUs."""
    path = certificate.report_path(project, lock.name, "cpu", "docker")
    if lock.stack.device == "cpu" or not path.is_file():
        return None
    statement = certificate.read(path)
    if statement.subject[0].digest != certificate.bare(built.image.manifest):
        return None
    predicate = statement.predicate
    suite = statement.resource("suite").digest
    return WithoutGpu(
        suite=f"sha256:{suite.sha256}" if suite else "",
        passed=predicate.passedTests,
        not_run=predicate.notRun,
        red={
            probe.name: (probe.reason or probe.outcome).splitlines()[0]
            for probe in predicate.probes
            if probe.name in predicate.failedTests
        },
    )


def record(project: Project, lock: Lock, built: Built, command: str, scratch: Path) -> Path:
    """Put this image's row into docs/evidence/images.json; those of the others stay."""
    earlier = evidence.read(project, Images)
    rows = {**(earlier.images if earlier else {}), lock.image: measure(project, lock, built, command, scratch)}
    images = Images(images=dict(sorted(rows.items())))
    return evidence.store(project, Images.FILE, images.model_dump(exclude_unset=True), scratch)
