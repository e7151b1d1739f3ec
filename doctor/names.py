"""Names that came and went: an error that names one, looked up in what the releases of a package offer.

"cannot import name X from Y", "unexpected keyword argument", "object has no attribute": doctor/apis.json says since
which release Y has had it, and since which it has it no more (made from published wheels by scripts/api-history).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from doctor import versions
from doctor.environment import Environment
from doctor.finding import Finding

IMPORT = re.compile(r"cannot import name '(?P<name>\w+)' from (?:partially initialized module )?'(?P<module>[\w.]+)'")
MODULE = re.compile(r"No module named '(?P<module>[\w]+(?:\.\w+)+)'")
MEMBER = re.compile(r"module '(?P<module>[\w.]+)' has no attribute '(?P<name>\w+)'")
KEYWORD = re.compile(r"(?:(?P<owner>\w+)\.)?(?P<callee>\w+)\(\) got an unexpected keyword argument '(?P<name>\w+)'")
ATTRIBUTE = re.compile(r"'(?P<owner>\w+)' (?:object )?has no attribute '(?P<name>\w+)'")
SIGNATURE = re.compile(
    r"(?:(?P<owner>[A-Z]\w+)\.)?(?P<name>\w+)\(\) (?:missing \d+ required|takes (?:from )?\d+ (?:to \d+ )?positional)"
)
UNKNOWN_MODEL = re.compile(
    r"model type [`'\"](?P<type>[\w-]+)[`'\"] but Transformers does not recognize this architecture"
    r"|^KeyError: '(?P<key>[a-z]+\d?[\w.]*(?:_moe|_vl|_text)?)'$",
    re.MULTILINE,
)
UNKNOWN_ARCHITECTURE = re.compile(
    r"Model architectures \['(?P<name>\w+)'\] (?:are not supported|failed to be inspected)"
)
FRAME = re.compile(r"(?:site|dist)-packages/(?P<package>\w+)[/.]")
# How a module is published, where its distribution has another name.
DISTRIBUTIONS = {"huggingface_hub": "huggingface-hub", "flash_attn": "flash-attn", "yaml": "pyyaml", "PIL": "pillow",
                 "liger_kernel": "liger-kernel", "unsloth_zoo": "unsloth-zoo", "awq": "autoawq", "cv2": "opencv-python",
                 "flashinfer": "flashinfer-python", "auto_gptq": "auto-gptq", "sklearn": "scikit-learn",
                 "compressed_tensors": "compressed-tensors", "swift": "ms-swift"}  # fmt: skip
# Whom an error names even when nobody said which release there is; and who is released together.
STACK = ("torch", "numpy", "vllm", "deepspeed", "triton", "unsloth", "unsloth-zoo", "bitsandbytes", "liger-kernel",
         "flash-attn", "flashinfer-python", "xformers", "torchvision", "torchao", "pydantic", "ms-swift", "tokenizers",
         "compressed-tensors", "autoawq", "auto-gptq", "xgrammar", "outlines")  # fmt: skip
TOGETHER = {"unsloth-zoo": "unsloth", "unsloth": "unsloth-zoo"}
# Whose class it is, where the name says so.
OWNERS = (
    (re.compile(r"(GRPO|DPO|SFT|PPO|RLOO|KTO|ORPO|CPO|GKD|OnlineDPO|Reward)(Trainer|Config)"
                r"|ScriptArguments|ModelConfig|VLLMClient"), "trl"),
    (re.compile(r"(Seq2Seq)?Trainer|(Seq2Seq)?TrainingArguments|GenerationConfig|GenerationMixin|BitsAndBytesConfig"
                r"|PreTrained\w+|\w+ForCausalLM|\w+Tokenizer(Fast)?|DynamicCache"), "transformers"),
    (re.compile(r"Accelerator(State)?|DeepSpeedPlugin|FullyShardedDataParallelPlugin"), "accelerate"),
    (re.compile(r"Lora(Config|Layer|Model)|Peft\w+"), "peft"),
    (re.compile(r"(Async)?LLM(Engine)?|(Async)?EngineArgs|VllmConfig|GPUModelRunner|EngineCore\w*|GPUWorker"
                r"|SamplingParams|(GuidedDecoding|StructuredOutputs)Params"), "vllm"),
    (re.compile(r"DeepSpeed\w+"), "deepspeed"),
)  # fmt: skip
Apis = dict[str, dict[str, Any]]


class Missed(NamedTuple):
    """A name that somebody asked for in vain."""

    package: str
    facts: tuple[str, ...]  # how apis.json may call it
    said: str


def findings(apis: Apis, environment: Environment, text: str) -> Iterator[Finding]:
    """What the names in an error tell, the last error first: it is the one that ended the run."""
    frames = [name for name in map(distribution, FRAME.findall(text)) if name]
    seen = set()
    for missed in reversed(list(_missed(text))):
        if missed.said in seen:
            continue
        seen.add(missed.said)
        found = _finding(apis, environment, missed, frames)
        if found is not None:
            yield found


def distribution(module: str) -> str:
    return versions.name(DISTRIBUTIONS.get(module.partition(".")[0], module.partition(".")[0]))


def _missed(text: str) -> Iterator[Missed]:
    for match in IMPORT.finditer(text):
        facts: tuple[str, ...] = (f"{match['module']}:{match['name']}",)
        yield Missed(distribution(match["module"]), facts, f"{match['name']} in {match['module']}")
    for match in MEMBER.finditer(text):
        facts = (f"{match['module']}:{match['name']}", f"{match['module']}.{match['name']}:")
        yield Missed(distribution(match["module"]), facts, f"{match['name']} in {match['module']}")
    for match in MODULE.finditer(text):
        yield Missed(distribution(match["module"]), (f"{match['module']}:",), f"the module {match['module']}")
    for match in KEYWORD.finditer(text):
        owner = match["owner"] or match["callee"]
        package = _owner(owner)
        if package:
            yield Missed(package, (f"{owner}({match['name']}",), f"the parameter {match['name']} of {owner}")
    for match in ATTRIBUTE.finditer(text):
        package = _owner(match["owner"])
        if package:
            facts = (f"{match['owner']}.{match['name']}",)
            if package == "transformers" and match["owner"].endswith("ForCausalLM"):
                facts = (f"PreTrainedModel.{match['name']}",)
            elif match["owner"].endswith("Trainer"):
                facts = (*facts, f"Trainer.{match['name']}")
            yield Missed(package, facts, f"{match['name']} of {match['owner']}")


def models(apis: Apis, environment: Environment, text: str) -> Iterator[Finding]:
    """A model that this Transformers, or this vLLM, does not know yet."""
    changes: dict[str, str] = apis.get("transformers", {}).get("changes", {})
    said = UNKNOWN_MODEL.search(text)
    if said is not None:
        wanted = re.sub(r"[^a-z0-9]", "", (said["type"] or said["key"] or "").lower())
        fact = next((one for one in changes if one.lower().replace("_", "") == f"transformers:{wanted}config"), None)
        if fact is not None:
            known = Missed("transformers", (fact,), f"the model type {said['type'] or said['key']}")
            found = _dated(_changes(apis["transformers"], fact), environment, known, [])
            if found is not None:
                found.confidence = "likely" if said["type"] else found.confidence
                yield found
    other = UNKNOWN_ARCHITECTURE.search(text)
    if other is not None:
        version = environment.version("vllm")
        yield Finding(
            "unknown-model", f"vLLM {version or ''} does not run {other['name']}".replace("  ", " "), {"vllm": version},
            "crash", "likely", [f"the error says: {other.group()}"], ["a newer vLLM, with the TRL that lists it"],
            shown=2, weight=0.5,
        )  # fmt: skip


def signatures(apis: Apis, environment: Environment, text: str) -> Iterator[Finding]:
    """A method that is called as another release declares it."""
    frames = [distribution(one) for one in FRAME.findall(text)]
    for match in list(SIGNATURE.finditer(text))[-1:]:
        owner = _owner(match["owner"]) if match["owner"] else _with_member(apis, match["name"])
        if owner is None:
            continue
        others = [one for one in dict.fromkeys(frames) if one != owner]
        if owner == "trl" and not others:
            # Whose Trainer calls what TRL's overrides, or who rewrites TRL's trainers.
            others = ["unsloth" if environment.version("unsloth") else "transformers"]
        packages = {name: environment.version(name) for name in (owner, *others[-1:])}
        yield Finding(
            "signature", f"{match['name']} is called with other arguments than it takes", packages, "crash", "possible",
            [f"the error says: {match.group()}"], [f"releases of {' and '.join(packages)} that belong together"],
            decide=["in which release its signature changed"], shown=1,
        )  # fmt: skip


def _with_member(apis: Apis, name: str) -> str | None:
    """Whose class has a method of this name, where it is one that came or went."""
    holders = [package for package, api in apis.items() if any(fact.endswith(f".{name}") for fact in api["changes"])]
    return holders[0] if len(holders) == 1 else None


def _owner(of: str) -> str | None:
    return next((package for pattern, package in OWNERS if pattern.fullmatch(of)), None)


def _finding(apis: Apis, environment: Environment, missed: Missed, frames: list[str]) -> Finding | None:
    for fact in missed.facts:
        owner = _holder(apis, fact, missed.package)
        if owner is not None:
            changes = _changes(apis[owner], fact)
            return _dated(changes, environment, missed._replace(package=owner), frames)
    version = environment.version(missed.package)
    asks = next((name for name in reversed(frames) if name != missed.package), None)
    if version is None and asks is None and missed.package not in (*apis, *STACK):
        return None
    asks = asks or TOGETHER.get(missed.package)
    packages = {name: environment.version(name) for name in (missed.package, asks) if name}
    return Finding(
        "missing-name",
        f"{missed.package} does not offer {missed.said}" + (f", which {asks} asks for" if asks else ""),
        packages, "crash", "possible",
        [f"the error says it; {missed.package} {version or '(version not given)'}"],
        [f"install versions of {' and '.join(packages)} that belong together"],
        decide=[f"which release of {missed.package} has {missed.said}"], shown=1,
    )  # fmt: skip


def _holder(apis: Apis, fact: str, package: str) -> str | None:
    if package in apis and fact in apis[package]["changes"]:
        return package
    if "." in fact and fact.startswith("Trainer.") and fact in apis.get("transformers", {}).get("changes", {}):
        return "transformers"
    return None


def _changes(api: dict[str, Any], fact: str) -> list[str]:
    """When a name came and went. What the oldest release that was read has, earlier ones may have had too."""
    changes: list[str] = api["changes"][fact].split()
    return ["+0", *changes[1:]] if changes[0] == f"+{api['first']}" else changes


def _dated(changes: list[str], environment: Environment, missed: Missed, frames: list[str]) -> Finding | None:
    """A name whose releases are known. One that this very version has is missing for another reason."""
    version = environment.version(missed.package)
    bad, good = _spans(changes)
    if version is not None and any(versions.within(span, version) for span in good):
        return None
    held = [span for span in bad if version is None or versions.within(span, version) is not False]
    asks = next((name for name in reversed(frames) if name != missed.package), None)
    packages = {missed.package: version, **({asks: environment.version(asks)} if asks else {})}
    history = "; ".join(f"{'since' if one[0] == '+' else 'gone in'} {one[1:]}" for one in changes if one != "+0")
    sure = version is not None and any(versions.within(span, version) for span in bad)
    return Finding(
        "moved-name",
        f"{missed.package} {version or ''}".strip() + f" does not have {missed.said}",
        packages, "crash", "likely" if sure else "possible",
        [f"in the published releases: {history}", "the error names it"],
        [" or ".join(f"{missed.package}{span}" for span in good)
         + (f", or a release of {asks} that does not ask for it" if asks else
            ", or code that does not ask for it")],
        ranges={missed.package: held or bad}, shown=2, weight=1.0 if sure else 0.1,
    )  # fmt: skip


def _spans(changes: list[str]) -> tuple[list[str], list[str]]:
    """The releases without a name and those with it, as ranges."""
    bad: list[str] = []
    good: list[str] = []
    edge = ""
    for one in changes:
        there, version = one[0] == "+", one[1:]
        if edge or there:
            (bad if there else good).append(f">={edge},<{version}" if edge else f"<{version}")
        edge = version
    (good if changes[-1][0] == "+" else bad).append(f">={edge}")
    return [one for one in bad if one != "<0"], [one.replace(">=0,", "") for one in good]
