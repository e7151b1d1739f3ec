"""Which nodes a run has, by options and environment."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.train import nodes
from runtime.train.arguments import UsageError
from runtime.train.nodes import Nodes

TORCHRUN = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "a", "PET_MASTER_PORT": "1234"}
SRUN = {
    "SLURM_NNODES": "4", "SLURM_STEP_NUM_NODES": "3", "SLURM_STEP_NUM_TASKS": "3", "SLURM_NODEID": "2",
    "SLURM_STEP_NODELIST": "gpu[07-09]",
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "environ", "expected"),
    [
        ({}, {}, Nodes()),
        # What batch systems and shells leave in the environment of a run on one node.
        ({}, {"MASTER_ADDR": "a", "NODE_RANK": "1", "SLURM_NNODES": "4", "SLURM_NODEID": "0"}, Nodes()),
        ({}, {"MASTER_PORT": "tcp://10.0.0.7:6379"}, Nodes()),  # of Kubernetes, for a service of the name master
        ({}, TORCHRUN, Nodes(2, 1, "a", 1234)),
        ({}, TORCHRUN | {"PET_NPROC_PER_NODE": "8"}, Nodes(2, 1, "a", 1234, 8)),
        ({}, TORCHRUN | {"PET_NPROC_PER_NODE": "auto"}, Nodes(2, 1, "a", 1234)),
        ({}, {"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "b"}, Nodes(2, 0, "b", 29500)),
        ({}, SRUN, Nodes(3, 2, "gpu07", 29500)),
        ({}, SRUN | {"MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "20123"}, Nodes(3, 2, "10.0.0.7", 20123)),
        ({"num_machines": "1"}, SRUN, Nodes()),
        ({"num_machines": 1, "main_process_port": 0}, TORCHRUN, Nodes(port=0)),
        (
            {"num_machines": "2", "machine_rank": "1", "main_process_ip": "c", "main_process_port": "5"},
            {"NODE_RANK": "0"},
            Nodes(2, 1, "c", 5),
        ),
    ],
)
def test_the_nodes_are_those_of_the_options_then_of_torchrun_then_of_slurm(
    options: dict[str, Any], environ: dict[str, str], expected: Nodes
) -> None:
    assert nodes.of(options.get, environ) == expected


FILE = {"num_machines": 2, "machine_rank": 1, "main_process_ip": "d", "main_process_port": None, "num_processes": 8}


@pytest.mark.parametrize(
    ("environ", "file", "expected"),
    [
        ({}, FILE, Nodes(2, 1, "d", 29500)),
        ({"NNODES": "3", "NODE_RANK": "2"}, FILE, Nodes(3, 2, "d", 29500)),
        # TRL's own file says 1 and 0 to everyone, and so it says nothing.
        ({"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "a"}, {"num_machines": 1}, Nodes(2, 1, "a", 29500)),
    ],
)
def test_a_file_of_accelerate_names_the_nodes_where_nothing_else_does(
    environ: dict[str, str], file: dict[str, Any], expected: Nodes
) -> None:
    assert nodes.of(lambda _: None, environ, file) == expected


def test_the_rank_of_trls_own_file_is_not_that_of_a_node() -> None:
    with pytest.raises(UsageError, match="nothing says which one this is"):
        nodes.of(lambda _: None, {"NNODES": "2", "MASTER_ADDR": "a"}, {"num_machines": 1, "machine_rank": 0})


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"NNODES": "two"}, "NNODES is 'two'\nnext: give a whole number, 1 or more"),
        ({"PET_NNODES": "1:4"}, "PET_NNODES is '1:4'"),
        ({"NNODES": "0"}, "NNODES is '0'"),
        ({"NNODES": "9" * 5000}, "give a whole number"),
        ({"NNODES": "2", "MASTER_ADDR": "a"}, "nothing says which one this is\nnext: set NODE_RANK on each"),
        ({"NNODES": "2", "MASTER_ADDR": "a", "NODE_RANK": "2"}, "NODE_RANK is 2, and 2 nodes count from 0 to 1"),
        ({"NNODES": "2", "NODE_RANK": "0"}, "nothing says where node 0 is\nnext: set MASTER_ADDR on each"),
        (SRUN | {"SLURM_STEP_NUM_TASKS": "24"}, "srun started 24 tasks on 3 nodes"),
    ],
)
def test_what_does_not_name_the_nodes_is_said_with_the_next_step(environ: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as error:
        nodes.of(lambda _: None, environ)
    assert words in str(error.value)
