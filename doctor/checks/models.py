"""Models that the installed Transformers, vLLM or Liger does not know yet."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.case import Case
from doctor.checks import missing
from doctor.checks.gone import Missing
from doctor.finding import EXPLAINS, Finding
from doctor.know import history

TYPE = re.compile(
    r"model type [`'\"](?P<type>[\w-]+)[`'\"] but Transformers does not recognize this architecture"
    r"|^KeyError: '(?P<key>[a-z]+\d?[\w.]*(?:_moe|_vl|_text)?)'$",
    re.MULTILINE,
)
ARCHITECTURE = re.compile(
    r"Model architectures \['(?P<name>\w+)'\] (?:are not supported|failed to be inspected)"
    r"|\b(?P<other>\w+) has no vLLM implementation|Transformers implementation of '?(?P<third>\w+)'? is not compatible"
)
LIGER = "MODEL_TYPE_TO_APPLY_LIGER_FN"  # the table whose keys are the types of models that Liger has kernels for


def unknown_models(case: Case) -> Iterator[Finding]:
    """Looked up in the names of Transformers and Liger, and in vLLM's list of models."""
    liger = list(_of_liger(case)) if LIGER in case.error else []
    yield from liger or _of_transformers(case)
    yield from _of_vllm(case)


def _of_liger(case: Case) -> Iterator[Finding]:
    key = next((match["key"] for match in TYPE.finditer(case.error) if match["key"]), None)
    name = f"liger_kernel.transformers.monkey_patch:apply_liger_kernel_to_{key}"
    fact = history.exact(case.knowledge.apis, name, "liger-kernel") if key else None
    finding = missing.dated(case, Missing("liger-kernel", f"kernels for the model type {key}", fact)) if fact else None
    if finding is not None:
        finding.confidence = "likely"
        yield finding


def _of_transformers(case: Case) -> Iterator[Finding]:
    apis = case.knowledge.apis
    match = TYPE.search(case.error)
    if match is None or "transformers" not in apis:
        return
    model = match["type"] or match["key"]
    config = f"transformers:{re.sub(r'[^a-z0-9]', '', model.lower())}config"
    name = next((fact for fact in apis["transformers"].changes if fact.lower().replace("_", "") == config), None)
    fact = history.exact(apis, name, "transformers") if name else None
    finding = missing.dated(case, Missing("transformers", f"the model type {model}", fact)) if fact else None
    if finding is not None:
        finding.confidence = "likely" if match["type"] else finding.confidence
        yield finding


def _of_vllm(case: Case) -> Iterator[Finding]:
    match = ARCHITECTURE.search(case.error)
    if match is None:
        return
    model = match["name"] or match["other"] or match["third"]
    version = case.version("vllm")
    fact = history.exact(case.knowledge.apis, f"vllm models:{model}", "vllm")
    if "inspected" in match.group() and fact and version and fact.in_release(version):
        yield _not_imported(version, model, match.group())
        return
    without = fact.spans()[0] if fact else []
    yield Finding(
        rule="unknown-model",
        title=f"vLLM {version or ''} does not run {model}".replace("  ", " "),
        packages={"vllm": version},
        severity="crash",
        confidence="likely",
        evidence=[f"the error says: {match.group()}"],
        remedy=[f"vllm>={fact.since}" if fact and fact.since else "a newer vLLM, with the TRL that declares it"],
        ranges={"vllm": without} if without else {},
        shown=EXPLAINS,
        weight=0.5,
    )


def _not_imported(version: str, model: str, words: str) -> Finding:
    """vLLM lists the model, and importing its file failed: another package changed."""
    return Finding(
        rule="unknown-model",
        title=f"vLLM {version} lists {model}, and could not import it",
        packages={"vllm": version},
        severity="crash",
        confidence="possible",
        evidence=[f"the error says: {words}"],
        remedy=[f"vllm>{version}, or a Transformers released at the same time as this vLLM"],
        decide=["the ImportError above it in the log: it names what vLLM did not find"],
        ranges={"vllm": [f"<={version}"]},
        shown=EXPLAINS,
        weight=0.5,
    )
