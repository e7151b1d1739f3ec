"""Building the image of a lock with BuildKit: an OCI layout, bit for bit the same wherever it is built."""

from __future__ import annotations

import base64
import csv
import io
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import unidiff

from builder.base import errors, machine, process, seal, sources
from builder.base.project import Project, sha256, write
from builder.image import daemon, oci, origin, patches, render, rootfs, sdist
from builder.image.origin import Origin
from builder.lock import archives, lockfile
from builder.lock.lockfile import Lock


@dataclass(frozen=True)
class Step:
    """One line of a build's progress: steps done, steps known so far, what runs now."""

    done: int
    known: int
    current: str


Report = Callable[[Step], None]


@dataclass(frozen=True)
class Built:
    image: oci.Image
    reference: str
    buildkit: str
    inputs: str  # the digest of all that it was made of
    origin: Origin | None = field(default=None, compare=False)  # None: it was not written down


def reference(project: Project, lock: Lock) -> str:
    """The name of the image in Docker: the stack, tagged with all that it is made of."""
    return tag(lock, inputs_of(project, lock, render.dockerfile(project, lock)))


def tag(lock: Lock, inputs: str) -> str:
    """The name in Docker of the image of a lock that was made of these inputs."""
    return f"vetted/{lock.name}:{inputs.removeprefix('sha256:')[:12]}"


def inputs_of(project: Project, lock: Lock, dockerfile: str) -> str:
    """The digest of all that an image is made of: the same again, and nothing needs to be built."""
    return sha256(json.dumps([description(project, lock), dockerfile, rootfs.RECIPE, _EXPORT]).encode())


def existing(project: Project, lock: Lock) -> Built | None:
    """The image of this very lock and Dockerfile, when it was built here already and is what was built.

    Every blob is hashed again, the config must name this stack and lock, and the record must be sealed.
    """
    record = _record(project, lock)
    try:
        data = json.loads(record.read_text())
        inputs, manifest, buildkit = data["inputs"], data["manifest"], data["buildkit"]
        if inputs != inputs_of(project, lock, render.dockerfile(project, lock)):
            return None
        came = Origin.model_validate_json(json.dumps(data["origin"])) if "origin" in data else None
        image = oci.read(project.state / "images" / lock.name, manifest)
        if not seal.holds(_seal(record), _sealed_as(lock, inputs, buildkit, came), manifest):
            return None
        said = oci.labels(image)
        if any(said.get(name) != value for name, value in own_labels(lock).items()) or any(oci.damaged(image)):
            return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, errors.BadInputError):
        return None
    return Built(image, tag(lock, inputs), buildkit, inputs, came)


def own_labels(lock: Lock) -> dict[str, str]:
    """What tells this stack's image from every other's."""
    return {
        "org.opencontainers.image.title": lock.stack.title,
        "dev.vetted.stack": lock.name,
        "dev.vetted.lock": lock.digest,
    }


def _record(project: Project, lock: Lock) -> Path:
    return project.state / "images" / f"{lock.name}.json"


def _seal(record: Path) -> Path:
    return record.with_suffix(".seal")


def _sealed_as(lock: Lock, inputs: str, buildkit: str, came: Origin | None) -> str:
    return f"image of {lock.name} from {inputs} by {buildkit}" + (f", {came.model_dump_json()}" if came else "")


def put_record(project: Project, lock: Lock, built: Built, scratch: Path) -> None:
    """Record that an image was built here."""
    record = _record(project, lock)
    data: dict[str, Any] = {"inputs": built.inputs, "manifest": built.image.manifest, "buildkit": built.buildkit}
    if built.origin:
        data["origin"] = built.origin.model_dump(mode="json")
    what = _sealed_as(lock, built.inputs, built.buildkit, built.origin)
    seal.put(_seal(record), what, built.image.manifest, scratch)
    write(record, json.dumps(data, indent=2) + "\n", scratch)


