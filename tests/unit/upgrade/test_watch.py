"""A watch: what is new is tried on a branch, what breaks is named and left out, and what is checked out stays."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from builder.certify import certificate
from builder.certify.certificate import LIFETIME, ProbeResult, Statement
from builder.upgrade.recertification import Recertification
from builder.upgrade.watch import notices, verdict
from tests import parts
from tests.conftest import LIBRARY, TINY, Small, make_wheel
from tests.registry.conftest import advise
from tests.unit.conftest import Command
from tests.unit.upgrade.moving import Moving

# Each of them installs two environments and runs them.
pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("other_debian")]

BRANCH = f"vetted/watch/{TINY}"


class Watch(Moving):
    """The small project in a git repository, with a second package; tiny-lib 2.0 and holder 2.0 are new."""

    def __init__(self, small: Small, command: Command) -> None:
        small.edit("stack.toml", 'requires = ["tiny-lib==1.0"]', 'requires = ["tiny-lib==1.0", "holder==1.0"]')
        for version in ("1.0", "2.0"):
            make_wheel(small.wheelhouse, "holder", version, {"holder.py": ""})
        super().__init__(small, command)
        for version in ("3.0", "4.0"):
            (small.wheelhouse / f"tiny_lib-{version}-py3-none-any.whl").unlink()
        (small.root / ".gitignore").write_text(".vetted/\nwheelhouse/\n*.git/\nbin/\n")
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.name", "somebody")
        self.git("config", "user.email", "somebody@example.org")
        self.commit()

    def git(self, *argv: str) -> str:
        return subprocess.run(
            [parts.git(), *argv], cwd=self.small.root, capture_output=True, text=True, check=True
        ).stdout.strip()

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "all")

    def suite(self, probe: str) -> None:
        super().suite("versions = {name: installed.version(name) for name in ('tiny-lib', 'holder')}; " + probe)

    def watch(self, *argv: str, code: int = 0) -> Any:
        answer = self.command(self.small.root, "watch", TINY, "--engine", "host", "--json", *argv)
        assert answer.code == code, answer.out + answer.err
        return answer.json.get(TINY, answer.json)

    def breaks(self, package: str) -> None:
        """The suite turns red with the new release of a package."""
        bad = f"versions['{package}'] == '2.0' and probe == 'beta'"
        self.suite(f"end(probe, **({{'outcome': 'failed', 'reason': 'ValueError: no'}} if {bad} else {{}}))")
        assert self.command(self.small.root, "certify", TINY, "--engine", "host").code == 0
        self.commit()

    def on_branch(self, path: str) -> str:
        return self.git("show", f"{BRANCH}:{path}")


@pytest.fixture
def watching(wheels: Small, command: Command) -> Watch:
    return Watch(wheels, command)


def test_what_is_green_is_a_commit_on_a_branch(watching: Watch) -> None:
    before, head = watching.committed(), watching.git("rev-parse", "HEAD")
    answer = watching.watch()
    assert (answer["good"], answer["trials"], answer["branch"]) == (True, ["green"], BRANCH)
    assert (watching.committed(), watching.git("status", "--porcelain"), watching.git("rev-parse", "HEAD")) == (
        before, "", head,
    )  # fmt: skip
    assert watching.git("rev-list", "--count", f"{head}..{BRANCH}") == "1"
    assert '"tiny-lib==2.0", "holder==2.0"' in watching.on_branch(f"lockfiles/{TINY}/stack.toml")
    certified = json.loads(watching.on_branch(f"lockfiles/{TINY}/certificates/cpu-host.json"))
    assert certified["predicate"]["result"] == "PASSED"
    verdict = watching.on_branch(f"watch/{TINY}/verdict.md")
    assert verdict.startswith(
        f"# {TINY}: holder 1.0 → 2.0, tiny-lib 1.0 → 2.0\n\nVerdict of {certificate.today()}: **it may move.**"
    )
    assert "| tiny-lib | 1.0 | 2.0 | 2.0 |  |" in verdict
    assert watching.git("log", "-1", "--format=%s%n%n%b", BRANCH).startswith(f"{TINY}: holder 1.0 → 2.0")
    assert Path(answer["verdict"]).read_text().strip() == verdict
    assert watching.git("worktree", "list").count("\n") == 0
    # The branch is whole: what it renders is rendered.
    watching.git("checkout", "--quiet", BRANCH)
    assert watching.command(watching.small.root, "render", "--check").code == 0
    assert watching.command(watching.small.root, "lock", "--check").code == 0


def test_what_breaks_is_named_and_the_rest_moves(watching: Watch) -> None:
    watching.breaks("holder")
    answer = watching.watch(code=1)
    assert (answer["good"], answer["trials"]) == (False, ["red", "green"])
    assert '"tiny-lib==2.0", "holder==1.0"' in watching.on_branch(f"lockfiles/{TINY}/stack.toml")
    verdict = watching.on_branch(f"watch/{TINY}/verdict.md")
    assert "does not pass the suite" in verdict and "- holder 1.0 → 2.0" in verdict
    assert "**beta** failed: ValueError: no" in verdict
    assert f"uv run --no-project watch/{TINY}/trial-1/reproducer/reproduce.py" in verdict
    assert str(watching.small.root) not in verdict
    assert "holder = " in watching.on_branch(f"watch/{TINY}/trial-1/advisory.toml")
    assert "differs: holder 1.0" in watching.on_branch(f"watch/{TINY}/trial-1/reproducer/reproduce.json")
    assert watching.on_branch(f"watch/{TINY}/trial-1/reproducer/smoke") == "../../../../smoke"
    # The same is not tried twice.
    again = watching.watch(code=1)
    assert (again["trials"], again["outcome"], again["unchanged_since"]) == ([], "red", str(certificate.today()))
    assert (again["branch"], again["commit"], again["subject"]) == (BRANCH, answer["commit"], answer["subject"])


def test_commits_of_somebody_else_on_the_branch_stay(watching: Watch) -> None:
    tree = watching.git("rev-parse", "HEAD^{tree}")
    tip = watching.git("commit-tree", tree, "-p", "HEAD", "-m", "mine")
    watching.git("branch", BRANCH, tip)
    failed = watching.watch(code=1)["failed"]
    assert "has commits that are not watch's" in failed and f"git branch -D {BRANCH}" in failed
    assert watching.git("rev-parse", BRANCH) == tip


def test_a_branch_that_a_killed_watch_left_has_nothing_to_lose(watching: Watch) -> None:
    watching.git("branch", BRANCH)
    assert watching.watch()["branch"] == BRANCH


def test_a_dry_run_makes_nothing(watching: Watch) -> None:
    answer = watching.watch("--dry-run")
    assert [pin["fits"] for pin in answer["newer"]] == ["2.0", "2.0"]
    assert watching.git("branch", "--format=%(refname:short)") == "main"
    assert not (watching.small.project.state / "watch").exists()


def test_without_a_repository_the_next_command_is_named(watching: Watch) -> None:
    (watching.small.root / ".git").rename(watching.small.root / "gone")
    failed = watching.watch(code=1)["failed"]
    assert "is no git repository with a commit" in failed and "vetted outdated" in failed


def test_the_numbers_before_are_those_of_another_engine_where_there_are_no_others(small: Small) -> None:
    """Its times are not: they are of another way to run."""

    def ran(engine: str, value: float, seconds: float) -> Statement:
        loss = {"name": "loss", "unit": "nats", "bound": {"at_most": 1.0}, "headline": True, "value": value}
        probe = ProbeResult.model_validate(
            {"name": "alpha", "outcome": "passed", "measurements": [loss], "seconds": seconds}
        )
        return certificate.read(small.issue(engine, probes=[probe], subject="sha256:" + "1" * 64))

    trial = Recertification(TINY, "green", small.lock, small.lock, statement=ran("host", 0.25, 3.0))
    for certified, row in (
        (ran("docker", 0.5, 7.0), "| alpha | loss | 0.5 nats | 0.25 nats | 3 | 0 |"),
        (ran("host", 0.5, 7.0), "| alpha | loss | 0.5 nats | 0.25 nats | 7 → 3 | 0 → 0 |"),
        (None, "| alpha | loss | none | 0.25 nats | 3 | 0 |"),
    ):
        text = verdict.verdict(small.lock, small.lock, certificate.today(), [], [], [trial], certified)
        assert row in text.splitlines()
        assert ("Times and memory cannot be compared: other engine" in text) is (
            row.endswith("| 3 | 0 |") and "none" not in row
        )


# --- certificates --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "words"),
    [
        (0, None), (LIFETIME.days - 15, None), (LIFETIME.days - 14, "in 14 days: certify again"),
        (LIFETIME.days, "today: certify again"), (LIFETIME.days + 1, "it expired on"),
    ],
)  # fmt: skip
def test_a_certificate_is_reported_before_its_day(small: Small, age: int, words: str | None) -> None:
    small.issue(day=certificate.today() - datetime.timedelta(days=age))
    reported = notices.of(small.project, small.lock, certificate.today())
    assert len(reported) == (words is not None)
    assert words is None or (reported[0].startswith("cpu-host: ") and words in reported[0])


def test_a_damaged_certificate_is_reported_beside_the_others(small: Small) -> None:
    path = small.issue()
    path.with_name("cpu-docker.json").write_text("{")
    (notice,) = notices.of(small.project, small.lock, certificate.today())
    assert notice.startswith("cpu-docker: it is not a certificate of this stack: git checkout ")


def test_a_withdrawn_certificate_and_none_at_all_are_reported(small: Small) -> None:
    assert notices.of(small.project, small.lock, certificate.today()) == ["there is no certificate"]
    small.issue()
    advise(small, certificate.today())
    (notice,) = notices.of(small.project, small.lock, certificate.today())
    assert notice.startswith("cpu-host: withdrawn by VETTED-9001")


# --- pull requests: the forges' programs are stand-ins, because nothing outside of this machine can be reached ------

FORGE = """\
#!/bin/sh
echo "$0 $*" >> "$FORGE_LOG"
case "$2" in
    status) [ -e "$FORGE_LOG.out" ] || exit 0; echo "You are not logged into any GitHub hosts."; exit 1 ;;
    view) [ -e "$FORGE_LOG.open" ] && echo '{"state": "OPEN"}' && exit 0; exit 1 ;;
    *) touch "$FORGE_LOG.open"; echo https://forge.example.org/pull/7 ;;
