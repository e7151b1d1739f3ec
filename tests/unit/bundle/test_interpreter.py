"""The stack's Python from Debian packages: unpacked without dpkg, with the libraries that the host lacks."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from builder.bundle.unbundle import interpreter
from builder.bundle.unbundle.stop import StopError
from tests import parts

LINK = "-> "


def make_deb(folder: Path, files: Mapping[str, str], compression: str = "xz") -> Path:
    """A Debian package, named after its sha256. A text that begins with LINK is a link."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=f"w:{compression}") as tar:  # type: ignore[call-overload]
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.mode = 0o755 if "/bin/" in name else 0o644
            if text.startswith(LINK):
                info.type, info.linkname = tarfile.SYMTYPE, text.removeprefix(LINK)
                tar.addfile(info)
            else:
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text.encode()))
    content = b"!<arch>\n"
    for name, data in (("debian-binary", b"2.0\n"), ("control.tar.xz", b"odd"), ("data.tar.xz", stream.getvalue())):
        content += (
            f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
        )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(content).hexdigest()}.deb"
    path.write_bytes(content)
    return path


def below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_symlink() or path.is_file()}


@pytest.mark.parametrize("compression", ["xz", "gz", ""])
def test_a_package_is_unpacked_as_dpkg_does_it(tmp_path: Path, compression: str) -> None:
    files = {
        "./usr/bin/tool": "program", "./usr/lib/a.so.1": "library", "./usr/lib/a.so": f"{LINK}a.so.1",
        "./usr/lib/absolute": f"{LINK}/usr/lib/a.so.1", "./usr/share/doc/x": "not needed", "./etc/x": "not needed",
    }  # fmt: skip
    interpreter.unpack(make_deb(tmp_path / "debs", files, compression), tmp_path / "to")
    assert below(tmp_path / "to") == {"usr/bin/tool", "usr/lib/a.so.1", "usr/lib/a.so", "usr/lib/absolute"}
    assert (tmp_path / "to/usr/lib/absolute").read_text() == "library"
    assert (tmp_path / "to/usr/bin/tool").stat().st_mode & 0o111
    assert not (tmp_path / "to/usr/lib/a.so.1").stat().st_mode & 0o111


@pytest.mark.parametrize(
    "files", [{"../escaped": "evil"}, {"/escaped": "evil"}, {"a/../../escaped": "evil"}, {"./..": "evil"}]
)
def test_a_package_writes_nothing_outside_of_its_folder(tmp_path: Path, files: dict[str, str]) -> None:
    interpreter.unpack(make_deb(tmp_path / "debs", files), tmp_path / "a" / "b" / "to")
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize("link", ["../..", "/../../x", "elsewhere", "/elsewhere"])
@pytest.mark.parametrize("name", ["./link/escaped", "./link"])
def test_a_package_writes_nothing_through_a_link(tmp_path: Path, link: str, name: str) -> None:
    package = make_deb(tmp_path / "debs", {"./elsewhere/x": "", "./link": LINK + link})
    target = tmp_path / "a" / "b" / "to"
    interpreter.unpack(package, target)
    with pytest.raises(StopError, match="through a link"):
        interpreter.unpack(make_deb(tmp_path / "debs", {name: "evil"}), target)
    assert not list(tmp_path.rglob("escaped"))


def test_a_package_that_was_edited_is_refused(tmp_path: Path) -> None:
    package = make_deb(tmp_path, {"./usr/bin/x": "x"})
    package.write_bytes(package.read_bytes() + b"\n")
    with pytest.raises(StopError, match="has changed"):
        interpreter.unpack(package, tmp_path / "to")


def test_what_is_no_package_is_refused(tmp_path: Path) -> None:
    path = tmp_path / f"{hashlib.sha256(b'no archive').hexdigest()}.deb"
    path.write_bytes(b"no archive")
    with pytest.raises(StopError, match="no Debian package"):
        interpreter.unpack(path, tmp_path / "to")


def root_with(tmp_path: Path, python: str) -> Path:
    make_deb(tmp_path / "root" / "python", {"./usr/bin/python3.99": python})
    make_deb(
        tmp_path / "root" / "libraries",
        {
            "./lib/libnowhere.so.9.1": "library", "./lib/libnowhere.so.9": f"{LINK}libnowhere.so.9.1",
            "./lib/libnowhere-5.3.so": "named as Berkeley DB is",
        },
    )  # fmt: skip
    make_deb(tmp_path / "root" / "libraries", {"./lib/libc.so.6": "an older one"})
    return tmp_path / "root"


