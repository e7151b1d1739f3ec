"""Publishing to a real registry: what is up afterwards, what is refused, and that a tag is never wrong."""

from __future__ import annotations

from builder import registry
from builder.registry import Repository
from tests.conftest import TINY
from tests.registry.conftest import Keys, Stack
from tests.unit.conftest import Command


def test_what_is_published_verifies(command: Command, certified: Stack, repository: Repository, keys: Keys) -> None:
    done = command(
        certified.root, "publish", TINY, "--registry", str(repository), "--key", str(keys.private), "--json"
    )
    assert done.code == 0, done.err
    assert registry.resolve(repository, TINY) == certified.image
    verified = command(certified.root, "verify", f"{repository}:{TINY}", "--key", str(keys.public))
    print(verified.out)
    assert verified.code == 0, verified.out + verified.err
