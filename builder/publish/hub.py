"""What a container needs of the host for models and datasets of the Hub: a cache, tokens, certificate authorities."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from builder.base import errors
from builder.base.text import word

# The folders of the cache that a container sees. Beside them lies the host's token, which it must not see.
FOLDERS = ("hub", "datasets")
TOKENS = ("hf_token", "wandb_api_key")


def cache(ours: Path, user: str, results: Path) -> Path:
    """A folder whose `hub` and `datasets` the user of the container (uid:gid) may write; it is made if need be.

    The host's own cache, so that what was downloaded there is there; `ours` where that is someone else's, or lies in
    `results`, where a container can put a link in its place. Raises StorageError when `ours` is a link.
    """
    home, uid = _home(), int(user.partition(":")[0])
    own = Path(os.environ["HF_HOME"]) if os.environ.get("HF_HOME") else home and home / ".cache" / "huggingface"
    if own and not is_below(own, results) and all(_owner(own / name) == uid for name in FOLDERS):
        return make(own, user)
    return make(refuse_links(ours), user)


def _home() -> Path | None:
    """This user's home folder; None for a user who has none, as in a container."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def is_below(path: Path, results: Path) -> bool:
    """Whether a path lies in the folder of results, as it is written or behind its links."""
    written = Path(os.path.normpath(path.absolute()))
    return written.is_relative_to(results.absolute()) or written.resolve().is_relative_to(results.resolve())


def refuse_links(place: Path) -> Path:
    """The place itself. Raises StorageError when it, or a folder in it that is mounted, is a link."""
    for path in (place, *(place / name for name in FOLDERS)):
        if path.is_symlink():
            raise errors.StorageError(
                f"{path} is a link, and a container would get the folder behind it",
                cause="the cache was moved to another disk; or code in a container made the link, where it could",
                next_step=f"rm {word(path)}, and run this again; .env names another cache as VETTED_CACHE",
            )
    return place


def make(place: Path, user: str) -> Path:
    """Make the folders that are mounted; the user of the container (uid:gid) may write them."""
    uid, gid = map(int, user.split(":"))
    for name in FOLDERS:
        folder = place / name
        folder.mkdir(parents=True, exist_ok=True)
        if folder.stat().st_uid != uid and os.geteuid() == 0:
            os.chown(folder, uid, gid)
    return place


def _owner(folder: Path) -> int:
    """The owner of a folder, or of the nearest one above that is there."""
    while True:
        try:
            return folder.stat().st_uid
        except (FileNotFoundError, NotADirectoryError):
            folder = folder.parent
        except PermissionError:
            return -1


def secrets(user: str) -> Path:
    """The folder of the tokens, with an empty file for each that is missing: an empty file is no token.

    The user of the container (uid:gid) may read those that root makes.
    """
    uid, gid = map(int, user.split(":"))
    named, home = os.environ.get("VETTED_SECRETS"), _home()
    if not (folder := Path(named) if named else home and home / ".config" / "vetted"):
        raise errors.BadInputError(
            "HOME is not set: where tokens are kept is not known",
            cause="a service, cron or a container that starts programs without it",
            next_step="export HOME=…, or VETTED_SECRETS=… with the folder of the tokens; then run this again",
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in TOKENS:
        file = folder / name
        file.touch(mode=0o600)
        if os.geteuid() == 0 and file.stat().st_uid == 0:
            os.chown(file, uid, gid)
    return folder


def authorities() -> Path | None:
    """The certificate authorities that this host trusts, a company's own among them."""
    paths = ssl.get_default_verify_paths()
    candidates = (
        os.environ.get("SSL_CERT_FILE"),
        os.environ.get("REQUESTS_CA_BUNDLE"),
        "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Alpine, Arch
        "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, Red Hat
        "/etc/ssl/ca-bundle.pem",  # openSUSE
        paths.cafile,
    )
    return next((Path(name) for name in candidates if name and Path(name).is_file()), None)
