"""A module that is not there at all: the distribution that brings it, and who asks for that."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.base import aliases, versions
from doctor.case import Case
from doctor.checks import building, ranges
from doctor.finding import EXPLAINS, Finding
from doctor.know import owners

MODULE = re.compile(r"No module named '(?P<module>[A-Za-z]\w*)'(?!\S)")
# Distributions that no other one declares, and that errors ask for all the same.
OPTIONAL = ("flash-attn", "flash-attn-3", "deepspeed", "liger-kernel", "vllm", "bitsandbytes", "peft", "triton", "apex")


def absent_modules(case: Case) -> Iterator[Finding]:
    """Only what is known to be a distribution: any other name is a module of the user's own."""
    for module in dict.fromkeys(match["module"] for match in MODULE.finditer(case.error)):
        package = aliases.of_module(module)
        if building.in_isolation(case.error, module):
            continue
        if case.version(package) is not None or any(_tells(case, package, name) for name in (module, package)):
            continue
        asking = _asking(case, package)
        if not asking and package not in (*OPTIONAL, *owners.STACK, *case.knowledge.apis):
            continue
        requirement = f"{package}{asking[1]}" if asking else package
        yield Finding(
            rule="absent-module",
            title=f"{package} is not installed" + (f", and {asking[0]} needs it" if asking else ""),
            packages={package: None},
            severity="crash",
            confidence="likely" if case.environment.complete or (asking and case.version(asking[0])) else "possible",
            evidence=["the error names its module"],
            remedy=[f"install {package}, in the environment whose Python runs"],
            commands=[ranges.install(requirement)],
            decide=[] if case.environment.complete else ["whether it is in another environment than the one that runs"],
            shown=EXPLAINS,
            weight=0.2,
        )


def _tells(case: Case, package: str, name: str) -> bool:
    """Does the history of names know the module itself? Then its releases say more."""
    api = case.knowledge.apis.get(package)
    return api is not None and f"{name}:" in api.changes


def _asking(case: Case, package: str) -> tuple[str, str] | None:
    """An installed package, else one that is known, that declares to need a distribution, and in which range."""
    installed = [(here.name, here.requires) for here in case.environment.packages.values()]
    newest = [(name, _newest(case.knowledge.requires(name))) for name in case.knowledge.apis]
    for name, needs in (*installed, *newest):
        for line in needs:
            need = versions.requirement(line) if package[:3] in line.lower() else None
            if need is not None and aliases.normalise(need.name) == package and name != package:
                return name, str(need.specifier) if case.version(name) else ""
    return None


def _newest(releases: dict[str, list[str]]) -> list[str]:
    newest = max(releases, key=lambda release: versions.parse(release) or versions.Version("0"), default="")
    return releases.get(newest, [])
