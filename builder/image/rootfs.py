"""The root filesystem: the base layer, made offline from the locked Debian packages.

It is made from the verified files alone, so it records no mirror and is the same byte for byte on every machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from builder.base import errors, process, seal
from builder.base.project import Project, sha256, sha256_file
from builder.lock import debian
from builder.lock.apt import plain_path
from builder.lock.lockfile import Entry, Lock

# Programs that switch the user or log one in. Essential packages bring most of them; the others are listed so that no
# later package adds them unnoticed. A training container needs none.
UNWANTED = (
    "su", "runuser", "newgrp", "sg", "login", "sulogin", "agetty", "getty", "logoutd", "sudo", "pkexec",
    "passwd", "chpasswd", "gpasswd", "chgpasswd", "chsh", "chfn", "chage", "expiry", "newuidmap", "newgidmap",
    "mount", "umount", "wall", "write", "bsd-write", "crontab", "ssh-agent", "at",
    "unix_chkpwd", "unix_update", "pam_timestamp_check", "pam_namespace_helper", "mkhomedir_helper", "pwhistory_helper",
    "faillock", "faillog", "lastlog", "last", "lastb", "lslogins", "utmpdump",
)  # fmt: skip
DOCUMENTS = ("doc", "man", "info", "locale")  # folders of /usr/share that are left out, but for copyrights
# The version of the recipe below. Raise it when the recipe changes: the same packages then make other bytes.
RECIPE = 3


def make(project: Project, lock: Lock, scratch: Path, *, fresh: bool = False) -> Path:
    """The root filesystem of the locked packages, as a tar file below the state.

    One that was made before is used again while its seal holds, unless `fresh`. Raises NetworkError when a package
    cannot be downloaded, else the error that fits what mmdebstrap printed.
    """
    packages = [f"{entry.name}={entry.version} {entry.sha256}" for entry in lock.debian]
    identity = sha256("\n".join([*packages, str(lock.epoch), str(RECIPE)]).encode())
    target = project.state / "rootfs" / f"{identity.removeprefix('sha256:')}.tar"
    sealed, content = target.with_suffix(".seal"), f"root filesystem of {identity}"
    if target.is_file() and not fresh and seal.intact(sealed, content, sha256_file(target)):
        return target
    _repository(debian.fetch(project, lock, scratch), scratch / "repository")
    with plain_path(scratch) as folder:
        _mmdebstrap(folder / "rootfs.tar", folder / "repository", lock, folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    sealed.unlink(missing_ok=True)
    (scratch / "rootfs.tar").replace(target)
    seal.put(sealed, content, sha256_file(target), scratch)
    return target


def left_out(path: str) -> bool:
    """Whether a file of a package is not in a base, by its path: usr/bin/su."""
    *folders, name = path.split("/")
    if folders in (["usr", "bin"], ["usr", "sbin"]):
        return name in UNWANTED
    return folders[:2] == ["usr", "share"] and folders[2:3] in ([each] for each in DOCUMENTS) and name != "copyright"


def _repository(packages: Mapping[Entry, Path], folder: Path) -> None:
    """A folder that apt can install exactly these packages from."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    stanzas = []
    for entry, path in packages.items():
        file = folder / f"{entry.name}.deb"
        shutil.copyfile(path, file)
        control = process.check(f"reading {entry.name}", ["dpkg-deb", "--field", str(file)]).stdout.rstrip()
        stanzas.append(f"{control}\nFilename: ./{file.name}\nSize: {file.stat().st_size}\nSHA256: {entry.sha256}\n")
    (folder / "Packages").write_text("\n".join(stanzas))


def _hooks(python: str) -> list[str]:
    """Commands that mmdebstrap runs at the end; `$1` is the root.

    They remove what differs between machines (host name, resolver, the repository's path) or between minutes, and add
    the user that a container runs as.
    """
    compileall = f"python{python} -m compileall -qq -f -j 1 --invalidation-mode unchecked-hash"
    return [
        # The sources' times are clamped: Debian's own bytecode would look stale at every import.
        f'PYTHONHASHSEED=0 chroot "$1" {compileall} /usr/lib/python{python} || true',
        'rm -rf "$1/etc/apt/sources.list" "$1/etc/apt/trusted.gpg.d" "$1/etc/dpkg/dpkg.cfg.d/99mmdebstrap"',
        'rm -f "$1"/var/cache/debconf/*-old "$1"/var/lib/dpkg/*-old "$1/var/cache/ldconfig/aux-cache"',
        'rm -f "$1/etc/resolv.conf" "$1/etc/hostname"',
        # dpkg's database stays as it is: scanners read the packages and versions there, and `dpkg --verify` lists the
        # programs that were removed.
        f'for name in {" ".join(UNWANTED)}; do rm -f "$1/usr/bin/$name" "$1/usr/sbin/$name"; done',
        # mmdebstrap mounts the host's /dev there: find would meet the root again, where that lies below /dev/shm.
        'find "$1" -xdev -path "$1/dev" -prune -o -perm /6000 ! -type l -exec chmod u-s,g-s {} +',
        # apt's caches belong to its own user where that user may read the repository, else to root. They are removed
        # here, and mmdebstrap need not run apt once more for it.
        'rm -rf "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/*',
        'echo "vetted:x:1000:1000::/home/vetted:/bin/bash" >> "$1/etc/passwd"',
        'echo "vetted:x:1000:" >> "$1/etc/group"',
        'mkdir "$1/home/vetted" && chown 1000:1000 "$1/home/vetted"',
    ]


def _mmdebstrap(target: Path, repository: Path, lock: Lock, scratch: Path) -> None:
    # mmdebstrap mounts, and its children leave its process group: in namespaces of their own, both end with it.
    # (Without root it makes its own.)
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"]
    argv = [
        *(namespaces if os.geteuid() == 0 else []),
        "mmdebstrap",
        "--variant=essential",
        "--architectures=amd64",
        "--include=" + ",".join(entry.name for entry in lock.debian),
        "--skip=cleanup/apt",
        "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
        *(f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in DOCUMENTS),
        "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        *(f"--customize-hook={command}" for command in _hooks(lock.stack.python)),
        "",  # no suite: the repository has exactly the locked packages
        str(target),
        f"deb [trusted=yes] copy:{repository} ./",
    ]
    env = {"SOURCE_DATE_EPOCH": str(lock.epoch), "TMPDIR": str(scratch), "LC_ALL": "C"}
    log = scratch / "mmdebstrap.log"
    with (
        log.open("wb") as file,
        process.running(argv, env=env, stdout=file, stderr=subprocess.STDOUT, umask=0o022) as child,
    ):
        code = child.wait()
    if code != 0:
        output = log.read_text(errors="replace")
        raise errors.from_tool(
            "making the root filesystem (mmdebstrap)",
            "\n".join(line for line in output.splitlines() if not line.startswith("Get:")),
            next_step="run as root, or allow unprivileged user namespaces",
        )
