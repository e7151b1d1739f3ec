"""A Debian mirror that does what a test chooses: apt's programs in place of the real ones."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path

from builder.lock import debian
from tests.conftest import Small

MIRROR = "http://mirror.test/debian"
DEB = b"a Debian package"
NAME, VERSION, FILE = "bsdutils", "1:2.38.1-5+deb12u3", "bsdutils_1%3a2.38.1-5+deb12u3_amd64.deb"
APT_GET = """\
#!/bin/sh
. "$(dirname "$0")/settings"
# Answers as the mirror of a bad day does.
case "$1 $FAULT" in
  "update down") echo "E: Failed to fetch $URI  Connection refused" >&2; exit 100 ;;
  "download packages") for word in "$@"; do case $word in *=*)
    cp "$DEBS/${word%%=*}.deb" "${word%%=*}_$(echo "${word#*=}" | sed s/:/%3a/)_amd64.deb" ;; esac; done ;;
  "download "*) printf %s "$SERVED" > "$FILE" ;;
  "install conflict") echo "E: Unable to correct problems, you have held broken packages." >&2; exit 100 ;;
  "install "*)
    echo "Reading package lists..."
    echo "'http://mirror.test/$FILE' $FILE 7 SHA256:$SHA256"
    echo "'http://mirror.test/a_1.deb' aaa_5.2.15-2+b13_amd64.deb 7 SHA256:$SHA256" ;;
esac
"""
APT_CACHE = """\
#!/bin/sh
. "$(dirname "$0")/settings"
[ "$1" != show ] || exec cat "$DEBS/Packages"
echo " $NAME | $OFFERED | http://mirror.test/debian bookworm/main amd64 Packages"
"""


def install(small: Small, programs: Path) -> None:
    """Make the programs, and a mirror that has the one package that the stack is locked to."""
    sha256 = hashlib.sha256(DEB).hexdigest()
    small.edit("debian.txt", "d" * 64, sha256)
    programs.mkdir()
    for name, text in (("apt-get", APT_GET), ("apt-cache", APT_CACHE)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    for key, value in {
        "FAULT": "", "FILE": FILE, "NAME": NAME, "OFFERED": VERSION, "SERVED": DEB.decode(), "SHA256": sha256,
        "DEBS": str(programs / "debs"),
    }.items():  # fmt: skip
        setting(small, key, value)


def setting(small: Small, key: str, value: str) -> None:
    """What the mirror does from here on."""
    with (small.root.parent / "programs" / "settings").open("a") as file:
        file.write(f"{key}={shlex.quote(value)}\n")


def fetch(small: Small) -> dict[str, Path]:
    files = debian.fetch(small.project, small.lock, small.scratch())
    return {entry.name: path for entry, path in files.items()}
