"""Does every package get what it declares to need? From the installed metadata, or from the published one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from doctor.base import aliases, versions
from doctor.case import Case
from doctor.checks import ranges
from doctor.finding import EXPLAINS, POINTS, SILENT, Finding
from doctor.know import published
from doctor.know.data import Knowledge
from doctor.read.distributions import Package
from doctor.read.environment import Environment

CORE = (
    "trl", "vllm", "torch", "transformers", "deepspeed", "bitsandbytes", "peft", "accelerate", "datasets", "unsloth",
)  # fmt: skip
NORMAL = re.compile(
    r"(?<![A-Za-z0-9-])(?P<name>[A-Za-z0-9-]{1,100})[^\n]{0,80} is required for a normal functioning of this module"
)


class Need(NamedTuple):
    """A package and the range that another declares for it."""

    package: str
    allowed: str


def unmet_requirements(case: Case) -> Iterator[Finding]:
    """Requires-Dist of every package against what is installed."""
    named = {aliases.normalise(match["name"]) for match in NORMAL.finditer(case.error)}
    for package, need, installed, evidence in unmet(case.environment, case.knowledge):
        mentioned = _mentions(case.error, need.package, package.name)
        shown = EXPLAINS if need.package in named else POINTS if mentioned else SILENT
        yield _unmet(package, need, installed, evidence, shown)


def unmet(environment: Environment, knowledge: Knowledge) -> Iterator[tuple[Package, Need, str, str]]:
    """A package, what it needs, the version that is there instead, and where the need is declared."""
    overridden = _overridden(environment, knowledge)
    for package in environment.packages.values():
        declared, source = package.requires, "its metadata"
        if not declared and package.folder is None:
            declared, source = _published(knowledge, package.name, package.version), "its release"
        for line in declared:
            need = _need(line, environment.python)
            installed = environment.version(need.package) if need else None
            if need is None or installed is None or (package.name, need.package) in overridden:
                continue
            if versions.within(need.allowed, installed) is False:
                yield package, need, installed, f"{source}: Requires-Dist: {line[:200]}"


def _unmet(package: Package, need: Need, installed: str, evidence: str, shown: int) -> Finding:
    core = package.name in CORE or need.package in CORE
    requirement = f"{need.package}{need.allowed}"
    return Finding(
        rule="requires-dist",
        title=f"{package.name} {package.version} requires {requirement}, and {installed} is installed",
        packages={need.package: installed, package.name: package.version},
        severity="crash" if core else "resolve",
        confidence="certain" if core or shown else "likely",
        evidence=[evidence],
        remedy=[f"{requirement}, or another release of {package.name}"],
        commands=[ranges.install(requirement)],
        ranges={need.package: ranges.outside(need.allowed)},
        shown=shown,
        weight=float(core),
    )


def unsupported_python(case: Case) -> Iterator[Finding]:
    """Requires-Python of every package against this Python."""
    python = case.environment.python
    for package in case.environment.packages.values():
        allowed = package.requires_python
        if python and allowed and versions.specifiers(allowed) is not None and not versions.allows(allowed, python):
            yield Finding(
                rule="requires-python",
                title=f"{package.name} {package.version} requires Python {allowed}, and this is {python}",
                packages={package.name: package.version},
                severity="crash",
                confidence="certain",
                evidence=[f"its metadata: Requires-Python: {allowed}"],
                remedy=[f"a release of {package.name} for Python {python}, or another Python"],
            )


def vllm_outside_trl_range(case: Case) -> Iterator[Finding]:
    """TRL declares the vLLM that it works with in an extra, which pip does not enforce."""
    trl, vllm = case.environment.packages.get("trl"), case.version("vllm")
    if trl is None or vllm is None:
        return
    declared = trl.requires or _published(case.knowledge, "trl", trl.version)
    extras = [line for line in declared if re.match(r"vllm\b", line) and "extra" in line]
    needs = (_need(line, None, "vllm") for line in extras)
    allowed = next((need.allowed for need in needs if need), None)
    if not allowed or versions.within(allowed, vllm) is not False:
        return
    mentioned = re.search(r"\bvllm\b", case.error, re.IGNORECASE) is not None
    yield Finding(
        rule="trl-vllm-range",
        title=f"vLLM {vllm} is outside the range that TRL {trl.version} declares: {allowed}",
        packages={"vllm": vllm, "trl": trl.version},
        severity="crash",
        confidence="likely" if mentioned or not case.error else "possible",
        evidence=[f"TRL {trl.version}, extra vllm: vllm{allowed}", "vLLM's interfaces change from release to release"],
        remedy=[f"vllm{allowed}, or a TRL that declares vLLM {vllm}"],
        commands=[ranges.install(f"vllm{allowed}")],
        ranges={"vllm": ranges.outside(allowed)},
        shown=POINTS if mentioned else SILENT,
    )


def declared(knowledge: Knowledge, name: str, release: str, python: str | None) -> Iterator[Need]:
    """What a published release needs."""
    needs = (_need(line, python) for line in _published(knowledge, name, release))
    return (need for need in needs if need is not None)


def _published(knowledge: Knowledge, name: str, version: str) -> tuple[str, ...]:
    """What a release declares, for lists of versions, which have no metadata."""
    return tuple(knowledge.requires(name).get(version, [])) or published.requires(name, version)


@lru_cache(maxsize=16384)
def _need(line: str, python: str | None, extra: str = "") -> Need | None:
    """What a requirement asks for on this Python; None when it asks for nothing, or for no range."""
    requirement = versions.requirement(line)
    if requirement is None:
        return None
    try:
        if requirement.marker is not None:
            variables: dict[str, str] = {"extra": extra}
            if python:
                variables["python_version"] = ".".join(python.split(".")[:2])
                variables["python_full_version"] = python
            if not requirement.marker.evaluate(variables):
                return None
    except (versions.UndefinedComparison, versions.UndefinedEnvironmentName, ValueError, RecursionError):
        return None
    allowed = str(requirement.specifier)
    return Need(aliases.normalise(requirement.name), allowed) if allowed else None


@lru_cache(maxsize=1024)
def _mentions(text: str, *names: str) -> bool:
    return bool(text) and all(re.search(rf"\b{re.escape(name).replace('-', '[-_]')}\b", text) for name in names)


def _overridden(environment: Environment, knowledge: Knowledge) -> set[tuple[str, str]]:
    """Packages and what they need that a stack of the project overrides: it was tried, so it is no finding."""
    pairs = set()
    for stack in knowledge.stacks:
        pins = stack["versions"]
        if all(environment.version(aliases.normalise(name)) == pins[name] for name in pins if name in CORE):
            overrides = [aliases.normalise(name) for name in stack["overrides"]]
            pairs |= {(aliases.normalise(package), name) for package in pins for name in overrides}
    return pairs
