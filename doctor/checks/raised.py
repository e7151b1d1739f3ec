"""Where an error was raised: the last thing to say when nothing else is known, and said as that."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.case import Case
from doctor.checks import advisories as match
from doctor.checks import names
from doctor.finding import Finding

# Everything passes through these on its way.
PASSED = {
    "torch",
    "ray",
    "pip",
    "setuptools",
    "joblib",
    "multiprocess",
    "tqdm",
    "typer",
    "click",
    "fire",
    "hydra",
    "uvicorn",
}
# Words that a package's own errors and logs carry, where no frame was given.
SIGNED = (
    (re.compile(r"^(?:\w+: )?Unsloth: |\bUnsloth\w+(?:Trainer|Config|Model)\b", re.MULTILINE), "unsloth"),
    (re.compile(r"\(EngineCore|\bEngineCore\b|\(VllmWorker|\[core\.py:\d+\]"), "vllm"),
    (re.compile(r"\bDeepSpeed\w*(?:Engine|Optimizer|Error|Offload)\b"), "deepspeed"),
)


def look(case: Case) -> Iterator[Finding]:
    frames = [names.distribution(one) for one in names.FRAME.findall(case.error)]
    frames = [one for one in frames if one not in PASSED]
    said = "the last of its frames that is in a package"
    if not frames and match.FAILED.search(case.error):
        frames = [name for pattern, name in SIGNED if pattern.search(case.error)]
        said = "its words are signed so"
    if not frames:
        return
    name = frames[-1]
    yield Finding(
        "raised-in", f"the error was raised in {name}", {name: case.environment.version(name)}, "crash", "possible",
        [said], [f"another release of {name}"],
        decide=["whether its other releases do the same: nothing else is known"],
        shown=1, weight=-3.0,
    )  # fmt: skip
