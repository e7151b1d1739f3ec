"""How the processes of a run are started."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from runtime.train.arguments import UsageError
from runtime.train.nodes import Nodes

DEFAULTS = {"mixed_precision": "no", "dynamo_backend": "no"}
ACCELERATE = "accelerate_config"  # an option of TRL: a file, or the name of one of its configs
# Options of accelerate that choose its launcher. Without one it may start a single process.
KINDS = {"cpu", "multi_gpu", "tpu", "use_cpu", "use_deepspeed", "use_fsdp", "use_megatron_lm"}
NODES = "VETTED_NODES"  # for the processes: the number of nodes
PATIENCE = 1800  # seconds for all nodes to come: one may have to fetch the image first


def ranks(settings: Mapping[str, Any], gpus: int, nodes: Nodes) -> int:
    """The number of processes on all nodes: what the config says, else one for each GPU, and one without GPUs.

    Raises UsageError if the nodes cannot have an equal number.
    """
    try:
        number = max(1, int(str(settings.get("num_processes"))))
    except ValueError:
        return (nodes.processes or max(1, gpus)) * nodes.number
    if number % nodes.number:
        raise UsageError(
            f"num_processes is {number}, the number on all {nodes.number} nodes together\n"
            f"next: give a multiple of {nodes.number}"
        )
    return number


def chosen(settings: Mapping[str, Any], flags: Mapping[str, bool]) -> dict[str, str | None]:
    """The settings that are for the launcher, not for the script, as its command line takes them: None for a flag.

    `flags`: the options of `accelerate launch`, and whether each is a flag, which takes no value.
    """
    options: dict[str, str | None] = {}
    for name, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if flags.get(name) is True:
            options |= {name: None} if text.lower() == "true" else {}
        elif (name in flags or name == ACCELERATE) and value is not None:
            options[name] = text
    return options


def kind(settings: Mapping[str, Any] | None, launcher: Mapping[str, str | None], number: int) -> str:
    """What starts the processes: python, torchrun or accelerate.

    `settings`: None for a script of the user's own, which may ask for a process group.
    """
    if set(launcher) - {"num_processes"}:
        return "accelerate"
    grouped = number > 1 or settings is None or settings.get("deepspeed") or settings.get("fsdp")
    return "torchrun" if grouped else "python"


def command(
    module: Sequence[str],
    settings: Mapping[str, Any] | None,
    launcher: Mapping[str, str | None],
    number: int,
    nodes: Nodes,
) -> list[str]:
    """The command that starts the processes of this node, of `number` on all nodes.

    `launcher`: options of `accelerate launch`, and accelerate_config, a file. Without any, torchrun starts the
    processes. One process of a trainer starts without a launcher, unless DeepSpeed or FSDP asks for a process group.
    """
    python = [sys.executable, "-P", "-m"]
    starter = kind(settings, launcher, number)
    if starter == "accelerate":
        words, options = ["accelerate.commands.launch"], _of_accelerate(launcher, number, nodes)
    elif starter == "python":
        return [*python, *module]
    else:
        words, options = ["torch.distributed.run"], _of_torchrun(number, nodes)
    arguments = [word for name, value in options.items() for word in _argument(name, value)]
    return [*python, "runtime.parent", *words, *arguments, "--module", *module]


def _of_torchrun(number: int, nodes: Nodes) -> dict[str, str | None]:
    options: dict[str, str | None] = {"nnodes": str(nodes.number), "nproc_per_node": str(number // nodes.number)}
    if nodes.number == 1:
        return options | {"rdzv_backend": "c10d", "rdzv_endpoint": "127.0.0.1:0"}
    # Not c10d, which numbers the nodes as it likes: rank 0 must be on the node with the folder of the run.
    options |= {"node_rank": str(nodes.rank), "master_addr": nodes.address, "master_port": str(nodes.port)}
    return options | {"rdzv_backend": "static", "rdzv_conf": f"timeout={PATIENCE}"}


def _of_accelerate(launcher: Mapping[str, str | None], number: int, nodes: Nodes) -> dict[str, str | None]:
    options: dict[str, str | None] = {"num_processes": str(number), "num_machines": str(nodes.number)}
    if ACCELERATE in launcher:
        options["config_file"] = launcher[ACCELERATE]
    else:
        options |= DEFAULTS
        options |= {"multi_gpu": None} if number > 1 and not KINDS & set(launcher) else {}
    options |= {name: value for name, value in launcher.items() if name not in ("num_processes", ACCELERATE)}
    options |= {} if nodes.port is None else {"main_process_port": str(nodes.port)}
    if nodes.number == 1:
        return options
    options |= {"machine_rank": str(nodes.rank), "main_process_ip": nodes.address}
    options |= {"same_network": None, "rdzv_backend": "static", "rdzv_conf": f"timeout={PATIENCE}"}
    # The default would reach the other nodes by ssh.
    return {"deepspeed_multinode_launcher": "standard", **options}


def _argument(name: str, value: str | None) -> list[str]:
    return [f"--{name}"] if value is None else [f"--{name}", value]
