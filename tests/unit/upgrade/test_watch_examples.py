"""What Renovate would find in the stacks, by the expressions of its configuration."""

from __future__ import annotations

import json
import re

from builder.base.project import Project
from builder.intent import stack
from tests.conftest import ROOT

(MANAGER,) = json.loads((ROOT / "examples" / "watch" / "renovate.json").read_text())["customManagers"]


def test_renovate_finds_every_pin_of_every_stack_and_nothing_else(real: Project) -> None:
    (pattern,), (files,) = MANAGER["matchStrings"], MANAGER["managerFilePatterns"]
    expression = re.compile(pattern.replace("(?<", "(?P<"))
    for name in stack.names(real):
        path = real.stack_dir(name) / "stack.toml"
        assert re.search(files.strip("/"), real.relative(path))
        matches = {match["depName"]: match["currentValue"] for match in expression.finditer(path.read_text())}
        pins = {key: line.partition("==")[2] for key, line in stack.load(real, name).packages.items() if "==" in line}
        assert matches == {key: version for key, version in pins.items() if "+" not in version}, name
    assert not re.search(files.strip("/"), "lockfiles/controls/x/stack.toml")
    assert not re.search(files.strip("/"), "lockfiles/x/requirements.txt")
