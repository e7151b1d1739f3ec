"""Which tests one worker runs: those of a file, and of the file whose image or site they use. Long files come first."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

# By file, the one that it follows: in the order of their names, as pytest collects them.
FOLLOWS = {
    f"tests/engine/test_docker_{name}.py": "tests/engine/test_docker.py"
    for name in ("compose", "hub", "into", "nodes", "runtimes", "tutorial")
} | {"tests/engine/site/test_layout.py": "tests/engine/site/test_content.py"}
# A minute and more each, longest first: one that began last would leave the other workers idle until it ends. The
# first two are begun at the same time, and bisection does not wait for the environment that the others share.
LONG = (
    "tests/engine/test_docker.py",
    "tests/engine/test_bisect.py",
    "tests/engine/test_host.py",
    "tests/engine/test_sabotage.py",
    "tests/engine/test_prove.py",
    "tests/engine/test_train.py",
    "tests/engine/test_doctor.py",
    "tests/gpu/test_first_contact.py",
    "tests/engine/test_arm64.py",
    "tests/engine/test_docker_extend.py",
    "tests/engine/test_fleet.py",
    "tests/engine/test_docker_fleet.py",
    "tests/engine/test_bundle.py",
    "tests/engine/test_monitor.py",
    "tests/engine/test_vllm_server.py",
    "tests/engine/site/test_content.py",
    "tests/engine/test_watch.py",
    "tests/engine/test_base.py",
    "tests/engine/test_configs.py",
    "tests/unit/test_kills.py",
    "tests/gpu/test_kernels.py",
    "tests/engine/test_old_torch.py",
    "tests/engine/test_old_trl.py",
    "tests/engine/test_use.py",
)


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """Distribution by file, but for files that follow another; in the order of the collected tests."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # by the number of tests in a file, which says little of its time

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test that a worker died of: it failed, and no other worker dies of it.

        xdist's own gives that test to the next worker, and all files that the dead one had completed: the next worker
        gets one of those, has nothing to run, and waits for ever.
        """
        units = self.assigned_work[node]
        crash = next((test for unit in units.values() for test, completed in unit.items() if not completed), None)
        for unit in units.values():
            unit.update({crash: True} if crash in unit else {})
        self.assigned_work[node] = {name: unit for name, unit in units.items() if not all(unit.values())}
        super().remove_node(node)
        return crash

    def _split_scope(self, nodeid: str) -> str:
        return scope(super()._split_scope(nodeid))


def scope(file: str) -> str:
    """The file whose worker runs a file."""
    return FOLLOWS.get(file, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests of long files first; those of a file stay together, and in their order."""

    def place(item: pytest.Item) -> int:
        file = scope(Path(item.path).relative_to(config.rootpath).as_posix())
        return LONG.index(file) if file in LONG else len(LONG)

    items.sort(key=place)
