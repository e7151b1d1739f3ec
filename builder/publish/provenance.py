"""Where an image comes from: SLSA provenance v1, made of the build's inputs, and of nothing that is not known.

The parameters are the stack and its lock. The dependencies are the project's commit, the Dockerfile, the patches and
every file that was installed or helped to build one, by hash. The builder is this tool with its BuildKit, and the other
tools by digest. There is no time: an image is the same whenever it is built.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from packageurl import PackageURL
from pydantic import BaseModel, ConfigDict, ValidationError

from builder import __version__
from builder.base.project import Project, sha256_file
from builder.certify import certificate
from builder.image.build import Built
from builder.lock.lockfile import Entry, Lock

BUILD_TYPE = "urn:vetted:build:v1"  # `vetted build`: a locked stack becomes an OCI image
BUILDER = "urn:vetted:builder:v1"
SOURCE = "source"  # the name of the project's commit


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Resource(_Model):
    """in-toto ResourceDescriptor; the digests by their algorithm."""

    name: str
    uri: str | None = None
    digest: dict[str, str]
    annotations: dict[str, str] | None = None


class Parameters(_Model):
    """What was to be built."""

    stack: str
    title: str
    lock: str


class BuildDefinition(_Model):
    """SLSA's, with its names."""

    buildType: str  # noqa: N815
    externalParameters: Parameters  # noqa: N815
    internalParameters: dict[str, str]  # noqa: N815
    resolvedDependencies: tuple[Resource, ...]  # noqa: N815


class Builder(_Model):
    """SLSA's, with its names. `builderDependencies`: the tools that took part, besides BuildKit."""

    id: str
    version: dict[str, str]
    builderDependencies: tuple[Resource, ...] | None = None  # noqa: N815


class RunDetails(_Model):
    """SLSA's: the builder alone."""

    builder: Builder


class Provenance(_Model):
    """The predicate."""

    buildDefinition: BuildDefinition  # noqa: N815
    runDetails: RunDetails  # noqa: N815

    @property
    def has_clean_commit(self) -> bool:
        sources = (entry for entry in self.buildDefinition.resolvedDependencies if entry.name == SOURCE)
        return any(source.annotations is None for source in sources)

    @property
    def has_tools(self) -> bool:
        return self.runDetails.builder.builderDependencies is not None

    @property
    def from_any_commit(self) -> tuple[BuildDefinition, str, dict[str, str]]:
        """What is the same from every commit."""
        definition, builder = self.buildDefinition, self.runDetails.builder
        inputs = tuple(entry for entry in definition.resolvedDependencies if entry.name != SOURCE)
        return definition.model_copy(update={"resolvedDependencies": inputs}), builder.id, builder.version


class _AnyParameters(BaseModel):
    stack: str
    lock: str


class _AnyDefinition(BaseModel):
    externalParameters: _AnyParameters  # noqa: N815


class _AnyProvenance(BaseModel):
    """A provenance of any version of Vetted, as far as `verify` reads it."""

    buildDefinition: _AnyDefinition  # noqa: N815


def make(project: Project, lock: Lock, built: Built) -> dict[str, Any]:
    """The provenance of an image that this project built from a lock, as JSON."""
    provenance = Provenance(
        buildDefinition=BuildDefinition(
            buildType=BUILD_TYPE,
            externalParameters=Parameters(stack=lock.name, title=lock.stack.title, lock=lock.digest),
            internalParameters={
                "SOURCE_DATE_EPOCH": str(lock.epoch),
                "platform": "linux/amd64",
                "python": lock.stack.python,
                "debian": lock.stack.debian,
                "device": lock.stack.device,
            },
            resolvedDependencies=(*_source(built), *_dependencies(project, lock)),
        ),
        runDetails=RunDetails(
            builder=Builder(
                id=BUILDER,
                version={"vetted": __version__, "buildkit": built.buildkit},
                builderDependencies=tuple(_tools(built)) or None,
            )
        ),
    )
    return provenance.model_dump(mode="json", exclude_none=True)


def stands(there: dict[str, Any], now: dict[str, Any]) -> bool:
    """May a provenance that was published stay, in place of the one that would be made now?

    The same image of the same inputs may be built from several commits. Each provenance is true, and two that differ
    would be a doubt, so the first stays. One without a clean commit gives way to one with it.
    """
    try:
        earlier, later = Provenance.model_validate(there), Provenance.model_validate(now)
    except ValidationError:
        return False
    return there == now or (
        earlier.from_any_commit == later.from_any_commit
        and earlier.has_clean_commit
        and earlier.has_tools >= later.has_tools
    )


def stack_of(predicate: dict[str, Any]) -> tuple[str, str]:
    """The stack and the lock that a provenance names. Raises ValidationError when Vetted did not make it."""
    parameters = _AnyProvenance.model_validate(predicate).buildDefinition.externalParameters
    return parameters.stack, parameters.lock


def _source(built: Built) -> Iterator[Resource]:
    """The commit that was checked out when the image was built."""
    if built.origin and built.origin.commit:
        changed = {"uncommitted": "the sources had changes on top of this commit"}
        yield Resource(
            name=SOURCE, digest={"gitCommit": built.origin.commit}, annotations=changed if built.origin.dirty else None
        )


def _tools(built: Built) -> Iterator[Resource]:
    for tool in built.origin.tools if built.origin else ():
        yield Resource(name=tool.name, uri=tool.uri or None, digest=_digest(tool.digest))


def _dependencies(project: Project, lock: Lock) -> Iterator[Resource]:
    for path in (project.dockerfile(lock.name), *lock.patches):
        yield Resource(name=project.relative(path), digest=_digest(sha256_file(path)))
    for entry in lock.python:
        yield _package(PackageURL("pypi", None, entry.name, entry.version), entry)
    for entry in lock.build:
        package = _package(PackageURL("pypi", None, entry.name, entry.version), entry)
        yield package.model_copy(update={"annotations": {"for": "building what has no wheel; not in the image"}})
    for entry in lock.debian:
        yield _package(
            PackageURL("deb", "debian", entry.name, entry.version, {"distro": str(lock.stack.debian)}), entry
        )


def _package(purl: PackageURL, entry: Entry) -> Resource:
    return Resource(name=entry.name, uri=purl.to_string(), digest=_digest(entry.sha256))


def _digest(digest: str) -> dict[str, str]:
    return certificate.bare(digest).model_dump()