esac
"""


@pytest.fixture
def forge(watching: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A remote, and a `gh` that writes down how it was called."""
    remote = tmp_path / "github.git"
    subprocess.run([parts.git(), "init", "--quiet", "--bare", str(remote)], check=True)
    watching.git("remote", "add", "origin", str(remote))
    program = tmp_path / "bin" / "gh"
    program.parent.mkdir()
    program.write_text(FORGE.replace("$FORGE_LOG", str(tmp_path / "called")))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "called"


def test_a_request_is_opened_once_and_then_brought_up_to_date(watching: Watch, forge: Path) -> None:
    answer = watching.command(watching.small.root, "watch", TINY, "--engine", "host", "--open")
    assert answer.code == 0, answer.err
    assert answer.out.splitlines()[-1].strip() == "https://forge.example.org/pull/7"
    pushed = subprocess.run(
        [parts.git(), "ls-remote", str(forge.with_name("github.git"))], capture_output=True, text=True, check=True
    ).stdout
    assert pushed == f"{watching.git('rev-parse', BRANCH)}\trefs/heads/{BRANCH}\n"
    assert f"pr create --head {BRANCH} --title {TINY}: holder" in forge.read_text()
    make_wheel(watching.small.wheelhouse, "tiny-lib", "2.1", {"tiny_lib.py": LIBRARY})
    assert watching.command(watching.small.root, "watch", TINY, "--engine", "host", "--open").code == 0
    assert f"pr edit {BRANCH}" in forge.read_text()


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("git@github.com:team/vetted.git", "github.com"),
        ("https://me@github.example.org/team/vetted.git", "github.example.org"),
        ("ssh://git@github.example.org:22/team/vetted.git", "github.example.org"),
        ("github-work:team/vetted.git", ""),
    ],
)
def test_without_a_login_it_fails_before_any_work(watching: Watch, forge: Path, address: str, host: str) -> None:
    watching.git("remote", "set-url", "origin", address)
    forge.with_name("called.out").touch()
    answer = watching.command(watching.small.root, "watch", TINY, "--engine", "host", "--open")
    assert answer.code == 4
    to, option = (f" to {host}", f" --hostname {host}") if host else ("", "")
    assert answer.err.splitlines() == [
        f"vetted: gh is not logged in{to}; nothing is tried without it",
        "usual cause: gh auth status failed: You are not logged into any GitHub hosts.",
        f"next: gh auth login{option}; or vetted watch without --open",
    ]
    assert forge.read_text().endswith(f"/gh auth status{option}\n")
    assert watching.git("branch", "--format=%(refname:short)") == "main"


