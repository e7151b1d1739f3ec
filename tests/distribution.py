"""Which tests one worker runs: those of a file, and of the file whose image they use."""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

# By file, the one that it follows: in the order of their names, as pytest collects them.
FOLLOWS = {"tests/engine/test_docker_compose.py": "tests/engine/test_docker.py"}


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """Distribution by file, but for files that follow another."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return FOLLOWS.get(file, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None
