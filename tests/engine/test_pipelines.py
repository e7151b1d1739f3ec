"""The pipelines of both forges, by their validators."""

from __future__ import annotations

from pathlib import Path

import pytest

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
