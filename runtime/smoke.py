"""`vetted smoke`: runs the suite, mounted at /suite, on this machine. A line per probe; it issues no certificate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from runtime import preflight

SUITE = Path("/suite")
NO_GPU = "GPU(s), found 0"  # the end of the reason for which the suite did not run a probe


def main(probes: Sequence[str]) -> int:
    if not (SUITE / "smoke" / "__main__.py").is_file():
        print("vetted: the suite is not mounted at /suite\nnext: docker compose run smoke", file=sys.stderr)
        return 3
    stack = json.loads(Path("/", preflight.STACK).read_text(encoding="utf-8"))
    request = {
        "device": "cuda" if preflight.cuda(stack["distributions"]) else "cpu",
        "probes": list(probes) or None,
        "distributions": stack["distributions"],
        "memory_mib": memory_mib(),
    }
    failures = missing = 0
    # As the tool does it: the supervisor runs in an isolated interpreter, the probes in the stack's.
    command = [sys.executable, "-I", "-S", str(SUITE / "smoke" / "__main__.py"), "--python", sys.executable]
    environment = {**os.environ, "PYTHONPATH": ""}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(json.dumps(request) + "\n")
        child.stdin.flush()  # and stays open: the runner ends when it is closed
        for line in child.stdout:
            event = json.loads(line)
            if event["event"] != "end":
                continue
            failures += event["outcome"] not in ("passed", "not-run")
            missing += event["outcome"] == "not-run" and (event.get("reason") or "").endswith(NO_GPU)
            reason = "" if event["outcome"] == "passed" else f"  {(event.get('reason') or '').splitlines()[0]}"
            print(f"{event['probe']:<24} {event['outcome']:<8} {event['seconds']:7.1f} s{reason}", flush=True)
        code = child.wait()
    if failures:
        print(f"{failures} failed", file=sys.stderr)
    if missing:
        print(f"no GPU is visible, so {missing} did not run\nnext: docker compose run preflight", file=sys.stderr)
    return 1 if failures or missing else code


def memory_mib(cgroup: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """The memory that a probe may use: this container's, or else the machine's, less what the machine itself needs."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    with suppress(OSError, ValueError):  # "max" where there is no limit
        total = min(total, int(cgroup.read_text(encoding="ascii")) // 2**20)
    return max(total - 2048, total * 3 // 4)
