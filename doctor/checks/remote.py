"""Code that comes with a model (trust_remote_code): it was written for the Transformers of its day."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.base import versions
from doctor.case import Case
from doctor.finding import POINTS, Finding
from doctor.know import history

PACKAGE = "transformers"
CODE = re.compile(r"\btransformers_modules\b|\btrust_remote_code\b")
FAILED = re.compile(r"\b(?:AttributeError|TypeError|ImportError)\b")
# A frame, or a method of the model. Words of one part are of every release.
NAME = re.compile(r"(?:\bin |\bself\.|\bmodel\.)([a-z_]+_[a-z0-9_]{6,})\b")


def outdated_model_code(case: Case) -> Iterator[Finding]:
    """The newest method of models that the error names, where a model may bring code of its own."""
    if not (CODE.search(case.error) and FAILED.search(case.error)):
        return
    newest = None
    for name in dict.fromkeys(NAME.findall(case.error)):
        fact = history.of_models(case.knowledge.apis, PACKAGE, name)
        release = versions.parse(fact.since) if fact is not None else None
        if fact is not None and release is not None and (newest is None or release > newest[0]):
            newest = release, fact
    version = case.version(PACKAGE)
    if newest is None or (version and versions.within(f">={newest[1].since}", version) is False):
        return
    since, name = newest[1].since, newest[1].name
    yield Finding(
        rule="model-code",
        title=f"the model may bring code of its own, and {name} came with {PACKAGE} {since}",
        packages={PACKAGE: version},
        severity="crash",
        confidence="possible",
        evidence=["in the published releases: " + " ".join(newest[1].changes)],
        remedy=[f"{PACKAGE}<{since}, or a later revision of the model's code"],
        decide=["transformers_version in the model's config.json"],
        ranges={PACKAGE: [f">={since}"]},
        shown=POINTS,
        weight=0.5,
    )