def test_only_libraries_that_the_host_lacks_come_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/the/driver")
    root, final = root_with(tmp_path, f'#!/bin/sh\nexec {sys.executable} "$@"\n'), tmp_path / "python"
    python = interpreter.install(root, final, "3.99")
    assert python == final / "usr/bin/python3.99"
    assert subprocess.run([python, "-c", "print(1)"], capture_output=True, check=True).stdout == b"1\n"
    assert {path.name for path in (final / "missing").iterdir()} == {
        "libnowhere.so.9", "libnowhere.so.9.1", "libnowhere-5.3.so",
    }  # fmt: skip
    assert interpreter.variables(final) == {"LD_LIBRARY_PATH": f"{final / 'missing'}:/the/driver"}
    before = below(final)
    assert interpreter.install(tmp_path / "nothing", final, "3.99") == python  # it is there
    assert below(final) == before and not (tmp_path / "python.partial").exists()


def test_a_host_that_lacks_nothing_keeps_its_variables(tmp_path: Path) -> None:
    make_deb(tmp_path / "root" / "python", {"./usr/bin/python3.99": f'#!/bin/sh\nexec {sys.executable} "$@"\n'})
    interpreter.install(tmp_path / "root", tmp_path / "python", "3.99")
    assert interpreter.variables(tmp_path / "python") == {}


def test_python_h_compiles_although_debian_spreads_it_over_two_folders(tmp_path: Path) -> None:
    """Triton found no pyconfig.h on the first H100: every probe with a kernel of its own was red."""
    parts.programs("gcc", how="apt-get install gcc libc6-dev")
    make_deb(
        tmp_path / "root" / "python",
        {
            "./usr/bin/python3.99": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
            "./usr/include/python3.99/Python.h": "#include <x86_64-linux-gnu/python3.99/pyconfig.h>\n",
            "./usr/include/x86_64-linux-gnu/python3.99/pyconfig.h": "#define FOUND 1\n",
        },
    )
    interpreter.install(tmp_path / "root", tmp_path / "python", "3.99")
    headers = tmp_path / "python" / "usr" / "include" / "python3.99"
    argv = ["gcc", "-fsyntax-only", f"-I{headers}", "-include", "Python.h", "-x", "c", "/dev/null"]
    assert subprocess.run(argv, capture_output=True, text=True).stderr == ""


def test_headers_are_joined_only_where_packages_have_no_link(tmp_path: Path) -> None:
    """A link that packages bring stays, and nothing is written through one."""
    (tmp_path / "outside").mkdir()
    headers = {
        "./usr/include/x86_64-linux-gnu/pyconfig.h": "", "./usr/include/python3.98": f"{LINK}../../../outside",
        "./usr/include/python3.99/x86_64-linux-gnu": f"{LINK}../own",
    }  # fmt: skip
    interpreter.unpack(make_deb(tmp_path / "debs", headers), tmp_path / "python")
    include = tmp_path / "python" / "usr" / "include"
    for version in ("3.97", "3.98", "3.99"):
        interpreter._join_headers(include, version)
    assert list((tmp_path / "outside").iterdir()) == []
    assert (include / "python3.99" / "x86_64-linux-gnu").readlink() == Path("../own")


def test_libraries_that_only_the_hosts_python_finds_come_along(tmp_path: Path) -> None:
    """A Python may bring its own libz: then it loads here, and the stack's Python does not find it."""
    needs = f"""\
#!/bin/sh
test -e "$(dirname "$0")/../../missing/libutil.so.1" || exit 1
unset LD_LIBRARY_PATH
exec {sys.executable} "$@"
"""
    make_deb(tmp_path / "root" / "python", {"./usr/bin/python3.99": needs})
    make_deb(tmp_path / "root" / "libraries", {"./lib/libutil.so.1": "one that loads here"})
    interpreter.install(tmp_path / "root", tmp_path / "python", "3.99")
    assert (tmp_path / "python" / "missing" / "libutil.so.1").is_file()


@pytest.mark.parametrize("python", ["#!/bin/sh\necho GLIBC_2.99 not found >&2; exit 1\n", "no program"])
def test_a_python_that_does_not_start_there_says_why(tmp_path: Path, python: str) -> None:
    with pytest.raises(StopError, match="does not start here") as caught:
        interpreter.install(root_with(tmp_path, python), tmp_path / "python", "3.99")
    assert caught.value.code == 4 and "--python" in caught.value.text
    assert not (tmp_path / "python").exists()
