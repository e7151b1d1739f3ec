"""The pipelines of both forges, by their validators."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT
from tests.engine.test_examples import check

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCHEMAS = ("check-jsonschema==0.39.0", "check-jsonschema", "--builtin-schema")


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_one_for_github(workflow: Path) -> None:
    check(*SCHEMAS, "vendor.github-workflows", str(workflow))
    check("zizmor==1.32.0", "zizmor", "--offline", str(workflow))


def test_the_pipeline_is_one_for_gitlab() -> None:
    check(*SCHEMAS, "vendor.gitlab-ci", str(ROOT / ".gitlab-ci.yml"))


def test_dependabot_takes_its_configuration_and_touches_no_lock(tmp_path: Path) -> None:
    """It edits what it finds in the folders that it is told: only the workflows, where nothing is locked by hash."""
    file = ROOT / ".github" / "dependabot.yml"
    check(*SCHEMAS, "vendor.dependabot", str(file))
    (entry,) = yaml.safe_load(file.read_text())["updates"]
    assert (entry["package-ecosystem"], entry["directory"]) == ("github-actions", "/")
    assert "directories" not in entry
    broken = tmp_path / "dependabot.yml"
    broken.write_text(file.read_text().replace("github-actions", "github-action"))
    with pytest.raises(AssertionError, match="github-action"):
        check(*SCHEMAS, "vendor.dependabot", str(broken))
