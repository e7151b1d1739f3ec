"""The environment variables of a child process: those that its program needs, and no others.

A secret goes to the one program that it is for. A stack, its suite and a build of foreign source get none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_ANY = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_.*", "TZ", "TERM", "TMPDIR", "NO_COLOR")
# How to reach the network. The URL of a proxy may have a password.
_NETWORK = (
    "(?i:(https?|ftp|no|all)_proxy)",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "NIX_SSL_CERT_FILE",
    "XDG_.*",
)  # fmt: skip
_DEVICE = ("LD_LIBRARY_PATH", "CUDA_.*", "NVIDIA_.*", "NCCL_(?!.*(KEY|TOKEN)).*", "OMP_NUM_THREADS")
_REGISTRY = (*_NETWORK, "DOCKER_CONFIG", "REGISTRY_AUTH_FILE")
# By the name of the program; every other one gets _ANY and _DEVICE.
_PROGRAMS: dict[str, tuple[str, ...]] = {
    "uv": (*_NETWORK, "UV_.*", "PIP_.*", "NETRC", "LD_LIBRARY_PATH"),  # it starts interpreters
    # What fetches a commit: the user's own ways to log in, and nothing that points git at another repository.
    "git-fetch": (*_NETWORK, "NETRC", "SSH_AUTH_SOCK", "GIT_(ASKPASS|SSH|SSH_COMMAND|CONFIG_.*|SSL_.*)", "SSH_ASKPASS"),
    "gh": (*_NETWORK, "GH_.*", "GITHUB_.*", "NETRC", "SSH_AUTH_SOCK"),
    "glab": (*_NETWORK, "GITLAB_.*", "GLAB_.*", "NETRC", "SSH_AUTH_SOCK"),
    "sinfo": ("SLURM_.*",),
    "squeue": ("SLURM_.*",),
    "apt-get": (*_NETWORK, "APT_CONFIG"),
    "docker": (*_NETWORK, "DOCKER_.*", "BUILDX_.*", "BUILDKIT_.*", "COMPOSE_.*", "SSH_AUTH_SOCK"),
    "oras": _REGISTRY,
    "skopeo": _REGISTRY,
    "cosign": (
        *_REGISTRY, "COSIGN_.*", "SIGSTORE_.*", "TUF_ROOT",
        # for the key service of a cloud
        "AWS_.*", "AZURE_.*", "GOOGLE_.*", "CLOUDSDK_.*", "VAULT_.*", "TRANSIT_SECRET_ENGINE_PATH", "KUBECONFIG",
    ),
}  # fmt: skip


def of(program: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a program, by its name or path, with `extra` variables."""
    allowed = re.compile("|".join((*_ANY, *_PROGRAMS.get(os.path.basename(program), _DEVICE))))  # noqa: PTH119
    inherited = {name: value for name, value in os.environ.items() if allowed.fullmatch(name)}
    return {**inherited, **(extra or {})}