def needed(project: Project, lock: Lock) -> Built:
    """The image of this very lock and Dockerfile. Raises VettedError when it is not here."""
    if built := existing(project, lock):
        return built
    raise errors.VettedError(
        f"the image of {lock.name} is not here: nothing was built from this lock, or its files are gone",
        next_step=f"vetted certify {lock.name} --engine docker",
    )


def build(project: Project, lock: Lock, scratch: Path, report: Report) -> Built:
    """Build the image of a lock, or return the one that was built from the same inputs."""
    refuse_stale(project, lock)
    if built := existing(project, lock):
        return built
    docker = daemon.docker()
    return keep(project, lock, _run(project, lock, scratch, report, no_cache=False), docker, scratch)


def keep(project: Project, lock: Lock, layout: Path, docker: daemon.Docker, scratch: Path) -> Built:
    """Move a layout that was just built to where `existing` finds it."""
    images = project.state / "images"
    images.mkdir(parents=True, exist_ok=True)
    final = images / lock.name
    # The record goes first and comes last: whenever it is there, the layout beside it is whole.
    _record(project, lock).unlink(missing_ok=True)
    shutil.rmtree(final, ignore_errors=True)
    # What the context was made of, not what stands there now: somebody may have edited it while this was building.
    inputs = (layout.parent / INPUTS).read_text()
    layout.rename(final)
    image = oci.read(final)
    built = Built(image, tag(lock, inputs), docker.buildkit, inputs, origin.of(project))
    put_record(project, lock, built, scratch)
    return built


@dataclass(frozen=True)
class Proof:
    first: str  # manifest digests
    second: str
    difference: oci.Difference | None


def prove(project: Project, lock: Lock, scratch: Path, report: Report) -> Proof:
    """Build twice without any cache and compare every digest."""
    images = []
    for attempt in ("first", "second"):
        folder = scratch / attempt
        folder.mkdir()
        images.append(anew(project, lock, folder, report))
    return Proof(images[0].manifest, images[1].manifest, oci.compare(*images))


def anew(project: Project, lock: Lock, scratch: Path, report: Report) -> oci.Image:
    """Build without any cache, the root filesystem included, and leave the image in `scratch`."""
    refuse_stale(project, lock)
    daemon.docker()
    return oci.read(_run(project, lock, scratch, report, no_cache=True))


def refuse_stale(project: Project, lock: Lock) -> None:
    """A committed Dockerfile that is not what the lock and the templates render to is not built."""
    if difference := render.difference(project, lock):
        where = project.relative(project.dockerfile(lock.name))
        raise errors.VettedError(
            f"{where} is not what its lock renders to\n{difference.rstrip()}",
            cause="it was edited by hand, or the lock or a template changed",
            next_step=f"vetted render {lock.name}",
        )


