"""An image on a host without Docker: its layers put together and checked, unpacked, and entered by chroot."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors, process, reading, seal, strictjson
from builder.base.project import Project, remove, sha256
from builder.bundle import layers, present
from builder.bundle.contents import CONFIG, MANIFEST, CarriedImage
from builder.bundle.layers import Cut
from builder.bundle.unbundle.parts import Stream
from builder.certify import certificate, certify, engine
from builder.certify.certificate import Resource
from builder.certify.certify import Subject
from builder.certify.suite import Runner
from builder.lock.lockfile import Lock

ENGINE = "chroot"
SCRIPT = Path(__file__).parent / "scripts" / "enter.py"
# The numbers of the capabilities in linux/capability.h.
CAPABILITIES = {"CHOWN": 0, "DAC_OVERRIDE": 1, "KILL": 5, "SETGID": 6, "SETUID": 7, "SYS_PTRACE": 19}
NAMESPACES = ("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child=KILL")
SUITE = "vetted"  # where the suite is mounted
REMOVED = ".wh."  # before the name of a file that a layer removes
CHUNK = 1 << 20


@dataclass(frozen=True)
class Tree:
    """The root filesystem of an image, and the environment variables that its config sets."""

    path: Path
    environment: Mapping[str, str]


def prepare(
    project: Project, image: CarriedImage, folders: Sequence[Path], scratch: Path, report: Callable[[str], None]
) -> Tree:
    """The root filesystem of an image; built in `scratch`, and renamed when it is whole, if it is not there.

    Raises MissingToolError where it could not be entered, BadInputError when it is not the image.
    """
    _require_namespaces()
    tree = Tree(_place(project, image), _environment(project, image))
    umask = os.umask(0o022)  # what no layer lists must be for the probes' user, too
    try:
        _complete(project, image, tree.path, folders, scratch, report)
    finally:
        os.umask(umask)
    return tree


def _place(project: Project, image: CarriedImage) -> Path:
    return project.state / "image" / image.manifest.removeprefix("sha256:")[:12]


def _complete(
    project: Project,
    image: CarriedImage,
    final: Path,
    folders: Sequence[Path],
    scratch: Path,
    report: Callable[[str], None],
) -> None:
    what, sealed = f"root filesystem of {image.manifest}", final.with_name(f"{final.name}.seal")
    if final.is_dir():
        report("checking the image")
        if seal.intact(sealed, what, seal.tree(final)):
            return
    cuts = {layer.diff_id: layers.read_cuts(project.root / layer.path) for layer in image.layers}
    lacking = {
        f"layer {number}": {cut.sha256: cut.size for cut in cuts[layer.diff_id]}
        for number, layer in enumerate(image.layers, start=1)
    }
    paths = present.need(folders, lacking, report)
    new = scratch / "image"
    new.mkdir()
    for number, layer in enumerate(image.layers, start=1):
        report(f"layer {number} of {len(image.layers)}: {layer.diff_id}")
        _layer(project.root / layer.path, layer.media_type, layer.diff_id, cuts[layer.diff_id], paths, new)
    for name in (SUITE, "proc", "sys", "dev", "tmp", "run", "etc"):
        (new / name).mkdir(exist_ok=True)
    (new / "etc" / "hosts").touch()
    final.parent.mkdir(parents=True, exist_ok=True)
    remove(final)
    new.rename(final)
    seal.put(sealed, what, seal.tree(final), scratch)


def _require_namespaces() -> None:
    if os.geteuid() == 0 and shutil.which("unshare") and process.run([*NAMESPACES, "true"]).returncode == 0:
        return
    raise errors.MissingToolError(
        "this host cannot run an image without Docker",
        cause="no root, no `unshare` (util-linux), or a container that may not mount",
        next_step="make the bundle with --route host, which needs none of them",
    )


def _environment(project: Project, image: CarriedImage) -> dict[str, str]:
    """The variables in the config of an image. Its manifest must name the config, and the config the layers.

    Raises BadInputError.
    """
    try:
        manifest, config = (reading.content(project.root / name, name) for name in (MANIFEST, CONFIG))
        named = strictjson.loads(manifest)["config"]["digest"]
        document = strictjson.loads(config)
        diff_ids = document["rootfs"]["diff_ids"]
        variables = dict(entry.split("=", 1) for entry in document["config"]["Env"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise layers.changed(f"the image's manifest or config cannot be read: {error}") from error
    for what, expected, got in (
        ("manifest", image.manifest, sha256(manifest)),
        ("config", named, sha256(config)),
        ("list of layers", diff_ids, [layer.diff_id for layer in image.layers]),
    ):
        if expected != got:
            raise layers.changed(f"the {what} is not the image's\nexpected {expected}\ngot      {got}")
    return variables


def _layer(
    file: Path, media_type: str, diff_id: str, cuts: Sequence[Cut], paths: Mapping[str, Path], root: Path
) -> None:
    """Unpack a layer, once its archive has the right digest: what it holds is trusted only then.

    It is hashed again while it is unpacked: a file of the host may change in between.
    """
    for _ in _same(layers.rebuilt(file, media_type, cuts, paths), diff_id):
        pass
    stream = io.BufferedReader(Stream(_same(layers.rebuilt(file, media_type, cuts, paths), diff_id)), CHUNK)
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            path = root / member.name
            if path.name.startswith(REMOVED):
                remove(path.with_name(path.name.removeprefix(REMOVED)))
            else:
                if not member.isdir() and os.path.lexists(path):
                    path.unlink()
                _extract(archive, member, root)
    while stream.read(CHUNK):  # to the end, where its digest is compared
        pass


def _same(chunks: Iterable[bytes], diff_id: str) -> Iterator[bytes]:
    """These chunks. Raises BadInputError after the last one when they are not the archive of this digest."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
        yield chunk
    if f"sha256:{digest.hexdigest()}" != diff_id:
        raise layers.changed(f"a layer is not the image's\nexpected {diff_id}\ngot      sha256:{digest.hexdigest()}")


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, root: Path) -> None:
    # Owners, modes and devices as they are: it is a system, and its digest was compared.
    trusted = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
    archive.extract(member, root, numeric_owner=True, **trusted)  # type: ignore[arg-type]


def subject(image: CarriedImage, tree: Tree, suite: Path, lock: Lock, device: str) -> Subject:
    """The image as the subject of a statement, and how the suite below `suite` runs in it: as Docker would run it."""
    gpu = device == "cuda"
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    environment = {**tree.environment, "TMPDIR": "/tmp"}
    if gpu:
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if gpu and chosen is not None:
        environment["CUDA_VISIBLE_DEVICES"] = chosen
    order = {
        "root": str(tree.path), "suite": str(suite), "gpu": gpu, "shm": "8g" if gpu else "64m",
        "environment": environment, "capabilities": [CAPABILITIES[name] for name in engine.SUPERVISOR],
        "argv": engine.inside(lock.stack.python),
    }  # fmt: skip
    return Subject(
        Resource(name=image.name, digest=certificate.bare(image.manifest)),
        Runner([*NAMESPACES, sys.executable, "-I", "-S", str(SCRIPT), json.dumps(order)]),
        {"name": ENGINE, "system": certify.system(), "kernel": platform.release(), "buildkit": image.buildkit},
        image.inputs,
    )
