"""The names of what a lock installs, for scanners: the same in the bill of materials and in VEX."""

from __future__ import annotations

from packageurl import PackageURL

from builder.lock.lockfile import Entry, Lock


def distribution(entry: Entry) -> PackageURL:
    """A Python distribution."""
    return PackageURL("pypi", None, entry.name, entry.version)


def package(lock: Lock, entry: Entry) -> PackageURL:
    """A package of Debian's."""
    qualifiers: dict[str, str] = {"distro": lock.stack.debian}
    return PackageURL("deb", "debian", entry.name, entry.version, qualifiers)


def of(lock: Lock) -> dict[tuple[str, str], str]:
    """All of a lock, by type (`pypi` or `deb`) and name."""
    distributions = {("pypi", entry.name): distribution(entry).to_string() for entry in lock.python}
    return distributions | {("deb", entry.name): package(lock, entry).to_string() for entry in lock.debian}
