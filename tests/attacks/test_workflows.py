"""Attacks on the tokens of CI: by a pull request, by an action, and by what `vetted watch` tries there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

FILES = sorted([*(ROOT / ".github" / "workflows").glob("*.yml"), ROOT / "examples" / "watch" / "github.yml"])
WORKFLOWS = {path.name: yaml.safe_load(path.read_text()) for path in FILES}
GITLAB = {
    name: yaml.safe_load((ROOT / name).read_text()) for name in (".gitlab-ci.yml", "examples/watch/gitlab.yml")
}  # fmt: skip
TOKEN = re.compile(r"token|secret|password", re.IGNORECASE)


def jobs(workflow: Any) -> Iterator[dict[str, Any]]:
    yield from workflow["jobs"].values()


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_pull_request_speaks_in_a_workflow(name: str) -> None:
    """No workflow runs for it with this repository's rights, and its titles and branches are in no script."""
    workflow = WORKFLOWS[name]
    assert not {"pull_request_target", "workflow_run", "issue_comment", "issues"} & workflow[True].keys()  # `on`
    assert workflow["permissions"] == {"contents": "read"}
    scripts = [step["run"] for job in jobs(workflow) for step in job["steps"] if "run" in step]
    assert not any("${{" in script for script in scripts)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_an_action_is_another_one_tomorrow(name: str) -> None:
    """Each is named by its commit: whoever takes it over can move a tag."""
    used = [step["uses"] for job in jobs(WORKFLOWS[name]) for step in job["steps"] if "uses" in step]
    assert used and all(re.fullmatch(r"actions/[a-z-]+(/[a-z]+)?@[0-9a-f]{40}", each) for each in used)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_foreign_code_finds_a_token_beside_it(name: str) -> None:
    """Tests and new releases run as the user of a job: one that runs the project has no right to write, and no token.

    An action that checks out the project keeps its token in a file, unless it is told not to.
    """
    ours = [
        job for job in jobs(WORKFLOWS[name]) if any(re.search(r"\./(nox|vetted)", str(step)) for step in job["steps"])
    ]
    assert ours
    for job in ours:
        assert "permissions" not in job and not TOKEN.search(str(job.get("env", {})))
        for step in job["steps"]:
            assert not TOKEN.search(str(step.get("env", {}))) and not TOKEN.search(step.get("run", ""))
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("name", GITLAB)
def test_foreign_code_finds_a_token_of_gitlab(name: str) -> None:
    """The same there: the token is a variable of an environment, which only the job that pushes has."""
    ours = {key: job for key, job in GITLAB[name].items() if re.search(r"\./(nox|vetted) ", str(job))}
    assert ours
    for job in ours.values():
        assert not TOKEN.search(str(job)) and "environment" not in job
