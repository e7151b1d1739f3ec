"""The audit of a lock. Every finding says what is wrong and how to fix it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import Requirement

from builder.base import aliases, pins
from builder.base.text import word
from builder.lock import debian, index, lockfile, metadata, solver
from builder.lock.index import File
from builder.lock.lockfile import Entry, Lock

CUDA_SUFFIX = re.compile(r"-cu(?:da)?(1[1-9])(?:x|-.+)?$")  # nvidia-nccl-cu12, cupy-cuda12x, jax-cuda12-plugin
# From CUDA 13 on, names have no major version. Those that are numbered like CUDA itself have it in their version.
CUDA_NAME = re.compile(r"(nvidia|cuda)-(?!ml-py$).+")  # nvidia-ml-py only calls the driver's library
CUDA_NUMBERED = re.compile(r"nvidia-(cuda-.+|cublas|nvjitlink|nvtx)|cuda-(bindings|toolkit)")
CUDA_LOCAL = re.compile(r"\+cu(1[1-9])\d")
YANKED = re.compile(r"`(?P<pin>[^`]+)` is yanked(?: \(reason: \"(?P<reason>.*)\"\))?")


@dataclass(frozen=True)
class AuditFinding:
    """`expected` and `got` are set where no file that the index offers has the locked hash."""

    what: str
    fix: str
    expected: str = ""
    got: str = ""


def stale(lock: Lock) -> list[AuditFinding]:
    """Whether a lock fits the stack.toml beside it. Needs no network."""
    findings = []
    if lock.intent != lockfile.intent(lock.stack):
        findings.append(AuditFinding("stack.toml was changed after it was locked", f"vetted lock {word(lock.name)}"))
    for name, requirement in lock.stack.packages.items():
        version = lock.versions.get(name)
        if version is None:
            findings.append(AuditFinding(f"{name} is required but not locked", f"vetted lock {word(lock.name)}"))
        elif not Requirement(requirement).specifier.contains(version, prereleases=True):
            findings.append(
                AuditFinding(f"{requirement} is required, {version} is locked", f"vetted lock {word(lock.name)}")
            )
    findings += cuda_majors(lock.stack.device, lock.python)
    if lock.stack.extends and lock.parent.digest != lock.stack.extends.lock:
        findings.append(
            AuditFinding(
                f"what {lock.stack.extends.stack} had is not what it had when it was extended",
                f"git checkout the files of {word(lock.name)}, or vetted extend again",
                expected=lock.stack.extends.lock,
                got=lock.parent.digest,
            )
        )
    for patch in lock.stack.patch:
        if lockfile.normalise(patch.package) not in lock.versions:
            findings.append(
                AuditFinding(f"{patch.file} patches {patch.package}, which is not locked", "remove that [[patch]]")
            )
    return findings


def sound(lock: Lock, scratch: Path) -> list[AuditFinding]:
    """The whole audit, with the index.

    uv judges the declared requirements: it resolves the stack again with every version fixed, and a requirement that is
    violated without an override has no solution. Raises NetworkError; BadInputError for a deleted release.
    """
    findings = stale(lock)
    if missing := lacking(lock):
        findings.append(AuditFinding(f"the base layer lacks {', '.join(missing)}", f"vetted lock {word(lock.name)}"))
    locked = [entry.pin for entry in lock.python]
    offered, output = index.offers(lock.stack, scratch, locked)
    findings += [
        AuditFinding(f"{match['pin']} was yanked" + (f": {match['reason']}" if match["reason"] else ""),
                _away_from(lock, lockfile.normalise(match["pin"].partition("==")[0])))
        for match in YANKED.finditer(output)
    ]  # fmt: skip
    findings += _files(lock, offered)
    findings += _requirements(lock, scratch, locked)
    findings += vllm_range(lock, offered)
    return findings


def base_layer(lock: Lock) -> list[AuditFinding]:
    """Whether the Debian packages have what every base layer is made for. Needs no network."""
    named = {entry.name for entry in lock.debian}
    missing = sorted(set(debian.packages(lock.stack)) - set(debian.for_device(lock.stack)) - named)
    what = f"{lock.platform.name}: the base layer lacks {', '.join(missing)}"
    return [AuditFinding(what, _debian_again(lock))] if missing else []


def mirrored(lock: Lock, scratch: Path) -> list[AuditFinding]:
    """Whether the Debian packages are those of the mirror, where it has them. Raises NetworkError, MissingToolError."""
    return [
        AuditFinding(
            f"{lock.platform.name}: {entry.name}={entry.version}: the mirror's file has another hash",
            _debian_again(lock),
            expected=f"sha256:{entry.sha256}",
            got=f"sha256:{sha256}",
        )
        for entry, sha256 in debian.differing(lock, scratch).items()
    ]


def _debian_again(lock: Lock) -> str:
    return f"git diff lockfiles/{word(lock.name)}, or vetted lock {word(lock.name)} --upgrade debian"


def _away_from(lock: Lock, name: str) -> str:
    """The step that moves a distribution to another release: a pin of stack.toml stays whatever is upgraded."""
    if name in lock.stack.pinned:
        return (
            f"change {lock.stack.packages[name]!r} in the stack.toml of {word(lock.name)}, "
            f"then vetted lock {word(lock.name)}"
        )
    return f"vetted lock {word(lock.name)} --upgrade {word(name)}"


def sound_on(first: Lock, other: Lock, scratch: Path) -> list[AuditFinding]:
    """The audit of a stack's lock for another platform: sound, and with the same versions as the first."""
    findings = [replace(finding, what=f"{other.platform.name}: {finding.what}") for finding in sound(other, scratch)]
    command = f"vetted lock {word(other.name)}"
    for kind, fix in (("python", command), ("debian", f"{command} --upgrade debian")):
        versions = {entry.name: lockfile.source_version(entry.version) for entry in getattr(first, kind)}
        findings += [
            AuditFinding(
                f"{entry.name} is {entry.version} on {other.platform.name}, {versions[entry.name]} elsewhere", fix
            )
            for entry in getattr(other, kind)
            if entry.name in versions and versions[entry.name] != lockfile.source_version(entry.version)
        ]
    return findings


