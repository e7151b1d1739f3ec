"""A bundle: everything that a GPU host without a network needs to install a stack and earn its certificate.

It is one archive, cut into parts that can be copied one by one, with a manifest of their checksums and an entry script
(unbundle/). The same lock, suite and tool give the same bytes; downloads are kept by their hash, so an interrupted
`vetted bundle` continues where it stopped.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from builder.base import errors, sources
from builder.base.project import Project, sha256_file, write
from builder.bundle import archive, destination, interpreter, routes, selection, unbundle
from builder.bundle.contents import CONTENTS, Contents
from builder.bundle.routes import Progress
from builder.bundle.selection import TOOL
from builder.bundle.unbundle import manifest as manifests
from builder.lock import archives, lockfile
from builder.lock.lockfile import Entry, Lock

VERIFIER = "tool"  # the folder of the verifier's own wheels
OLDEST_PYTHON = (3, 11)  # for the verifier, which is this tool


@dataclass(frozen=True)
class Request:
    """What a bundle is for: the host's Python (None: the stack's own), its files (sha256 to bytes), and the route.

    Without a route, it is the smaller one; the one of the image only if the image was built here.
    """

    python: str | None = None
    host: Mapping[str, int] = field(default_factory=dict)
    route: str | None = None


@dataclass(frozen=True)
class Bundle:
    """A bundle that was written. `digest`: of its manifest; `size`: of all parts; `routes`: bytes that each takes."""

    folder: Path
    contents: Contents
    digest: str
    parts: int
    size: int
    routes: Mapping[str, int]

    @property
    def route(self) -> str:
        """The route that was taken."""
        return routes.IMAGE if self.contents.image else routes.HOST


def make(
    project: Project, lock: Lock, request: Request, output: Path, scratch: Path, part_size: int, progress: Progress
) -> Bundle:
    """Write the bundle of a lock into a folder that is empty or has an earlier bundle. Raises VettedError's kinds."""
    if request.python and tuple(int(part) for part in request.python.split(".")) < OLDEST_PYTHON:
        raise errors.BadInputError(
            f"a bundle for Python {request.python} cannot be made: what runs there needs "
            + ".".join(map(str, OLDEST_PYTHON)),
            next_step="leave --python out: the bundle then has the stack's own",
        )
    destination.refuse_other(project, output)
    stack = lock.stack.model_copy(update={"python": request.python or lock.stack.python})
    loads = []
    if request.route != routes.IMAGE:
        loads.append(routes.of_host(project, lock, stack, request.host, scratch, progress))
    if request.route != routes.HOST and (built := routes.image(project, lock, needed=request.route is not None)):
        loads.append(routes.of_image(project, lock, built, request.host, scratch, progress))
    load = min(loads, key=lambda load: load.size)
    progress("looking up the verifier's own files")
    tools = stack.model_copy(update={"override": []})
    verifier = selection.verifier(tools, scratch, selection.tool_pins(stack.python))
    paths = archives.download(project, scratch, verifier, progress)

    contents = Contents(
        stack=lock.name, lock=lock.digest, suite=sources.digest(project.smoke), python=stack.python,
        carried=request.python is None, distributions=load.distributions, build=load.build, image=load.image,
    )  # fmt: skip
    tree = project_files(project, lock) | load.tree
    tree |= {f"{VERIFIER}/{file.filename}": paths[file] for file in verifier}
    if contents.carried:
        tree |= interpreter.packages(project, lock, scratch)
    requirements = [Entry(file.name, file.version, file.sha256) for file in verifier]
    for name, text in (
        (CONTENTS, contents.to_json()),
        (f"{VERIFIER}/requirements.txt", lockfile.format_python(requirements)),
    ):
        tree[name] = scratch / name.replace("/", "-")
        tree[name].write_text(text)
    sizes = {other.route: other.size for other in loads}
    destination.refuse_other(project, output)  # the downloads took a while
    return _write(project, lock, contents, tree, sizes, output, scratch, part_size, progress)


def project_files(project: Project, lock: Lock) -> dict[str, Path]:
    """The files of the project that a bundle carries: the lock, the patches, the suite, the advisories, the tool."""
    folder = project.stack_dir(lock.name)
    names = ("stack.toml", "lock.toml", "requirements.txt", "build.txt", "debian.txt")
    tree = {f"lockfiles/{lock.name}/{name}": folder / name for name in names}
    tree |= {patch.file: project.root / patch.file for patch in lock.stack.patch}
    tree |= {f"smoke/{file}": project.smoke / file for file in sources.files(project.smoke)}
    tree |= {f"advisories/{path.name}": path for path in project.advisories.glob("*.toml")}
    return tree | {f"builder/{file}": TOOL / file for file in _package_files(TOOL)}


def _package_files(package: Path) -> list[Path]:
    """Every file of a package, relative to it: modules, scripts, templates. Caches and hidden files are left out."""
    files = [path.relative_to(package) for path in package.rglob("*") if path.is_file()]
    return [
        file
        for file in files
        if not any(part == "__pycache__" or part.startswith(".") for part in file.parts) and file.suffix != ".pyc"
    ]


def _write(
    project: Project,
    lock: Lock,
    contents: Contents,
    tree: Mapping[str, Path],
    sizes: Mapping[str, int],
    output: Path,
    scratch: Path,
    part_size: int,
    progress: Progress,
) -> Bundle:
    output.mkdir(parents=True, exist_ok=True)
    manifest, leftover = output / manifests.MANIFEST, destination.parts(project, output)
    manifest.unlink(missing_ok=True)  # it is written last: without it, a bundle is not whole
    for partial in destination.unfinished(project, output):
        partial.unlink()
    parts = []
    for part in archive.split(archive.pack(tree, lock.epoch), output, lock.name, part_size):
        parts.append(part)
        progress(f"written: {part.name}")
    for path in leftover:
        if path.name not in {part.name for part in parts}:
            path.unlink()  # of an earlier bundle
    write(output / destination.ENTRY, entry_script(), scratch)
    size = sum(part.size for part in parts)
    data = {
        "format": manifests.FORMAT, "stack": lock.name, "device": lock.stack.device, "python": contents.python,
        "carried": contents.carried, "size": size, "parts": [part._asdict() for part in parts],
    }  # fmt: skip
    write(manifest, json.dumps(data, indent=1) + "\n", scratch)
    return Bundle(output, contents, sha256_file(manifest), len(parts), size, sizes)


def entry_script() -> bytes:
    """The package `unbundle` as a program: a zip archive that Python runs, the same bytes wherever it is made."""
    folder = Path(unbundle.__file__).parent
    sources_ = {f"unbundle/{path.name}": path.read_text() for path in sorted(folder.glob("*.py"))}
    sources_["__main__.py"] = "from unbundle.run import main\n\nmain()\n"
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, text in sources_.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return target.getvalue()
