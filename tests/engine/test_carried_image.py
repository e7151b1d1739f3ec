"""An image on a host without Docker and without a network: put together, entered by chroot, certified.

The image has the stack's base and an empty environment: this is about the way, and not about the stack.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from builder.base import machine
from builder.bundle import bundle, destination, inside, interpreter, routes
from builder.bundle.bundle import Request
from builder.certify import certificate, judgement
from builder.image import oci, target
from builder.image.build import Built
from builder.lock import debian as debs
from tests import layouts, parts
from tests.engine.conftest import Workshop, copy_of_project
from tests.engine.interruption import processes
from tests.engine.test_bundle import Host

# What a program finds inside: the user, the rights, the network and the files are as in Docker.
INSIDE = '''\
"""Is this the inside of the image, and no more than that?"""
from smoke.probe import Bound, Probe, Reading

PROBE = Probe(matters="", bounds=(Bound("faults", "it must", equals=0, headline=True),), links=())

def run(context):
    import os, socket
    from pathlib import Path
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    faults = {
        "another user": os.getuid() != 1000,
        "rights": int(status["CapEff"], 16) != 0,
        "rights to come": int(status["CapBnd"], 16) & ~sum(1 << number for number in (0, 1, 5, 6, 7, 19)) != 0,
        "new rights": status["NoNewPrivs"].strip() != "1",
        "a network": [name for _, name in socket.if_nameindex()] != ["lo"],
        "files of the host": Path("/etc/hostname").exists(),
        "processes of the host": len([name for name in os.listdir("/proc") if name.isdigit()]) > 20,
        "another system": not Path("/etc/debian_version").read_text().startswith("12"),
    }
    for path in ("/opt/venv/x", "/vetted/x", "/x"):
        try:
            Path(path).touch()
        except OSError as error:
            faults[f"{path} can be written"] = error.errno not in (13, 30)
        else:
            faults[f"{path} can be written"] = True
    Path("/tmp/x").touch()
    Path("/dev/shm/x").touch()
    Path("/dev/null").write_text("x")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
    for name in ("localhost", socket.gethostname()):
        try:
            faults[f"{name} is elsewhere"] = socket.gethostbyname(name) != "127.0.0.1"
        except OSError:
            faults[f"{name} has no address"] = True
    print([name for name, true in faults.items() if true])
    yield Reading("faults", sum(faults.values()))
'''


def environment() -> bytes:
    """The layer of an empty environment."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        link = tarfile.TarInfo("opt/venv/bin/python")
        link.type, link.linkname = tarfile.SYMTYPE, "/usr/bin/python3.11"
        archive.addfile(link)
        config = tarfile.TarInfo("opt/venv/pyvenv.cfg")
        config.size = len(b"home = /usr/bin\n")
        archive.addfile(config, io.BytesIO(b"home = /usr/bin\n"))
    return stream.getvalue()


def debian(workshop: Workshop, root: Path) -> bytes:
    """The layer of a small Debian: the stack's Python, what it links to, and the C library."""
    home, lock = workshop.project, workshop.lock
    with home.holding(lock.name) as scratch:
        packages = set(interpreter.packages(home, lock, scratch).values())
        packages |= set(debs.fetch(home, lock, scratch, ("libc6", "base-files")).values())
    for package in packages:
        subprocess.run(["dpkg-deb", "--extract", str(package), str(root)], check=True)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.add(root, ".")
    return stream.getvalue()


@pytest.fixture
def built(tmp_path: Path) -> tuple[Workshop, Built]:
    parts.root()
    parts.programs("unshare")
    workshop = copy_of_project(tmp_path / "project")
    workshop.keep_probes()
    (workshop.project.smoke / "probes" / "inside.py").write_text(INSIDE)
    home, lock = workshop.project, workshop.lock
    config = {"config": {"Env": ["PATH=/opt/venv/bin:/usr/bin", "HOME=/home/vetted"]}}
    image = layouts.write(tmp_path / "layout", (debian(workshop, tmp_path / "debian"), environment()), config)
    inputs = target.inputs_of(home, lock)
    return workshop, Built(image, target.tag(lock, inputs), "0.1", inputs)


def driver(folder: Path) -> Path:
    """The libraries of a driver, beside another one."""
    parts.programs("gcc", how="apt-get install gcc libc6-dev")
    folder.mkdir()
    (folder / "driver.c").write_text("int version(void) { return 580; }\n")
    argv = ["gcc", "-shared", "-fPIC", "-o", str(folder / "libcuda.so.580"), str(folder / "driver.c")]
    subprocess.run(argv, check=True)
    (folder / "libcuda.so.1").symlink_to("libcuda.so.580")
    for name in ("libnvidia-ml.so.1", "libother.so.1"):
        (folder / name).touch()
    return folder