def lacking(lock: Lock) -> list[str]:
    """The Debian packages that a stack's device needs today and its base layer does not have."""
    return sorted(set(debian.for_device(lock.stack)) - {entry.name for entry in lock.debian})


def cuda_majors(device: str, entries: Iterable[Entry]) -> list[AuditFinding]:
    """CUDA libraries where none belong: any in a stack for the CPU, and those of a second major version."""
    if device == "cpu":
        names = [
            entry.name
            for entry in entries
            if CUDA_NAME.fullmatch(entry.name) or CUDA_SUFFIX.search(entry.name) or CUDA_LOCAL.search(entry.version)
        ]
        if names:
            return [
                AuditFinding(
                    f"a cpu stack locks CUDA libraries: {', '.join(names)}", "leave them out with an [[override]]"
                )
            ]
        return []
    majors: dict[str, list[str]] = {}
    for entry in entries:
        if match := CUDA_SUFFIX.search(entry.name) or CUDA_LOCAL.search(entry.version):
            majors.setdefault(match[1], []).append(entry.name)
        elif CUDA_NUMBERED.fullmatch(entry.name):
            majors.setdefault(entry.version.partition(".")[0], []).append(entry.name)
    if len(majors) > 1:
        groups = "; ".join(f"CUDA {major}: {', '.join(group)}" for major, group in sorted(majors.items()))
        return [AuditFinding(f"libraries of more than one CUDA major ({groups})", "pin one build of torch and vllm")]
    return []


def _files(lock: Lock, offered: dict[str, list[File]]) -> list[AuditFinding]:
    """The locked hash is that of a file that fits this stack's Python and glibc."""
    findings = []
    for entry in lock.python:
        files = offered.get(entry.name)
        if files is None:
            findings.append(
                AuditFinding(f"{entry.name} {entry.version} is no longer offered", f"vetted lock {word(lock.name)}")
            )
        elif entry.sha256 not in {file.sha256 for file in files}:
            findings.append(
                AuditFinding(
                    f"{entry.pin}: no file that fits has the locked hash",
                    f"git diff lockfiles/{word(lock.name)}, or vetted lock {word(lock.name)}",
                    expected=f"sha256:{entry.sha256}",
                    got=f"sha256:{files[0].sha256}",
                )
            )
    return findings


def _requirements(lock: Lock, scratch: Path, locked: list[str]) -> list[AuditFinding]:
    constraints = scratch / "constraints.txt"
    constraints.write_text("\n".join(locked) + "\n")
    target = scratch / "again.txt"
    target.unlink(missing_ok=True)
    result = solver.compile_pins(
        lock.stack, scratch, lock.stack.requires, ["--constraint", str(constraints), "-o", str(target)]
    )
    if result.returncode != 0:
        conflict = " ".join(result.stderr.split())
        return [
            AuditFinding(f"a declared requirement is violated: {conflict}", "record an [[override]] with its reason")
        ]
    again = pins.read(target.read_text()).keys()
    findings = [AuditFinding(f"{name} is needed but not locked", f"vetted lock {word(lock.name)}") for name in
                sorted(again - lock.versions.keys())]  # fmt: skip
    findings += [AuditFinding(f"{name} is locked but nothing needs it", f"vetted lock {word(lock.name)}") for name in
                 sorted(lock.versions.keys() - again)]  # fmt: skip
    return findings


def vllm_range(lock: Lock, offered: dict[str, list[File]]) -> list[AuditFinding]:
    """The locked vLLM lies in the range that the locked TRL declares."""
    vllm = next((entry for entry in lock.python if aliases.main_name(entry.name) == "vllm"), None)
    if vllm is None or "trl" not in offered:
        return []
    trl = offered["trl"][0]
    for line in metadata.read(trl).get("requires_dist", []):
        requirement = Requirement(line)
        if requirement.name == "vllm" and not requirement.specifier.contains(vllm.version, prereleases=True):
            return [
                AuditFinding(
                    f"trl {trl.version} declares vllm{requirement.specifier}, and {vllm.name} is {vllm.version}",
                    "pin a vLLM inside that range, or a TRL that declares this one",
                )
            ]
    return []
