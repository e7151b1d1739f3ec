"""The process of one probe, forked from the zygote: it runs the probe, writes the results to files and exits."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import resource
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

from smoke import probe
from smoke.run import gpus, linux, ranks
from smoke.run.job import Job

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")  # the ports that the kernel assigns by itself
PORT_TRIES = 100


def become(job: Job, zygote: int) -> NoReturn:
    """Turn this process, just forked by process `zygote`, into the one that runs `job`. Does not return."""
    status = 1
    try:
        os.setsid()
        linux.die_with_parent(zygote)
        _redirect(job)
        # The runner asks for all stacks before it kills a hanging probe, so that the log shows where it hangs.
        faulthandler.enable(all_threads=True)
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir(job.work)
        # For a single process too: TRL makes it a group of one, by default at the same port in every run.
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
        if job.gpus is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = job.gpus
        status = _run(job, 0) if job.ranks == 1 else ranks.run(job, _run)
    except BaseException:
        traceback.print_exc()
    finally:
        _exit(status)


def _redirect(job: Job) -> None:
    log = os.open(job.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(log)
    os.close(null)


def free_port() -> int:
    """A free port that the kernel does not assign to others before it is used, seconds later."""
    first = int(EPHEMERAL.read_text(encoding="ascii").split()[0])
    # If the kernel assigns all ports, it also has to choose this one: port 0 means that.
    ports = range(max(1024, first // 2), first) or range(1)
    draw = random.SystemRandom()  # several suites with the same seed may run side by side
    for _ in range(PORT_TRIES):
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind(("", draw.choice(ports)))
            port: int = sock.getsockname()[1]
            return port
    raise OSError(f"no free port in {PORT_TRIES} tries from {ports[0]} to {ports[-1]}")


def _run(job: Job, rank: int) -> int:
    """Run the probe as `rank` and return the process's exit status."""
    try:
        random.seed(job.seed)
        file = probe.load(Path(job.file))
        on_gpu = job.device == "cuda" and file.probe.gpus > 0 and not file.probe.forks
        use = gpus.Use(rank) if on_gpu else None
        start = time.monotonic()
        context = probe.Context(job.device, job.seed, job.work, job.distributions, rank, job.ranks)
        for reading in file.run(context):
            value = float(reading.value)
            job.append(rank, {"reading": reading.name, "value": repr(value), "detail": reading.detail})
            sys.stdout.write(f"smoke: {reading.name} = {value:g} {reading.detail}\n")  # one write: ranks share the log
        if use is not None:
            use.require()
        job.append(rank, {"done": True, "seconds": time.monotonic() - start})
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except probe.NotApplicable as reason:
        job.append(rank, {"not_applicable": str(reason)})
        return 1
    except BaseException as error:
        traceback.print_exc()
        job.append(rank, {"failure": "".join(traceback.format_exception_only(type(error), error)).strip()})
        return 1
    return 0


def _exit(status: int) -> NoReturn:
    # Not sys.exit: it would run the exit handlers of the zygote's packages in a process that lacks their threads.
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status & 0xFF)
