"""Does every package get what it declares to need? From the metadata that is installed, or from the published one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import lru_cache

from doctor.base import versions
from doctor.case import Case
from doctor.finding import Finding
from doctor.know import published

CORE = (
    "trl",
    "vllm",
    "torch",
    "transformers",
    "deepspeed",
    "bitsandbytes",
    "peft",
    "accelerate",
    "datasets",
    "unsloth",
)
NORMAL = re.compile(
    r"(?<![A-Za-z0-9-])(?P<name>[A-Za-z0-9-]{1,100})[^\n]{0,80} is required for a normal functioning of this module"
)


def look(case: Case) -> Iterator[Finding]:
    environment = case.environment
    said = {versions.name(match["name"]) for match in NORMAL.finditer(case.error)}
    accepted = _overridden(case)
    for package in environment.packages.values():
        declared, source = package.requires, "its metadata"
        if not declared and package.folder is None:
            declared, source = _published(case, package.name, package.version), "its release"
        for line in declared:
            wanted = _wanted(line, environment.python)
            if wanted is None:
                continue
            name, allowed = wanted
            have = environment.version(name)
            if have is None or versions.within(allowed, have) is not False or (package.name, name) in accepted:
                continue
            shown = 2 if name in said else 1 if _speaks(case.error, name, package.name) else 0
            core = package.name in CORE or name in CORE
            yield Finding(
                "requires-dist",
                f"{package.name} {package.version} declares {name}{allowed}, and {have} is installed",
                {name: have, package.name: package.version}, "crash" if core else "resolve",
                "certain" if core or shown else "likely",
                [f"{source}: Requires-Dist: {line[:200]}"],
                [f"{name}{allowed}, or another release of {package.name}"],
                commands=[install(f"{name}{allowed}")], ranges={name: outside(allowed)}, shown=shown,
                weight=float(core),
            )  # fmt: skip


def python(case: Case) -> Iterator[Finding]:
    """Packages that do not support this Python at all."""
    have = case.environment.python
    for package in case.environment.packages.values():
        allowed = package.requires_python
        if have and allowed and versions.specifiers(allowed) is not None and not versions.allowed(allowed, have):
            yield Finding(
                "requires-python",
                f"{package.name} {package.version} declares Python {allowed}, and this is {have}",
                {package.name: package.version}, "crash", "certain",
                [f"its metadata: Requires-Python: {allowed}"],
                [f"a release of {package.name} for Python {have}, or another Python"],
            )  # fmt: skip


def trl_vllm(case: Case) -> Iterator[Finding]:
    """TRL says which vLLM it was made for, in an extra that pip does not hold anybody to."""
    trl, vllm = case.environment.packages.get("trl"), case.environment.version("vllm")
    if trl is None or vllm is None:
        return
    declared = trl.requires or _published(case, "trl", trl.version)
    extras = [line for line in declared if re.match(r"vllm\b", line) and "extra" in line]
    allowed = next((wanted[1] for wanted in (_wanted(line, None, "vllm") for line in extras) if wanted), None)
    if not allowed or versions.within(allowed, vllm) is not False:
        return
    spoken = re.search(r"\bvllm\b", case.error, re.IGNORECASE) is not None
    yield Finding(
        "trl-vllm-range",
        f"vLLM {vllm} lies outside the range that TRL {trl.version} declares: {allowed}",
        {"vllm": vllm, "trl": trl.version}, "crash", "likely" if spoken or not case.error else "possible",
        [f"TRL {trl.version}, extra vllm: vllm{allowed}", "vLLM's interfaces change from release to release"],
        [f"vllm{allowed}, or a TRL that lists vLLM {vllm}"],
        commands=[install(f"vllm{allowed}")], ranges={"vllm": outside(allowed)},
        shown=int(spoken),
    )  # fmt: skip


def _published(case: Case, name: str, version: str) -> tuple[str, ...]:
    """What a release declares, for lists of versions that carry no metadata."""
    known: list[str] = case.apis.get(name, {}).get("requires", {}).get(version, [])
    return tuple(known) or published.requires(name, version)


def install(requirement: str) -> str:
    """The command for a requirement. Its range comes from a stranger, and behind "===" any letter may stand."""
    quoted = shlex.quote(requirement)
    return f"uv pip install {quoted if quoted != requirement else repr(requirement)}"


def _wanted(line: str, python: str | None, extra: str = "") -> tuple[str, str] | None:
    """The package and the range that a requirement asks for here; None when it asks nothing."""
    requirement = versions.requirement(line)
    if requirement is None:
        return None
    try:
        if requirement.marker is not None:
            surroundings: dict[str, str] = {"extra": extra}
            if python:
                surroundings["python_version"] = ".".join(python.split(".")[:2])
                surroundings["python_full_version"] = python
            if not requirement.marker.evaluate(surroundings):
                return None
    except (versions.UndefinedComparison, versions.UndefinedEnvironmentName, ValueError, RecursionError):
        return None
    return (versions.name(requirement.name), str(requirement.specifier)) if requirement.specifier else None


def outside(allowed: str) -> list[str]:
    """What lies outside a range, as ranges."""
    opposite = {">=": "<", ">": "<=", "<=": ">", "<": ">=", "==": "!=", "!=": "=="}
    found = []
    for clause in versions.specifiers(allowed) or ():
        if clause.operator in opposite:
            found.append(opposite[clause.operator] + clause.version)
        elif clause.operator == "~=":
            found.append("<" + clause.version)
    return found


@lru_cache(maxsize=1024)
def _speaks(text: str, *names: str) -> bool:
    return bool(text) and all(re.search(rf"\b{re.escape(name).replace('-', '[-_]')}\b", text) for name in names)


def _overridden(case: Case) -> set[tuple[str, str]]:
    """What certified stacks deliberately do not get: a departure that was tried is no finding."""
    found = set()
    for stack in case.data.get("stacks", ()):
        pins = stack["versions"]
        if all(case.environment.version(versions.name(name)) == pins[name] for name in pins if name in CORE):
            names = [versions.name(one) for one in stack["overrides"]]
            found |= {(versions.name(package), name) for package in pins for name in names}
    return found
