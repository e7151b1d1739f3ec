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


class Pipeline:
    """The two jobs of an example, each in a clone of its own, and a `gh` that fails where `broken` has its command."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.remote, self.first, self.second = folder / "remote.git", folder / "first", folder / "second"
        self.called, self.broken = folder / "called", folder / "broken"
        (gh := folder / "bin" / "gh").parent.mkdir()
        gh.write_text(
            f"""#!/bin/sh
            if [ "$2" = view ]; then cat "{folder}/state" 2> /dev/null; exit; fi
            echo "$2" >> "{self.called}"
            [ ! -e "{self.broken}" ] || exit 1
            echo OPEN > "{folder}/state"
            """
        )
        gh.chmod(0o755)
        commits.git(folder, "init", "--quiet", "--bare", "--initial-branch=main", str(self.remote))
        commits.git(self.remote, "config", "receive.advertisePushOptions", "true")
        commits.git(folder, "clone", "--quiet", str(self.remote), str(self.first))
        commits.git(self.first, "commit", "--quiet", "--allow-empty", "--message", "all")
        commits.git(self.first, "push", "--quiet", "origin", "HEAD:main")
        commits.git(folder, "clone", "--quiet", str(self.remote), str(self.second))

    def run(self, folder: Path, words: str) -> int:
        env = {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(self.folder)}
        argv = ["bash", "-e", "-c", block(self.name, words)]
        return subprocess.run(argv, cwd=folder, env=env, capture_output=True, check=False).returncode

    def tries(self, text: str, stack: str = "tiny") -> None:
        """What the first job does with a verdict."""
        commits.git(self.first, "checkout", "--quiet", "-B", f"vetted/watch/{stack}", "origin/main")
        (self.first / "watch" / stack).mkdir(parents=True, exist_ok=True)
        (self.first / "watch" / stack / "verdict.md").write_text(text)
        commits.commit(self.first, self.first / "watch" / stack)

    def sees(self) -> None:
        """The next day: the first job has the branches that were pushed."""
        commits.git(self.first, "fetch", "--quiet", "origin", "+refs/heads/vetted/watch/*:refs/seen/vetted/watch/*")

    def opens(self) -> int:
        """The exit code of the second job."""
        assert self.run(self.first, "git bundle") == 0
        shutil.copy(self.first / "watch.bundle", self.second)
        return self.run(self.second, "git push")

    def requests(self) -> list[str]:
        """What `gh` was called for, apart from looking, since the last time."""
        words = self.called.read_text().split() if self.called.exists() else []
        self.called.unlink(missing_ok=True)
        return words

    def pushed(self, stack: str = "tiny") -> str:
        path = self.remote / "refs" / "heads" / "vetted" / "watch" / stack
        return path.read_text().strip() if path.exists() else ""


@pytest.fixture(params=["github.yml", "gitlab.yml"])
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> Pipeline:
    return Pipeline(request.param, tmp_path)


def test_what_the_first_job_committed_is_pushed_by_the_second(pipeline: Pipeline) -> None:
    """And not over the commits of somebody else."""
    assert pipeline.run(pipeline.second, "git push") == 0 and not pipeline.pushed()
    pipeline.tries("one")
    assert pipeline.opens() == 0
    mine = pipeline.pushed()
    assert mine and pipeline.requests() == (["create"] if pipeline.name == "github.yml" else [])
    pipeline.tries("another")  # as if the first job had not seen the branch
    assert pipeline.opens() != 0 and pipeline.pushed() == mine
    pipeline.sees()
    pipeline.tries("a third")
    assert pipeline.opens() == 0 and pipeline.pushed() != mine


def test_a_request_that_could_not_be_opened_is_opened_on_a_later_day(tmp_path: Path) -> None:
    """And one that somebody closed stays closed until there is something new."""
    pipeline = Pipeline("github.yml", tmp_path)
    pipeline.tries("one")
    pipeline.broken.touch()
    assert pipeline.opens() != 0 and pipeline.pushed()
    pipeline.sees()
    assert pipeline.opens() != 0 and pipeline.requests() == ["create"] * 2
    pipeline.broken.unlink()
    assert pipeline.opens() == 0 and pipeline.requests() == ["create"]
    (tmp_path / "state").write_text("CLOSED\n")
    assert pipeline.opens() == 0 and pipeline.requests() == []
    pipeline.tries("another")
    assert pipeline.opens() == 0 and pipeline.requests() == ["create"]


def test_a_branch_that_cannot_be_pushed_holds_up_no_other(pipeline: Pipeline) -> None:
    pipeline.tries("one", stack="a")
    assert pipeline.opens() == 0
    pipeline.tries("another", stack="a")
    pipeline.tries("one", stack="b")
    assert pipeline.opens() != 0
    assert pipeline.pushed("b")


def test_a_branch_of_which_nothing_is_left_to_merge_is_not_pushed(pipeline: Pipeline) -> None:
    """A trial that was broken off leaves its branch where it began."""
    commits.git(pipeline.first, "branch", "vetted/watch/tiny", "origin/main")
    assert (pipeline.opens(), pipeline.pushed(), pipeline.requests()) == (0, "", [])


def test_a_watch_that_is_red_is_remembered() -> None:
    """It ends with 1, and without last.json its commits would be somebody else's on the next day."""
    steps = yaml.safe_load((EXAMPLES / "github.yml").read_text())["jobs"]["try"]["steps"]
    named = [step.get("uses", step.get("run", "")).partition("@") for step in steps]
    (restored,) = (number for number, (name, _, _) in enumerate(named) if name == "actions/cache/restore")
    (ran,) = (number for number, (name, _, _) in enumerate(named) if name.startswith("./vetted watch"))
    (saved,) = (number for number, (name, _, _) in enumerate(named) if name == "actions/cache/save")
    assert restored < ran < saved and "actions/cache" not in [name for name, _, _ in named]
    assert steps[saved]["if"] == "${{ !cancelled() }}" and named[saved][2] == named[restored][2]
    assert {key: steps[restored]["with"][key] for key in ("path", "key")} == steps[saved]["with"]
    assert yaml.safe_load((EXAMPLES / "gitlab.yml").read_text())["watch"]["cache"]["when"] == "always"