def test_without_a_program_it_fails_before_any_work(watching: Watch, forge: Path) -> None:
    watching.git("remote", "set-url", "origin", "git@gitlab.example.org:team/vetted.git")
    answer = watching.command(watching.small.root, "watch", TINY, "--engine", "host", "--open")
    assert answer.code == 4
    assert "glab is not installed" in answer.err and not forge.exists()
    assert watching.git("branch", "--format=%(refname:short)") == "main"


def test_a_package_without_a_pin_moves_as_well(watching: Watch) -> None:
    small = watching.small
    small.edit("stack.toml", '"holder==1.0"', '"holder"')
    assert watching.command(small.root, "lock", TINY).code == 0
    assert watching.command(small.root, "certify", TINY, "--engine", "host").code == 0
    watching.commit()
    answer = watching.watch()
    assert (answer["good"], answer["trials"]) == (True, ["green"])
    assert '"tiny-lib==2.0", "holder"' in watching.on_branch(f"lockfiles/{TINY}/stack.toml")
    assert "holder==2.0" in watching.on_branch(f"lockfiles/{TINY}/requirements.txt")


def test_a_stack_that_no_commit_has_is_named_with_the_step(watching: Watch) -> None:
    watching.git("rm", "--quiet", "-r", "--cached", f"lockfiles/{TINY}")
    watching.git("commit", "--quiet", "--message", "without it")
    answer = watching.command(watching.small.root, "watch", TINY, "--engine", "host")
    assert answer.code == 1
    assert f"no commit has lockfiles/{TINY}" in answer.err
    assert f"next: git add lockfiles/{TINY} && git commit" in answer.err
