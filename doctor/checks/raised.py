"""Where an error was raised: the weakest finding, for when nothing else is known."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.case import Case
from doctor.finding import POINTS, Finding
from doctor.know import owners

# Errors of everybody's code pass through the frames of these.
PASSED = {
    "torch", "ray", "pip", "setuptools", "joblib", "multiprocess", "tqdm", "typer", "click", "fire", "hydra", "uvicorn",
}  # fmt: skip
# Words in the errors and logs of a package, for texts without a frame.
SIGNATURES = (
    (re.compile(r"^(?:\w+: )?Unsloth: |\bUnsloth\w+(?:Trainer|Config|Model)\b", re.MULTILINE), "unsloth"),
    (re.compile(r"\(EngineCore|\bEngineCore\b|\(VllmWorker|\[core\.py:\d+\]"), "vllm"),
    (re.compile(r"\bDeepSpeed\w*(?:Engine|Optimizer|Error|Offload)\b"), "deepspeed"),
)


def raising_package(case: Case) -> Iterator[Finding]:
    """The package of the last frame, or the one whose words the error has."""
    packages = [package for package in owners.frames(case.error) if package not in PASSED]
    evidence = "the last frame of the traceback that is in a package"
    if not packages and case.failed:
        packages = [package for pattern, package in SIGNATURES if pattern.search(case.error)]
        evidence = "the error has words that this package writes"
    if not packages:
        return
    package = packages[-1]
    yield Finding(
        rule="raised-in",
        title=f"the error was raised in {package}",
        packages=case.versions(package),
        severity="crash",
        confidence="possible",
        evidence=[evidence],
        remedy=[f"another release of {package}"],
        decide=["whether its other releases raise it too: nothing else is known"],
        shown=POINTS,
        weight=-3.0,
    )
