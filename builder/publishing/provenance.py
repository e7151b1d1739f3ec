"""Where an image comes from: SLSA provenance v1, made of what the build was given, and of nothing that is not known.

The parameters are the stack and its lock; the dependencies every file that was installed or helped to build one, by
hash, with the Dockerfile and the patches; the builder is this tool and its BuildKit. When it ran is not said: the
image is the same whenever it is built, and says nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from packageurl import PackageURL

from builder import __version__, certificate
from builder.build import Built
from builder.lock import Entry, Lock
from builder.project import Project, sha256_file

BUILD_TYPE = "urn:vetted:build:v1"  # `vetted build`: a locked stack becomes an OCI image
BUILDER = "urn:vetted:builder:v1"


def make(project: Project, held: Lock, built: Built) -> dict[str, Any]:
    """The provenance of an image that this project built from a lock."""
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"stack": held.name, "title": held.stack.title, "lock": held.digest},
            "internalParameters": {
                "SOURCE_DATE_EPOCH": str(held.epoch),
                "platform": "linux/amd64",
                "python": held.stack.python,
                "debian": held.stack.debian,
                "device": held.stack.device,
            },
            "resolvedDependencies": list(_dependencies(project, held)),
        },
        "runDetails": {"builder": {"id": BUILDER, "version": {"vetted": __version__, "buildkit": built.buildkit}}},
    }


def stack_of(predicate: dict[str, Any]) -> tuple[str, str]:
    """The stack and the lock that a provenance names. Raises KeyError, TypeError."""
    asked = predicate["buildDefinition"]["externalParameters"]
    return str(asked["stack"]), str(asked["lock"])


def _dependencies(project: Project, held: Lock) -> Iterator[dict[str, Any]]:
    dockerfile = project.dockerfile(held.name)
    for path in (dockerfile, *held.patches):
        yield {"name": project.relative(path), "digest": _digest(sha256_file(path))}
    for entry in held.python:
        yield _package(PackageURL("pypi", None, entry.name, entry.version), entry)
    for entry in held.build:
        package = _package(PackageURL("pypi", None, entry.name, entry.version), entry)
        yield {**package, "annotations": {"for": "building what has no wheel; not in the image"}}
    for entry in held.debian:
        yield _package(
            PackageURL("deb", "debian", entry.name, entry.version, {"distro": str(held.stack.debian)}), entry
        )


def _package(purl: PackageURL, entry: Entry) -> dict[str, Any]:
    return {"name": entry.name, "uri": purl.to_string(), "digest": _digest(entry.sha256)}


def _digest(digest: str) -> dict[str, str]:
    return certificate.bare(digest).model_dump()
