"""A small project that is certified, and releases that it can move to."""

from __future__ import annotations

from typing import Any

from builder.certify import certificate
from builder.lock import lockfile
from tests.conftest import LIBRARY, TINY, Small, make_wheel, runner
from tests.unit.conftest import Command

SUITE = """\
import importlib.metadata as installed
versions = {name: installed.version(name) for name in ("tiny-lib", "extra") if any(
    (entry.metadata["Name"] or "") == name for entry in installed.distributions())}
say("start", probes=request["probes"] or ["alpha", "beta"], python=sys.version.split()[0])
for probe in request["probes"] or ["alpha", "beta"]:
    PROBE
say("finish")
"""
LOSS = {"name": "loss", "unit": "", "bound": {"at_most": 1.0}, "why": "", "headline": True}


def measured(value: float) -> list[dict[str, Any]]:
    return [{**LOSS, "value": value, "ok": True}]


class Moving:
    """The small project, certified, and the releases that it can move to."""

    def __init__(self, small: Small, command: Command) -> None:
        self.small, self.command = small, command
        for version in ("1.0", "2.0", "3.0", "4.0"):
            needs = {"3.0": ["extra>=1"], "4.0": ["missing>=1"]}.get(version, [])
            make_wheel(small.wheelhouse, "tiny-lib", version, {"tiny_lib.py": LIBRARY}, needs)
        make_wheel(small.wheelhouse, "extra", "1.0", {"extra.py": ""})
        (small.root / "advisories").mkdir()
        assert command(small.root, "lock", TINY).code == 0
        self.suite("end(probe)")
        small.render()
        assert command(small.root, "certify", TINY, "--engine", "host").code == 0

    def suite(self, probe: str) -> None:
        bounds = [LOSS] if "loss" in probe else []
        (self.small.project.smoke / "__main__.py").write_text(runner(*bounds) + SUITE.replace("PROBE", probe))

    def recertify(self, *upgrade: str, code: int = 0) -> Any:
        options = [word for package in upgrade for word in ("--upgrade", package)]
        answer = self.command(self.small.root, "recertify", TINY, "--engine", "host", "--json", *options)
        assert answer.code == code, answer.out + answer.err
        return answer.json

    def committed(self) -> dict[str, bytes]:
        """Every file that git would see, but the suite and the wheels."""
        return {
            str(path.relative_to(self.small.root)): path.read_bytes()
            for folder in ("lockfiles", "images", "docs", "README.md", "advisories")
            for path in [self.small.root / folder, *(self.small.root / folder).rglob("*")]
            if path.is_file()
        }

    def whole(self) -> str:
        """The version that the stack is at; stack.toml, lock and certificate all have to speak of it."""
        lock = self.small.lock
        assert lock.intent == lockfile.intent(lock.stack)
        statement = certificate.read(certificate.path(self.small.project, TINY, "cpu", "host"))
        assert statement.resource("lock").digest == certificate.bare(lock.digest)
        assert lock.stack.requires == [f"tiny-lib=={lock.versions['tiny-lib']}"]
        return lock.versions["tiny-lib"]
