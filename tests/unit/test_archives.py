"""Locked files: from where they are fetched, and who is told the index's password."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from builder import archives, errors
from builder.lock import Entry
from builder.resolve import File
from tests.conftest import Small


def fetch(small: Small) -> list[Path]:
    found = archives.fetch(small.project, small.lock.stack, small.lock.python, small.scratch(), lambda _: None)
    return list(found.values())


def test_a_locked_file_is_fetched_once(wheels: Small) -> None:
    (kept,) = fetch(wheels)
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == wheels.lock.python[0].sha256
    for wheel in wheels.wheelhouse.iterdir():
        wheel.unlink()
    assert fetch(wheels) == [kept]


def test_two_files_below_one_hash_are_none(wheels: Small) -> None:
    (kept,) = fetch(wheels)
    (kept.parent / "other.whl").touch()
    assert archives.kept(wheels.project, wheels.lock.python[0]) is None
    assert fetch(wheels) == [kept]
    assert list(kept.parent.iterdir()) == [kept]


def test_a_file_that_is_offered_with_another_hash_only_is_none_of_ours() -> None:
    entry = Entry("tiny-lib", "1.0", "a" * 64)
    offered = [File("tiny-lib", "1.0", "tiny_lib-1.0-py3-none-any.whl", "http://mirror.test/x", "b" * 64)]
    for offers, got in ((offered, f"sha256:{'b' * 64}"), ([], "nothing")):
        with pytest.raises(errors.NetworkError, match=f"got      {got}"):
            archives.of_hash(entry, offers)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://mirror.test/files/x.whl", True),
        ("https://other.test/files/x.whl", False),
        ("http://mirror.test/files/x.whl", False),
        ("https://mirror.test.evil.test/x.whl", False),
    ],
)
def test_the_password_of_the_index_goes_to_its_own_host_only(
    monkeypatch: pytest.MonkeyPatch, url: str, told: bool
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://me:a%40b@mirror.test/simple")
    request = archives._request(url)
    said = f"Basic {base64.b64encode(b'me:a@b').decode()}"
    assert request.get_header("Authorization") == (said if told else None)
    assert "Authorization" not in request.headers  # a redirect takes it nowhere
