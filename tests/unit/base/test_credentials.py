"""Which host is told which password."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.base import credentials


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two private indexes on one host, a third with its password in the URL, and a netrc file."""
    indexes = "team-a=https://packages.test/a/simple team.b=https://packages.test/b/simple"
    monkeypatch.setenv("UV_INDEX", f"{indexes} open=https://open.test/simple")
    for name, user in {"TEAM_A": "alice", "TEAM_B": "bob"}.items():
        monkeypatch.setenv(f"UV_INDEX_{name}_USERNAME", user)
        monkeypatch.setenv(f"UV_INDEX_{name}_PASSWORD", f"{user}-secret")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "corp=https://me:a%40b@mirror.test/simple")
    netrc = tmp_path / "netrc"
    netrc.write_text("machine netrc.test login carol password carol-secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))


@pytest.mark.parametrize(
    ("url", "known"),
    [
        ("https://packages.test/a/files/x.whl", ("alice", "alice-secret")),
        ("https://packages.test/b/files/x.whl", ("bob", "bob-secret")),
        ("https://mirror.test/files/x.whl", ("me", "a@b")),
        ("https://netrc.test/x.whl", ("carol", "carol-secret")),
        ("http://netrc.test/x.whl", None),
        ("http://packages.test/a/x.whl", None),
        ("https://packages.test.evil.test/a/x.whl", None),
        ("https://open.test/x.whl", None),
    ],
)
def test_a_password_goes_to_the_host_of_its_index(url: str, known: tuple[str, str] | None) -> None:
    assert credentials.of(url) == known


def test_a_netrc_file_that_cannot_be_read_knows_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("nonsense {")
    assert credentials.of("https://netrc.test/x.whl") is None
    monkeypatch.setenv("NETRC", str(tmp_path / "gone"))
    assert credentials.of("https://netrc.test/x.whl") is None
