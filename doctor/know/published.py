"""What releases require of which there is no history, from their metadata: for lists of versions, which have none.

doctor/know/published.json has it; `python -m scripts.published` reads it from the index.
"""

from __future__ import annotations

import json
import pkgutil
import re
from functools import cache

from doctor.base import versions

CUDA = re.compile(r"cu\d+")  # local versions of builds for CUDA, which need what those of the index need
PYTHON = "python"  # a line about it is no requirement


def of_torch(torch: str) -> str | None:
    """The newest vLLM that is built with a torch; None where none is known."""
    parsed = versions.parse(torch)
    line = f"torch=={parsed.base_version}" if parsed else ""
    fitting = [release for release, lines in releases("vllm").items() if line in lines]
    return fitting[-1] if fitting else None


def requires(name: str, version: str) -> tuple[str, ...]:
    """The requirements of a release, as lines; none where they are not known, as of builds for CPUs or ROCm."""
    public, _, local = version.partition("+")
    return releases(name).get(public, ()) if not local or CUDA.fullmatch(local) else ()


def releases(name: str) -> dict[str, tuple[str, ...]]:
    """The requirements of every release of a package that is known, in their order."""
    return _load().get(name, {})


@cache
def _load() -> dict[str, dict[str, tuple[str, ...]]]:
    content = pkgutil.get_data("doctor.know", "published.json")
    assert content is not None
    packages: dict[str, dict[str, list[str]]] = json.loads(content)["requires"]
    return {
        name: {
            release: tuple(line for line in lines if not line.startswith(PYTHON)) for release, lines in known.items()
        }
        for name, known in packages.items()
    }