def context(project: Project, lock: Lock, scratch: Path, report: Report, *, fresh: bool) -> Path:
    """The folder that the Dockerfile copies and mounts from: all that an image is made of. No step has a network."""
    folder = scratch / "context"
    (folder / "requirements").mkdir(parents=True)
    (folder / "patches").mkdir()
    (folder / "uv").mkdir()
    # With their times, by which BuildKit sees that it has a file already.
    shutil.copy2(rootfs.make(project, lock, scratch, fresh=fresh), folder / "rootfs.tar")
    _distributions(project, lock, folder, scratch, report)
    shutil.copyfile(patches.__file__, folder / "patches" / "patches.py")
    shutil.copytree(
        Path(unidiff.__file__).parent,
        folder / "patches" / "unidiff",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for patch, path in zip(lock.stack.patch, lock.patches, strict=True):
        copy = folder / patch.file.removeprefix("images/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    _runtime(project, folder / "runtime")
    (folder / "stack.json").write_text(json.dumps(description(project, lock), indent=2, sort_keys=True) + "\n")
    shutil.copy2(machine.uv_binary(), folder / "uv" / "uv")
    return folder


def _distributions(project: Project, lock: Lock, folder: Path, scratch: Path, report: Report) -> None:
    """The requirements of every layer, and its files in a folder of its own: other layers' do not concern it."""
    groups = {group.name: group.entries for group in render.groups(lock)}
    source = groups.get(render.SOURCE, ())
    if source:
        groups[BUILD] = lock.build
    files: dict[lockfile.Entry, Path] = {}
    # Apart: what builds a source distribution may be another version of what is installed.
    for wanted in (lock.python, lock.build if source else ()):
        files |= archives.fetch(
            project, lock.stack, wanted, scratch, lambda said: report(Step(0, 0, f"{lock.name}: {said}"))
        )
    for name, entries in groups.items():
        (folder / "requirements" / f"{name}.txt").write_text(lockfile.format_python(entries))
        archives.gather((files[entry] for entry in entries), folder / "wheels" / name)
    if source:
        sdist.refuse({entry: files[entry] for entry in source})
        # Of what is built, the lock has the hash of what it is built from.
        (folder / "requirements" / "built.txt").write_text("".join(f"{one.name}=={one.version}\n" for one in source))
        sums = "".join(f"{one.sha256}  {files[one].name}\n" for one in source)
        (folder / "requirements" / "source.sha256").write_text(sums)


def _runtime(project: Project, target: Path) -> None:
    """What an image carries beside its stack, where it will lie; whatever this machine's umask is."""
    package = target / "opt" / "vetted" / project.runtime.name
    programs = target / "usr" / "local" / "bin"
    for file in sources.files(project.runtime):  # what the digest in stack.json covers, and nothing else
        if file.name != LAUNCHER:
            (package / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(project.runtime / file, package / file)
    programs.mkdir(parents=True)
    command = shutil.copyfile(project.runtime / LAUNCHER, programs / "vetted")
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path == command else 0o644)


def description(project: Project, lock: Lock) -> dict[str, object]:
    """/etc/vetted/stack.json: what the image says of itself."""
    return {
        "stack": lock.name,
        "title": lock.stack.title,
        "lock": lock.digest,
        "runtime": sources.digest(project.runtime),
        "python": lock.stack.python,
        "distributions": lock.versions,
        "patches": [patch.model_dump() for patch in lock.stack.patch],
    }


def _run(project: Project, lock: Lock, scratch: Path, report: Report, *, no_cache: bool) -> Path:
    """One run of buildx; returns the folder of the OCI layout."""
    goal = target(project, lock, scratch, report, fresh=no_cache)
    if not no_cache:
        _seed(project, lock, scratch / LAYOUT)
    argv = [
        "docker", "buildx", "build", "--progress=rawjson",
        "--file", goal.dockerfile,
        *(f"--tag={tag}" for tag in goal.tags),
        *(f"--platform={platform}" for platform in goal.platforms),
        *(f"--attest={attest}" for attest in goal.attest),
        *(f"--build-arg={name}={value}" for name, value in goal.args.items()),
        *(f"--build-context={name}={folder}" for name, folder in goal.contexts.items()),
        *(f"--output={output}" for output in goal.output),
        *(["--no-cache"] if no_cache else []),
        goal.context,
    ]  # fmt: skip
    run_buildx(lock.name, argv, report)
    shutil.rmtree(goal.context)
    oci.sweep(oci.read(scratch / LAYOUT))
    return scratch / LAYOUT


def _seed(project: Project, lock: Lock, layout: Path) -> None:
    """Begin with the layers of the image that was built here last."""
    try:
        oci.seed(layout, oci.read(project.state / "images" / lock.name))
    except errors.BadInputError:
        return  # there is none


BUILD = "build"  # the layer's name, as it were, of what builds source distributions
LAUNCHER = "launcher.py"  # the command inside an image
INPUTS = "inputs"  # what a context was made of, beside it
LAYOUT = "layout"  # what a build leaves in its scratch folder
# One of zstd's levels for all stacks, because BuildKit packs a layer that two of them share once, at the level of
# whichever came first: with two levels an image's bytes would depend on what was built before it. Of the CPU stack, 3
# made 817 MB, 7 makes 768 MB in a few seconds more, and 9 would make 706 MB in minutes more.
LEVEL = 7
_EXPORT = f"compression=zstd,compression-level={LEVEL},force-compression=true"


@dataclass(frozen=True)
class Target:
    """All that BuildKit is told about the build of one image. The fields are those of a bake file."""

    context: str
    contexts: dict[str, str]
    dockerfile: str
    args: dict[str, str]
    tags: list[str]
    platforms: list[str]
    attest: list[str]
    output: list[str]


def target(project: Project, lock: Lock, scratch: Path, report: Report, *, fresh: bool) -> Target:
    """Make the context in `scratch`, where the image is to be left as well, as an OCI layout."""
    inputs = inputs_of(project, lock, project.dockerfile(lock.name).read_text())
    (scratch / INPUTS).write_text(inputs)
    report(Step(0, 0, f"{lock.name}: root filesystem from the locked Debian packages"))
    folder = context(project, lock, scratch, report, fresh=fresh)
    return Target(
        context=str(folder),
        contexts={name: str(folder / name) for name in ("uv", "wheels")},
        dockerfile=str(project.dockerfile(lock.name)),
        args={"SOURCE_DATE_EPOCH": str(lock.epoch)},
        tags=[tag(lock, inputs)],
        platforms=["linux/amd64"],
        # What is attested is attached to the image when it is published: BuildKit's own would change its digest.
        attest=["type=provenance,disabled=true", "type=sbom,disabled=true"],
        output=[f"type=oci,tar=false,{_csv(f'dest={scratch / LAYOUT}')},{_EXPORT}"],
    )


def run_buildx(what: str, argv: Sequence[str], report: Report, env: Mapping[str, str] | None = None) -> None:
    """Run buildx with raw progress. Raises VettedError with the end of the log of what failed."""
    progress = _Progress(report)
    with process.running(argv, env=env, stdout=subprocess.DEVNULL) as child:
        assert child.stderr is not None
        for line in child.stderr:
            progress.feed(line)
        code = child.wait()
    if code != 0:
        raise errors.from_tool(
            f"building {what}", progress.failure(), next_step="docker info, and `vetted lock --check`"
        )


def _csv(field: str) -> str:
    """A field of one of buildx's options, which are lines of CSV: a path may hold commas and quotes."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([field])
    return line.getvalue()


class _Progress:
    """Reads BuildKit's progress events; any line outside of one is buildx speaking.

    buildx 0.13 spreads an event over indented lines, later ones write it in one.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        self.vertices: dict[str, dict[str, object]] = {}
        self.logs: list[str] = []
        self.other: list[str] = []
        self._open = ""

    def feed(self, line: str) -> None:
        if not self._open and not line.startswith("{"):
            self.other.append(line)
            return
        self._open += line
        if not line.rstrip().endswith("}") or line[0] not in "{}":
            return
        try:
            event = json.loads(self._open)
        except ValueError:
            return
        self._open = ""
        for vertex in event.get("vertexes") or []:
            self.vertices.setdefault(vertex["digest"], {}).update(vertex)
        for log in event.get("logs") or []:
            self.logs.append(base64.b64decode(log["data"]).decode(errors="replace"))
        running = [v for v in self.vertices.values() if v.get("started") and not v.get("completed")]
        done = sum(1 for v in self.vertices.values() if v.get("completed"))
        current = " · ".join(_short(str(v["name"])) for v in running[-2:])
        self.report(Step(done, len(self.vertices), current))

    def failure(self) -> str:
        said = [str(v["error"]) for v in self.vertices.values() if v.get("error")]
        return "".join(self.logs[-40:]) + "\n" + "".join(self.other) + "\n".join(said)


def _short(name: str) -> str:
    """`[torch 1/1] RUN --mount=…` -> `torch`: the stage says enough."""
    if name.startswith("[") and "]" in name:
        return name[1 : name.index("]")].split(" ")[0]
    return name[:40]
