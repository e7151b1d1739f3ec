"""A Slurm cluster on this machine: a real slurmctld, two slurmd, and munge, all in one folder."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.registry.server import free_port

NODES = ("n1", "n2")
CONFIGURATION = """\
ClusterName=vetted
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdTimeout=8
JobRequeue=1
SchedulerParameters=sched_interval=2,batch_sched_delay=0,requeue_delay=1
GresTypes=gpu
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=500 Gres=gpu:h200:2"
    " State=UNKNOWN"
)


@dataclass
class Cluster:
    """Its folder, and the daemon of each node."""

    folder: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self, name: str, *argv: str) -> None:
        with (self.folder / f"{name}.out").open("wb") as log:
            self.daemons[name] = subprocess.Popen(
                list(argv), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env={**os.environ, **self.environment}, start_new_session=True,
            )  # fmt: skip

    def ask(self, *argv: str) -> str:
        return subprocess.run(
            list(argv), env={**os.environ, **self.environment}, capture_output=True, text=True, check=False
        ).stdout.strip()

    def wait(self, what: str, *argv: str, expected: str) -> None:
        for _ in range(300):
            if self.ask(*argv) == expected:
                return
            time.sleep(0.2)
        log = (self.folder / "slurmctld.log").read_text()
        raise AssertionError(f"{what}: {self.ask(*argv)!r}, not {expected!r}\n{log}")

    def stop(self, name: str) -> None:
        """A daemon dies; what it started goes on."""
        daemon = self.daemons.pop(name)
        daemon.kill()
        daemon.wait()

    def node_of(self, process: int) -> str:
        """The node that a process runs on: what started it says so."""
        while process > 1:
            for entry in _read(process, "environ").split(b"\0"):
                if entry.startswith(b"SLURMD_NODENAME="):
                    return entry.partition(b"=")[2].decode()
            process = _parent(process)
        raise AssertionError("no job started it")

    def kill(self, node: str) -> None:
        """A node dies with all that runs on it: its daemon, then the daemons of its steps and their processes."""
        self.stop(node)
        own = {f"SLURMD_NODENAME={node}".encode(), f"SLURM_CONF={self.folder}/slurm.conf".encode()}
        processes = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
        job = [process for process in processes if own <= set(_read(process, "environ").split(b"\0"))]
        steps = {parent for process in job if _read(parent := _parent(process), "cmdline").startswith(b"slurmstepd")}
        for process in (*steps, *job):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def revive(self, node: str) -> None:
        self.start(node, "slurmd", "-D", "-N", node, "-f", str(self.folder / "slurm.conf"))


def _read(process: int, file: str) -> bytes:
    try:
        return Path(f"/proc/{process}/{file}").read_bytes()
    except OSError:
        return b""


def _parent(process: int) -> int:
    """The parent of a process; 0 when it has ended."""
    fields = _read(process, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


@contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """Start all daemons; they end with the block."""
    cluster, host = Cluster(folder), socket.gethostname()
    for name in ("state", "munge", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir(parents=True)
    (folder / "munge").chmod(0o711)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    nodes = "\n".join(NODE.format(name=name, host=host, port=free_port()) for name in NODES)
    text = CONFIGURATION.format(folder=folder, host=host, controller=free_port(), nodes=nodes)
    (folder / "slurm.conf").write_text(text)
    for number in range(2):  # what Slurm counts as a GPU is a device file
        os.mknod(folder / f"gpu{number}", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    (folder / "gres.conf").write_text(f"NodeName=n[1-2] Name=gpu Type=h200 File={folder}/gpu[0-1]\n")
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
    own = [f"--{option}={folder}/munge/{name}" for option, name in (
        ("socket", "socket"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))]  # fmt: skip
    try:
        cluster.start("munged", "munged", "--foreground", "--force", f"--key-file={key}", *own)
        cluster.start("slurmctld", "slurmctld", "-D", "-f", str(folder / "slurm.conf"))
        for node in NODES:
            cluster.revive(node)
        cluster.wait("the nodes", "sinfo", "--noheader", "--format=%D %t", expected="2 idle")
        yield cluster
    finally:
        cluster.ask("scancel", "--user=root")
        for daemon in reversed(list(cluster.daemons.values())):
            daemon.terminate()
        for daemon in cluster.daemons.values():
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