def inside_with_gpu(root: Path, libraries: Path, suite: Path) -> str:
    """What a program in the image finds of the driver."""
    program = (
        "import ctypes, os; "
        "print(*sorted(name for name in os.listdir('/run/driver') if name != 'libcuda.so.580'), "
        "ctypes.CDLL('libcuda.so.1').version())"
    )
    order = {
        "root": str(root), "suite": str(suite), "gpu": True, "shm": "1m", "environment": {}, "capabilities": [],
        "argv": ["/usr/bin/python3.11", "-I", "-c", program],
    }  # fmt: skip
    argv = [*inside.NAMESPACES, sys.executable, "-I", "-S", str(inside.SCRIPT), json.dumps(order)]
    environ = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_image_is_put_together_from_the_hosts_files_and_earns_its_certificate(
    built: tuple[Workshop, Built], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop, image = built
    python = tmp_path / "host" / "bin" / "python"
    subprocess.run([machine.uv_binary(), "venv", "--quiet", "--no-project", str(tmp_path / "host")], check=True)
    (packages,) = (tmp_path / "host").glob("lib/python*/site-packages")
    (packages / "theirs-1.0.dist-info").mkdir()  # files are looked for where distributions are installed
    present = {}
    with oci.tar(image.image.layout, image.image.layers[0]) as archive:
        for number, member in enumerate(archive):
            if member.isreg() and member.size > 1 << 20 and (content := archive.extractfile(member)):
                data = content.read()
                (packages / f"{number}").write_bytes(data)
                present[hashlib.sha256(data).hexdigest()] = len(data)
    monkeypatch.setattr(routes, "image", lambda *_, **__: image)
    home, lock, carried = workshop.project, workshop.lock, tmp_path / "carried"
    with home.holding(lock.name) as scratch:
        result = bundle.make(home, lock, Request(None, present, "image"), carried, scratch, 50 << 20, lambda _: None)
    assert result.route == "image"

    host, to = Host(python, carried), tmp_path / "to"
    umask = os.umask(0o077)  # of a hardened host: what root makes there is still for the probes' user
    try:
        code, out, err = host.run(to, "--json")
    finally:
        os.umask(umask)
    log = (to / "results" / "events.jsonl").read_text() if (to / "results").exists() else ""
    assert code == 0, out + err + log
    statement = certificate.read(Path(json.loads(out)["file"]))
    assert statement.subject[0].digest == certificate.bare(image.image.manifest)
    assert (statement.resource("engine").annotations or {})["name"] == "chroot"
    assert statement.predicate.passedTests == ["inside"]
    terms = judgement.terms(home, lock)
    assert judgement.doubts(statement, terms, image.image.manifest) == []
    other = replace(terms, lock=replace(lock, digest=f"sha256:{'0' * 64}"))
    assert judgement.doubts(statement, other, image.image.manifest) != []
    assert processes(to) == []
    assert str(to) not in Path("/proc/mounts").read_text()

    # With a GPU, the driver's libraries lie inside, and nothing else of their folder.
    (root,) = (to / "image").glob("*[!l]")
    assert inside_with_gpu(root, driver(tmp_path / "driver"), tmp_path) == "libcuda.so.1 libnvidia-ml.so.1 580"

    # What lies there is used again, unless somebody changed it; then it is made anew.
    (name,) = (to / "image").glob("*[!l]/etc/debian_version")
    name.write_text("13\n")
    code, out, err = host.run(to, "--json")
    assert code == 0, out + err
    assert name.read_text().startswith("12")


def test_a_host_whose_root_may_not_mount_is_told_the_other_route(
    built: tuple[Workshop, Built], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop, image = built
    monkeypatch.setattr(routes, "image", lambda *_, **__: image)
    home, lock, carried = workshop.project, workshop.lock, tmp_path / "carried"
    with home.holding(lock.name) as scratch:
        bundle.make(home, lock, Request(route="image"), carried, scratch, 500 << 20, lambda _: None)
    argv = [sys.executable, str(carried / destination.ENTRY), "--to", str(tmp_path / "to")]
    done = subprocess.run(["setpriv", "--bounding-set=-sys_admin", *argv], capture_output=True, text=True, check=False)
    assert (done.returncode, "--route host" in done.stderr) == (4, True), done.stderr
    assert "Traceback" not in done.stderr
