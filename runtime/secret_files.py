"""Secrets in the user's folder that a run could read: private keys, credentials, a home directory.

Looks at the folder itself only, not into its subfolders, which may be many.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

FOLDERS = ("secrets", ".secrets", ".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker")
CREDENTIALS = (".netrc", ".git-credentials", ".pypirc", ".npmrc", ".boto", ".pgpass")
HOME = (".bashrc", ".bash_history", ".profile", ".zshrc", ".zsh_history")  # a folder with these is a home directory
KEY = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY")
# In a file of environment variables: a name that suggests a secret, and a value.
VARIABLE = re.compile(
    rb"^\s*(?:export\s+)?(?:\w+_)?(?:TOKEN|SECRET|PASSWORD|API_?KEY|ACCESS_KEY)(?:_\w+)?[ \t]*=[ \t]*['\"]?[^\s'\"]{8}",
    re.MULTILINE | re.IGNORECASE,
)
URL = re.compile(rb"://[^/\s:@]*:[^/\s@]+@")  # with a password
BEGINNING = 1 << 16  # bytes of a file


def find(folder: Path) -> list[str]:
    """The names of secret files and folders that this user can read."""
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return []
    return [path.name for path in paths if os.access(path, os.R_OK) and _is_secret(path)]


def _is_secret(path: Path) -> bool:
    name = path.name
    if path.is_dir():
        return name in FOLDERS or (name == ".git" and bool(URL.search(_beginning(path / "config"))))
    if not path.is_file():
        return False
    if name in CREDENTIALS or name in HOME or name.endswith(".key"):
        return True
    beginning = _beginning(path)
    is_environment = name == ".env" or name.startswith(".env.") or name.endswith(".env")
    return bool(KEY.search(beginning) or (is_environment and VARIABLE.search(beginning)))


def _beginning(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(BEGINNING)
    except OSError:
        return b""
