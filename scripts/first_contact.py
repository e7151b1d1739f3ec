"""The suite on a borrowed machine that has a GPU, its own Python and no network: what a short visit can bring back.

    python3 scripts/first_contact.py look --out OUT                          # seconds: what the machine has
    python3 scripts/first_contact.py run --out OUT --wheels W --background   # the suite, with these wheels as well
    python3 scripts/first_contact.py status --out OUT --wait 500 --pack F    # how far it is; all of OUT in one file F

`look` first: scripts/first_contact_wheels.py then collects the wheels that the machine lacks. `run` writes each event
as it comes: a visit that ends early loses nothing, and the same command goes on with the probes that have not ended.
All need the standard library only. What comes back is a report: the machine's packages are not a lock's, so it earns no
certificate. `vetted bundle --have OUT` can earn one.
Exit codes: 0 no probe is red - 1 one is, or the run ended early - 2 usage - 3 it has not ended - 4 no GPU is visible -
6 disk or permission.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

if not __package__:  # started as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from builder.base import sources
from builder.bundle.unbundle.stop import INTERRUPTED, NO, STORAGE, UNFIT, StopError, say
from runtime.smoke import memory_mib
from scripts import first_contact_machine as machine
from scripts import first_contact_work as work
from smoke import probe

ROOT = Path(__file__).resolve().parents[1]
SUITE_LOG = "suite.log"


def main() -> int:
    options = _options()
    try:
        if options.command == "status":
            code = work.status(options.out, options.wait)
        else:
            options.out.mkdir(parents=True, exist_ok=True)
            code = run(options) if options.command == "run" else look(options.out)
    except StopError as error:
        say(error.text)
        code = error.code
    if options.command != "run" and options.pack and options.out.is_dir():
        work.pack(options.out, options.pack)
    return code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (("look", "what the machine has"), ("run", "the suite"), ("status", "how far a run is")):
        command = commands.add_parser(name, help=what, allow_abbrev=False)
        command.add_argument("--out", type=Path, required=True, help="the folder that comes back")
        if name != "run":
            command.add_argument("--pack", type=Path, metavar="FILE", help="write all of OUT into this .tar.gz")
        if name == "status":
            command.add_argument(
                "--wait", type=float, default=0, metavar="SECONDS", help="for the end, at most so long"
            )
        if name == "run":
            command.add_argument("--wheels", type=Path, help="a folder of wheels that go before the machine's packages")
            command.add_argument(
                "--probe", action="append", dest="probes", choices=sorted(probe.discover()), metavar="PROBE",
                help="only these; may be repeated",
            )  # fmt: skip
            command.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
            command.add_argument("--background", action="store_true", help="return at once; ask with status")
            command.add_argument("--lock", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def look(out: Path) -> int:
    """What the machine has, to the last file of its packages."""
    machine.look(out)
    machine.write_files(out)
    return 0


# --- the suite -----------------------------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> int:
    """Run what has not ended yet, in this Python; 0 when none of the probes that are asked for is red."""
    out: Path = options.out
    if options.device == "cuda" and (what := machine.no_gpu()):
        machine.look(out)  # it tells why
        raise StopError(
            UNFIT, what, "the machine or the container was started without a GPU", "nvidia-smi; or --device cpu"
        )
    lock = work.hold(out) if options.lock is None else options.lock
    if options.background:
        work.background(out, lock, sys.argv[1:])
        return 0
    machine.look(out)
    site = out.resolve().with_name(f"{out.resolve().name}.site")
    if options.wheels is not None:
        unpack(options.wheels, site)
    probes = options.probes or list(probe.discover())
    carried = sorted(path.name.removesuffix(".dist-info") for path in site.glob("*.dist-info"))
    identity = {"suite": sources.digest(ROOT / "smoke"), "device": options.device, "python": sys.version}
    work.begin(out, {**identity, "carried": carried, "probes": probes})
    settled = work.settled(out)
    left = [name for name in probes if name not in settled]
    if len(left) < len(probes):
        print(f"{len(probes) - len(left)} of {len(probes)} probes have ended before", flush=True)
    status = suite(out, site, options.device, left) if left else 0
    ends = work.ends(out)
    if without := [name for name in probes if name not in ends]:
        print(f"not run: {', '.join(without)}; see {out / SUITE_LOG}", flush=True)
    failed = [name for name in probes if name in ends and ends[name]["outcome"] not in work.GOOD]
    print(f"failed: {', '.join(failed) or 'none'}", flush=True)
    code = NO if failed or without or status else 0
    work.end(out, code)
    return code


def suite(out: Path, site: Path, device: str, probes: list[str]) -> int:
    """Run probes, and write their events to events.jsonl. Returns the suite's exit status."""
    command = [sys.executable, "-I", "-S", str(ROOT / "smoke" / "__main__.py"), "--python", sys.executable]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    with (
        (out / work.EVENTS).open("a") as events,
        (out / SUITE_LOG).open("ab") as log,
        subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as child,
    ):
        assert child.stdin is not None and child.stdout is not None
        # A probe may use what this machine has, and not only what the smallest machine has that it was written for.
        request = {"device": device, "probes": probes, "memory_mib": memory_mib()}
        child.stdin.write(json.dumps(request) + "\n")
        child.stdin.flush()  # and stays open: the suite ends when it is closed
        for line in child.stdout:
            events.write(line)
            events.flush()
            event = json.loads(line)
            if event["event"] == "end":
                reason = (event["reason"] or "").partition("\n")[0][:200]
                print(f"{event['probe']:<24} {event['outcome']:<8} {event['seconds']:7.1f} s  {reason}", flush=True)
    return child.returncode


def unpack(wheels: Path, site: Path) -> None:
    """Unpack wheels into a folder of the import path: scripts and data, which the suite does not need, stay behind."""
    site.mkdir(exist_ok=True)
    for wheel in sorted(wheels.rglob("*.whl")):
        done = site / f".{wheel.name}"
        if not done.exists():
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)
            done.touch()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        say(f"{error.filename or 'a file'}: {error.strerror or error}\nnext: free some space, or name another folder")
        sys.exit(STORAGE)
    except KeyboardInterrupt:
        say("interrupted; the same command continues where it stopped")
        sys.exit(INTERRUPTED)
