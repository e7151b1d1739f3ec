"""Known advisories for this combination of options, as `vetted use` wrote them for this image's stack.

An entry counts when all of its conditions are known to be met. Without the file, or with a broken one, nothing is said.
"""

from __future__ import annotations

import json
import math
import operator
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet

from runtime import verdict
from runtime.check import Check, Level
from runtime.config.names import BOOLEANS, TRUE
from runtime.config.run import Machine, Run

FILE = "advisories.json"
COMPARISON = re.compile(r"\s*(==|!=|<=|>=|<|>)\s*(.*)")
OPERATORS = {
    "==": operator.eq, "!=": operator.ne, "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip


def look(run: Run, machine: Machine, description: Mapping[str, Any], root: Path = Path("/")) -> list[Check]:
    """One check for each advisory that holds. `description` is the image's (stack.json)."""
    try:
        document = json.loads((root / verdict.FOLDER / FILE).read_bytes())
        if any(document[name] != description.get(name) for name in ("stack", "lock")):
            return []
        return list(_matching(document["advisories"], run, facts(run, machine)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, re.error):
        return []


def facts(run: Run, machine: Machine) -> dict[str, Any]:
    """What is known of a run and its machine, under the names of an advisory's context; None where it is not known."""
    return {
        "launcher": run.launcher,
        "processes": run.ranks,
        "zero_stage": run.sharding.stage,
        "quantisation": run.quantisation,
        "vllm_mode": run.vllm_mode,
        "gpus": len(machine.gpus),
        "gpu_model": machine.gpus,
        "driver": machine.driver,
        "cuda": machine.cuda,
        "python": platform.python_version(),
        "compiler": shutil.which("gcc") is not None,
    }


def _matching(entries: list[dict[str, Any]], run: Run, known: Mapping[str, Any]) -> Iterator[Check]:
    told: set[str] = set()
    for entry in entries:
        if entry["id"] in told or (entry["trainers"] is not None and run.trainer not in entry["trainers"]):
            continue
        conditions: dict[str, Any] = entry["conditions"]
        flags = conditions.get("flags", {})
        if not all(_met(key, condition, known.get(key)) for key, condition in conditions.items() if key != "flags"):
            continue
        if all(_equal(run.value(name), condition) for name, condition in flags.items()):
            told.add(entry["id"])
            words = {name: _text(entry[name]) for name in ("id", "summary", "harm", "when", "remedy")}
            level: Level = "stop" if entry["level"] == "stop" else "advice"
            after = "{harm} ({when})\n         {remedy}".format_map(words)
            yield Check(level, "{id}: {summary}".format_map(words), after)


def _text(value: Any) -> str:
    """Text that can be printed. Raises ValueError, TypeError."""
    if not re.fullmatch(verdict.TEXT, value):
        raise ValueError(value)
    return str(value)


def _met(key: str, condition: Any, value: Any) -> bool:
    """Is a condition met? What is not known is not."""
    if value is None:
        return False
    if key == "gpu_model":
        patterns = [rf"(?<![A-Za-z0-9]){re.escape(model)}(?![A-Za-z0-9])" for model in condition]
        return any(re.search(pattern, model) for pattern in patterns for model in value)
    if isinstance(condition, list):
        return value in condition
    if isinstance(condition, bool):
        return value is condition
    return SpecifierSet(condition).contains(str(value), prereleases=True)


def _equal(value: Any, condition: Any) -> bool:
    """Does an option have a value, such as true, 0.7, "float32" or ">=2"?"""
    if isinstance(condition, bool):
        word = str(value).lower()
        return word in BOOLEANS and (word in TRUE) is condition
    match = COMPARISON.fullmatch(condition) if isinstance(condition, str) else None
    if match or isinstance(condition, int | float):
        left, right = _number(value), _number(match[2] if match else condition)
        return left is not None and right is not None and bool(OPERATORS[match[1] if match else "=="](left, right))
    return value is not None and str(value).lower().rpartition(".")[2] == str(condition).lower()


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
