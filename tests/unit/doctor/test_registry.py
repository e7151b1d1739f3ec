"""The registry of checks and what a finding is made of."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

from doctor import checks
from doctor.checks import registry
from doctor.finding import Finding


def test_every_check_is_registered_once() -> None:
    """A public function of a module of checks that takes a case and yields findings is a check."""
    functions = []
    for module in pkgutil.iter_modules(checks.__path__, "doctor.checks."):
        for _, function in inspect.getmembers(importlib.import_module(module.name), inspect.isfunction):
            takes = list(inspect.signature(function).parameters)
            ours = function.__module__ == module.name and module.name != registry.__name__
            if ours and not function.__name__.startswith("_") and takes == ["case"]:
                functions.append(function)
    assert sorted(check.__qualname__ for check in registry.CHECKS) == sorted(check.__qualname__ for check in functions)
    assert len(set(registry.CHECKS)) == len(registry.CHECKS)


def test_a_finding_takes_keywords_alone() -> None:
    with pytest.raises(TypeError):
        Finding("rule", "title", {}, "crash", "likely", [], [])  # type: ignore[call-arg]
