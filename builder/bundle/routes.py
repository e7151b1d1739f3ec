"""The two routes of a stack to a host: the files of its lock, or the layers of its image; less what the host has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from builder.base import sources
from builder.base.project import Project
from builder.bundle import hollow, layers, selection
from builder.bundle.contents import (
    CONFIG,
    DEBS,
    MANIFEST,
    WHEELS,
    CarriedFile,
    CarriedImage,
    CarriedLayer,
)
from builder.image import build, oci, render
from builder.image.build import Built
from builder.intent.stack import Stack
from builder.lock import archives, debian, kernels
from builder.lock.index import File
from builder.lock.lockfile import Lock

HOST, IMAGE = "host", "image"
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Load:
    """What travels by a route, besides what travels by both: files by their path in the bundle."""

    route: str
    tree: dict[str, Path]
    distributions: list[CarriedFile] = field(default_factory=list)
    build: list[CarriedFile] = field(default_factory=list)
    image: CarriedImage | None = None

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.tree.values())


def of_host(
    project: Project, lock: Lock, stack: Stack, host: Mapping[str, int], scratch: Path, progress: Progress
) -> Load:
    """The locked files, or those for another Python. `host`: the files that it has, sha256 to bytes."""
    progress("looking up the locked files")
    files = selection.locked(project, lock, stack, scratch, lock.python)
    # A source distribution is built on the host, which takes the locked build requirements.
    tools = stack.model_copy(update={"override": []})
    source = [file for file in files if not file.is_wheel]
    if refused := [file.name for file in source if file.name not in (*render.GROUPS[render.SOURCE], *lock.own.source)]:
        raise selection.unfit(lock, stack.python, f"there is no wheel of {', '.join(refused)}")
    needed = selection.locked(project, lock, tools, scratch, lock.build if source else ())
    paths = archives.download(project, scratch, [*files, *needed], progress)
    records = _hollow(files, paths, host, scratch, progress)
    tree = {f"{WHEELS}/{file.filename}": paths[file] for file in (*files, *needed)}
    if lock.debian and debian.LIBRARIES:
        debs = debian.fetch(project, lock, scratch, list(debian.LIBRARIES))
        tree |= {f"{DEBS}/{entry.sha256}.deb": path for entry, path in debs.items()}
    return Load(HOST, tree, _carried(files, records), _carried(needed, {}))


def _hollow(
    files: Iterable[File], paths: dict[File, Path], host: Mapping[str, int], scratch: Path, progress: Progress
) -> dict[File, str]:
    """Replace the paths of wheels of which the host has files; returns the digest of the RECORD of each of them."""
    records: dict[File, str] = {}
    if not host:
        return records
    folder = scratch / "hollow"
    folder.mkdir()
    for file in files:
        progress(f"comparing with the host's files: {file.filename}")
        if file.is_wheel and (record := hollow.make(paths[file], host, folder / file.filename)):
            records[file], paths[file] = record, folder / file.filename
    return records


def _carried(files: Iterable[File], records: Mapping[File, str]) -> list[CarriedFile]:
    return [
        CarriedFile(
            name=file.name, version=file.version, file=file.filename, sha256=file.sha256, record=records.get(file)
        )
        for file in files
    ]


def image(project: Project, lock: Lock, *, needed: bool) -> Built | None:
    """The image of a lock that was built here. Raises VettedError when it is needed and not there."""
    return build.needed(project, lock) if needed else build.existing(project, lock)


def of_image(
    project: Project, lock: Lock, built: Built, host: Mapping[str, int], scratch: Path, progress: Progress
) -> Load:
    """The layers of an image, and what its inputs' digest is computed from."""
    source = built.image
    tree = {MANIFEST: oci.blob(source.layout, source.manifest), CONFIG: oci.blob(source.layout, source.config)}
    folder, carried = scratch / "layers", []
    folder.mkdir()
    for number, layer in enumerate(source.layers, start=1):
        progress(f"comparing with the host's files: layer {number} of {len(source.layers)}")
        cuts = layers.cuts_of(source.layout, layer, host) if host else []
        entry = CarriedLayer(diff_id=layer.diff_id, media_type=layers.ZSTD if cuts else layer.media_type)
        tree[entry.path] = oci.blob(source.layout, layer.digest)
        if cuts:
            tree[entry.path] = folder / layer.diff_id.removeprefix("sha256:")
            layers.write(source.layout, layer, cuts, tree[entry.path])
            tree[f"{layers.list_beside(Path(entry.path))}"] = layers.list_beside(tree[entry.path])
        carried.append(entry)
    return Load(
        IMAGE,
        tree | _inputs(project, lock),
        image=CarriedImage(
            manifest=source.manifest, name=built.reference, buildkit=built.buildkit, inputs=built.inputs, layers=carried
        ),
    )


def _inputs(project: Project, lock: Lock) -> dict[str, Path]:
    """The files of the project that the digest of an image's inputs covers, besides those of the lock."""
    templates = project.root / "images" / "templates"
    paths = [path for path in templates.rglob("*") if path.is_file()]
    paths += [project.runtime / file for file in sources.files(project.runtime)]
    tree = {str(path.relative_to(project.root)): path for path in paths}
    read = kernels.path(project, lock.name, lock.platform)
    return tree | ({f"lockfiles/{lock.name}/{read.name}": read} if read.is_file() else {})
