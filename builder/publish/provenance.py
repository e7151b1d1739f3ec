"""Where an image comes from: SLSA provenance v1, made of what the build was given, and of nothing that is not known.

The parameters are the stack and its lock; the dependencies the project's commit and every file that was installed or
helped to build one, by hash, with the Dockerfile and the patches; the builder is this tool with its BuildKit, and what
else took part, by digest. When it ran is not said: the image is the same whenever it is built, and says nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from packageurl import PackageURL

from builder import __version__
from builder.base.project import Project, sha256_file
from builder.certify import certificate
from builder.image.build import Built
from builder.lock.lockfile import Entry, Lock

BUILD_TYPE = "urn:vetted:build:v1"  # `vetted build`: a locked stack becomes an OCI image
BUILDER = "urn:vetted:builder:v1"
SOURCE = "source"  # what the project's commit is called


def make(project: Project, lock: Lock, built: Built) -> dict[str, Any]:
    """The provenance of an image that this project built from a lock."""
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"stack": lock.name, "title": lock.stack.title, "lock": lock.digest},
            "internalParameters": {
                "SOURCE_DATE_EPOCH": str(lock.epoch),
                "platform": "linux/amd64",
                "python": lock.stack.python,
                "debian": lock.stack.debian,
                "device": lock.stack.device,
            },
            "resolvedDependencies": [*_source(built), *_dependencies(project, lock)],
        },
        "runDetails": {
            "builder": {
                "id": BUILDER,
                "version": {"vetted": __version__, "buildkit": built.buildkit},
                **({"builderDependencies": tools} if (tools := list(_tools(built))) else {}),
            }
        },
    }


def stands(there: dict[str, Any], made: dict[str, Any]) -> bool:
    """May a provenance that was published stay, in place of the one that would be made now?

    The same image of the same inputs was built from another commit: what was said of it is as true as what would be
    said now, and two of them would be in doubt. One without a clean commit gives way to one with it.
    """
    try:
        said, now = _split(there), _split(made)
    except (KeyError, TypeError, AttributeError):
        return False
    return there == made or (said[0] == now[0] and said[1] and said[2] >= now[2])


def _split(predicate: dict[str, Any]) -> tuple[list[Any], bool, bool]:
    """What is the same from every commit; whether a clean commit is named; whether there are the builder's tools."""
    definition, builder = predicate["buildDefinition"], predicate["runDetails"]["builder"]
    needed = definition["resolvedDependencies"]
    sources = [one for one in needed if one["name"] == SOURCE]
    same = [
        {**definition, "resolvedDependencies": [one for one in needed if one["name"] != SOURCE]},
        builder["id"],
        builder["version"],
    ]
    return same, [one for one in sources if "annotations" not in one] != [], "builderDependencies" in builder


def stack_of(predicate: dict[str, Any]) -> tuple[str, str]:
    """The stack and the lock that a provenance names. Raises KeyError, TypeError."""
    asked = predicate["buildDefinition"]["externalParameters"]
    return str(asked["stack"]), str(asked["lock"])


def _source(built: Built) -> Iterator[dict[str, Any]]:
    """The commit that was checked out when the image was built."""
    if built.origin and built.origin.commit:
        changed = {"annotations": {"uncommitted": "the sources had changes on top of this commit"}}
        commit = {"name": SOURCE, "digest": {"gitCommit": built.origin.commit}}
        yield {**commit, **(changed if built.origin.dirty else {})}


def _tools(built: Built) -> Iterator[dict[str, Any]]:
    for tool in built.origin.tools if built.origin else ():
        uri = {"uri": tool.uri} if tool.uri else {}
        yield {"name": tool.name, **uri, "digest": _digest(tool.digest)}


def _dependencies(project: Project, lock: Lock) -> Iterator[dict[str, Any]]:
    dockerfile = project.dockerfile(lock.name)
    for path in (dockerfile, *lock.patches):
        yield {"name": project.relative(path), "digest": _digest(sha256_file(path))}
    for entry in lock.python:
        yield _package(PackageURL("pypi", None, entry.name, entry.version), entry)
    for entry in lock.build:
        package = _package(PackageURL("pypi", None, entry.name, entry.version), entry)
        yield {**package, "annotations": {"for": "building what has no wheel; not in the image"}}
    for entry in lock.debian:
        yield _package(
            PackageURL("deb", "debian", entry.name, entry.version, {"distro": str(lock.stack.debian)}), entry
        )


def _package(purl: PackageURL, entry: Entry) -> dict[str, Any]:
    return {"name": entry.name, "uri": purl.to_string(), "digest": _digest(entry.sha256)}


def _digest(digest: str) -> dict[str, str]:
    return certificate.bare(digest).model_dump()
