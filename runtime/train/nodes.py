"""The nodes of a run: how many there are, which one this is, and where node 0 is.

Options of `accelerate launch` say it, or the environment: variables of torchrun, which Kubeflow sets, those that
torchrun's documentation uses, and those of `srun`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.train.arguments import UsageError

NUMBER, RANK, ADDRESS, PORT = "num_machines", "machine_rank", "main_process_ip", "main_process_port"
# They say where a run runs, and differ from node to node: no config of a run has them.
OPTIONS = (NUMBER, RANK, ADDRESS, PORT)
# Option -> the variables that say the same. The first that is set counts.
VARIABLES = {
    NUMBER: ("PET_NNODES", "NNODES", "SLURM_STEP_NUM_NODES"),
    RANK: ("PET_NODE_RANK", "NODE_RANK", "SLURM_NODEID"),
    ADDRESS: ("PET_MASTER_ADDR", "MASTER_ADDR"),
    PORT: ("PET_MASTER_PORT", "MASTER_PORT"),
}
PROCESSES = "PET_NPROC_PER_NODE"
TASKS = "SLURM_STEP_NUM_TASKS"
NODE_LIST = "SLURM_STEP_NODELIST"
DEFAULT_PORT = 29500  # torchrun's
WHOLE = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class Nodes:
    """`port`: None for any, on a node that is alone. `processes`: of each node, where the environment says it."""

    number: int = 1
    rank: int = 0
    address: str = ""
    port: int | None = None
    processes: int | None = None


def of(options: Callable[[str], Any], environ: Mapping[str, str], file: Mapping[str, Any] | None = None) -> Nodes:
    """The nodes by option, else by environment, else by a file of accelerate. Raises UsageError.

    `options`: option -> its value, or None. `file`: what it says counts if it has several nodes.
    """
    described = {name: file[name] for name in OPTIONS if name in file} if file and _several(file) else {}

    def setting(option: str) -> tuple[str, str]:  # where it is set, and the text
        if (value := options(option)) is not None:
            return f"--{option}", str(value)
        name = next((name for name in VARIABLES[option] if environ.get(name)), "")
        if not name and described.get(option) is not None:
            return f"{option} in accelerate_config", str(described[option])
        return name, environ.get(name, "")

    each = environ.get(PROCESSES, "")
    processes = int(each) if WHOLE.fullmatch(each) and int(each) else None  # it may be "auto" or "gpu"
    number = _whole(*setting(NUMBER), 1) if setting(NUMBER)[1] else 1
    source, text = setting(PORT)
    if number == 1 and not source.startswith("--"):
        return Nodes(processes=processes)  # Kubernetes sets MASTER_PORT for a service of the name master, to an address
    port = _whole(source, text, 0) if text else None
    if number == 1:
        return Nodes(port=port, processes=processes)
    if setting(NUMBER)[0].startswith("SLURM") and environ.get(TASKS, str(number)) != str(number):
        raise UsageError(
            f"srun started {environ[TASKS]} tasks on {number} nodes, and each would be a run\n"
            "next: srun --ntasks-per-node=1: each starts the processes of its node"
        )
    source, text = setting(RANK)
    if not text:
        raise UsageError(f"the run has {number} nodes, and nothing says which one this is\nnext: set NODE_RANK on each")
    if (rank := _whole(source, text, 0)) >= number:
        raise UsageError(f"{source} is {rank}, and {number} nodes count from 0 to {number - 1}")
    address = setting(ADDRESS)[1] or _first(environ.get(NODE_LIST, ""))
    if not address:
        raise UsageError(f"the run has {number} nodes, and nothing says where node 0 is\nnext: set MASTER_ADDR on each")
    return Nodes(number, rank, address, port or DEFAULT_PORT, processes)


def _several(file: Mapping[str, Any]) -> bool:
    """TRL's own files have num_machines: 1 and machine_rank: 0, which say nothing of the nodes of a run."""
    return str(file.get(NUMBER, 1)) not in ("0", "1")


def _whole(source: str, text: str, least: int) -> int:
    if not WHOLE.fullmatch(text) or int(text) < least:
        raise UsageError(f"{source} is {text!r}\nnext: give a whole number, {least} or more")
    return int(text)


def _first(hosts: str) -> str:
    """The first of Slurm's list of nodes: "gpu[07-09,12],cpu1" begins with gpu07."""
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", hosts).partition(",")[0]
