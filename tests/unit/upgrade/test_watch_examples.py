"""What Renovate would find in the stacks, by the expressions of its configuration; and the scripts of CI."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from builder.base.project import Project
from builder.intent import stack
from tests import commits
from tests.conftest import ROOT

EXAMPLES = ROOT / "examples" / "watch"
(MANAGER,) = json.loads((EXAMPLES / "renovate.json").read_text())["customManagers"]


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


def block(name: str, words: str) -> str:
    """The script of an example that has these words in it."""
    document = yaml.safe_load((EXAMPLES / name).read_text())
    jobs = document["jobs"].values() if "jobs" in document else document.values()
    scripts = [step.get("run", "") for job in jobs for step in job.get("steps", ())]
    scripts += [
        script for job in jobs for key in ("before_script", "script", "after_script") for script in job.get(key, ())
    ]
    return str(next(script for script in scripts if words in script))


@pytest.mark.parametrize("name", ["github.yml", "gitlab.yml"])
def test_what_the_first_job_committed_is_pushed_by_the_second(name: str, tmp_path: Path) -> None:
    """And not over the commits of somebody else."""
    remote, first, second = tmp_path / "remote.git", tmp_path / "first", tmp_path / "second"
    (gh := tmp_path / "bin" / "gh").parent.mkdir()
    gh.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/called\n[ "$2" != view ]\n')
    gh.chmod(0o755)
    env = {"PATH": f"{gh.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}

    def run(folder: Path, script: str) -> int:
        return subprocess.run(
            ["bash", "-e", "-c", script], cwd=folder, env=env, capture_output=True, check=False
        ).returncode

    def verdict(text: str) -> None:
        (first / "watch" / "tiny").mkdir(parents=True, exist_ok=True)
        (first / "watch" / "tiny" / "verdict.md").write_text(text)
        commits.git(first, "checkout", "--quiet", "-B", "vetted/watch/tiny")
        commits.commit(first, first / "watch")
        assert run(first, block(name, "git bundle")) == 0
        shutil.copy(first / "watch.bundle", second)

    commits.git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", str(remote))
    commits.git(remote, "config", "receive.advertisePushOptions", "true")
    commits.git(tmp_path, "clone", "--quiet", str(remote), str(first))
    commits.git(first, "commit", "--quiet", "--allow-empty", "--message", "all")
    commits.git(first, "push", "--quiet", "origin", "HEAD:main")
    commits.git(tmp_path, "clone", "--quiet", str(remote), str(second))
    pushed = remote / "refs" / "heads" / "vetted" / "watch" / "tiny"
    assert run(second, block(name, "git push")) == 0 and not pushed.exists()
    verdict("one")
    assert run(second, block(name, "git push")) == 0
    mine = pushed.read_text()
    assert (tmp_path / "called").exists() is (name == "github.yml")
    verdict("another")  # as if the first job had not seen the branch
    assert run(second, block(name, "git push")) != 0 and pushed.read_text() == mine
    commits.git(first, "fetch", "--quiet", "origin", "+refs/heads/vetted/watch/*:refs/seen/vetted/watch/*")
    verdict("a third")
    assert run(second, block(name, "git push")) == 0 and pushed.read_text() != mine
