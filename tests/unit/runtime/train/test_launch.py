"""How the processes of a run are started."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from runtime.train import launch
from runtime.train.arguments import UsageError
from runtime.train.nodes import Nodes

ALONE = Nodes()
SECOND = Nodes(2, 1, "gpu1", 29500)


@pytest.mark.parametrize(
    ("settings", "gpus", "nodes", "number"),
    [
        ({}, 0, ALONE, 1),
        ({}, 4, ALONE, 4),
        ({"num_processes": 2}, 4, ALONE, 2),
        ({"num_processes": "2"}, 0, ALONE, 2),
        ({"num_processes": "x"}, 2, ALONE, 2),
        ({}, 4, SECOND, 8),
        ({}, 0, Nodes(2, 1, "gpu1", 29500, processes=3), 6),
        ({"num_processes": 4}, 8, SECOND, 4),  # as accelerate counts: on all nodes together
    ],
)
def test_one_process_for_each_gpu_unless_the_config_says_otherwise(
    settings: dict[str, Any], gpus: int, nodes: Nodes, number: int
) -> None:
    assert launch.ranks(settings, gpus, nodes) == number


def test_processes_that_the_nodes_cannot_share_equally_are_an_error() -> None:
    with pytest.raises(UsageError, match="num_processes is 3, the number on all 2 nodes together\nnext: give a mult"):
        launch.ranks({"num_processes": 3}, 0, SECOND)


@pytest.mark.parametrize(
    ("settings", "launcher", "number", "words"),
    [
        ({}, {}, 1, ["runtime.script grpo"]),
        ({}, {"num_processes": "1"}, 1, ["runtime.script grpo"]),
        ({}, {}, 2, ["torch.distributed.run", "--nproc_per_node 2", "--module runtime.script grpo"]),
        # Without a process group DeepSpeed looks for MPI, even for one process.
        ({"deepspeed": "ds3.json"}, {}, 1, ["torch.distributed.run", "--nproc_per_node 1"]),
        ({"fsdp": "full_shard"}, {}, 1, ["torch.distributed.run", "--nproc_per_node 1"]),
        (
            {},
            {"accelerate_config": "zero3.yaml"},
            2,
            [
                "accelerate.commands.launch",
                "--num_processes 2",
                "--config_file zero3.yaml --module runtime.script grpo",
            ],
        ),
        (
            {},
            {"num_processes": "8", "mixed_precision": "bf16", "use_fsdp": None},
            8,
            ["--num_processes 8", "--num_machines 1", "--mixed_precision bf16", "--use_fsdp --module"],
        ),
        # accelerate starts one process only, on a CPU or with one GPU for each node, unless it is told otherwise.
        ({}, {"mixed_precision": "bf16"}, 2, ["--num_processes 2", "--multi_gpu"]),
    ],
)
def test_the_launcher_is_what_the_config_needs(
    settings: dict[str, Any], launcher: dict[str, str | None], number: int, words: list[str]
) -> None:
    command = launch.command(["runtime.script", "grpo"], settings, launcher, number, ALONE)
    assert command[:3] == [sys.executable, "-P", "-m"]
    for word in words:
        assert word in " ".join(command)
    assert ("runtime.parent" in command) == ("runtime.script grpo" not in words)


@pytest.mark.parametrize(
    ("launcher", "words"),
    [
        (
            {},
            "--nnodes 2 --nproc_per_node 4 --node_rank 1 --master_addr gpu1 --master_port 29500 --rdzv_backend static",
        ),
        ({"accelerate_config": "zero3.yaml"}, "--num_processes 8 --num_machines 2 --config_file zero3.yaml"),
        ({"accelerate_config": "zero3.yaml"}, "--main_process_port 29500 --machine_rank 1 --main_process_ip gpu1"),
        ({"accelerate_config": "zero3.yaml"}, "--deepspeed_multinode_launcher standard"),
        ({"accelerate_config": "a.yaml", "deepspeed_multinode_launcher": "pdsh"}, "deepspeed_multinode_launcher pdsh"),
        ({"mixed_precision": "bf16"}, "--multi_gpu"),
    ],
)
def test_each_node_starts_its_part_and_knows_where_node_0_is(launcher: dict[str, str | None], words: str) -> None:
    assert words in " ".join(launch.command(["runtime.script", "grpo"], {}, launcher, 8, SECOND))


def test_one_process_on_each_node_needs_a_launcher_and_no_second_one() -> None:
    command = launch.command(["runtime.script", "grpo"], {}, {}, 2, SECOND)
    assert "--nproc_per_node 1" in " ".join(command)


def test_a_flag_has_no_value_and_other_options_have_theirs() -> None:
    """accelerate has both kinds for true and false: `--use_fsdp`, and `--fsdp_offload_params false`."""
    flags = {"use_fsdp": True, "use_deepspeed": True, "fsdp_offload_params": False, "num_processes": False}
    settings = {
        "use_fsdp": "true", "use_deepspeed": False, "fsdp_offload_params": False, "num_processes": 2, "beta": 0.1,
        "accelerate_config": "zero3",
    }  # fmt: skip
    assert launch.chosen(settings, flags) == {
        "use_fsdp": None, "fsdp_offload_params": "false", "num_processes": "2", "accelerate_config": "zero3",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "launcher", "number", "kind"),
    [
        (None, {}, 1, "torchrun"),  # a script of the user's own may use DeepSpeed, which needs a process group
        ({}, {}, 1, "python"),
        ({}, {"num_processes": "1"}, 1, "python"),
        ({}, {}, 2, "torchrun"),
        ({"deepspeed": "ds3.json"}, {}, 1, "torchrun"),
        ({}, {"mixed_precision": "bf16"}, 1, "accelerate"),
        ({}, {"accelerate_config": "zero3.yaml"}, 2, "accelerate"),
    ],
)
def test_what_starts_the_processes_has_a_name(
    settings: dict[str, str] | None, launcher: dict[str, str | None], number: int, kind: str
) -> None:
    assert launch.kind(settings, launcher, number) == kind
    argv = launch.command(["script"], settings, launcher, number, ALONE)
    modules = {"python": "script", "torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.launch"}
    assert modules[kind] in argv[3:5]
