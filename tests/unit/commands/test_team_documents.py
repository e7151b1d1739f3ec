"""The how-tos for a team: every command in them parses, and every policy in them is one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperCommand

from builder.publish.policy import policyfile
from builder.publish.policy.policyfile import PolicyFile
from tests.conftest import ROOT, Small
from tests.unit.conftest import Command

HOW_TO = ROOT / "docs" / "how-to"
PAGES = ("admission.md", "fleet.md", "team.md", "watch.md")
COMMANDS = [
    (page, line)
    for page in PAGES
    for line in re.findall(r"^\./vetted (.*)$", (HOW_TO / page).read_text(encoding="utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_a_command_of_a_page_parses(
    page: str, line: str, small: Small, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoked: list[Any] = []
    monkeypatch.setattr(TyperCommand, "invoke", lambda self, _: invoked.append(self.name))
    (small.root / "my-project").mkdir()
    line = re.sub(r"\$\(.*?\)", "2026-11-20", line).partition("&&")[0].replace("~/", "")
    words = shlex.split(line, comments=True)
    assert command(small.root, *words).code == 0, page
    assert invoked == [words[0]]


def test_the_policies_of_the_pages_are_policies(tmp_path: Path) -> None:
    (whole,) = re.findall(r"```toml\n(.*?)```", (HOW_TO / "admission.md").read_text(encoding="utf-8"), re.DOTALL)
    (short,) = re.findall(r"policy\.toml <<END\n(.*?)^END", (HOW_TO / "team.md").read_text(), re.DOTALL | re.MULTILINE)
    for number, text in enumerate((whole, short)):
        path = tmp_path / f"{number}.toml"
        path.write_text(text)
        assert policyfile.read(path).signed_by == ["cosign.pub"]
    keys = re.findall(r"^(\w+) =", whole, re.MULTILINE)
    assert keys == list(PolicyFile.model_fields), "the page shows every key"
