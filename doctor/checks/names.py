"""Names that came and went: an error that names one, looked up in what the releases of a package offer.

"cannot import name X from Y", "unexpected keyword argument", "object has no attribute": doctor/know/apis.json.gz says
since which release Y has had it, and since which it has it no more (made from published wheels by scripts/api-history).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from doctor.base import versions
from doctor.finding import Finding
from doctor.know import history
from doctor.know.history import Apis, Fact
from doctor.read.environment import Environment

IMPORT = re.compile(r"cannot import name '(?P<name>\w+)' from (?:partially initialized module )?'(?P<module>[\w.]+)'")
MODULE = re.compile(r"No module named '(?P<module>\w+(?:\.\w+)*)'")
MEMBER = re.compile(r"module '(?P<module>[\w.]+)' has no attribute '(?P<name>\w+)'")
KEYWORD = re.compile(
    r"(?<!\w)(?:(?P<owner>\w+)\.)?(?P<callee>\w+)\(\) got an unexpected keyword argument '(?P<name>\w+)'"
)
ATTRIBUTE = re.compile(r"'(?P<owner>\w+)' (?:object )?has no attribute '(?P<name>\w+)'")
SIGNATURE = re.compile(
    r"(?<![A-Za-z0-9])(?:(?P<owner>[A-Z]\w+)\.)?(?P<name>\w+)\(\) (?:missing \d+ required[^\n:]*: '(?P<lacks>\w+)'"
    r"|missing \d+ required|takes (?:from )?\d+ (?:to \d+ )?positional)"
)
BARE = re.compile(r"(?<![\w.])__init__\(\) got an unexpected keyword argument '(?P<name>\w+)'")
OPTIONS = re.compile(r"(?:unrecognized arguments?:|not used by the HfArgumentParser: \[)(?P<options>[^\n\]]+)")
RAISED = re.compile(
    r"(?:^|\] ?:? ?|\) |[EI] {2,})(?:[\w.]+\.)?(?P<name>[A-Z]\w+(?:Error|Exception))(?=:|$)", re.MULTILINE
)
UNDEFINED = re.compile(r"NameError: name '(?P<name>[A-Za-z]\w{3,})' is not defined")
UNKNOWN_MODEL = re.compile(
    r"model type [`'\"](?P<type>[\w-]+)[`'\"] but Transformers does not recognize this architecture"
    r"|^KeyError: '(?P<key>[a-z]+\d?[\w.]*(?:_moe|_vl|_text)?)'$",
    re.MULTILINE,
)
UNKNOWN_ARCHITECTURE = re.compile(
    r"Model architectures \['(?P<name>\w+)'\] (?:are not supported|failed to be inspected)"
    r"|\b(?P<other>\w+) has no vLLM implementation|Transformers implementation of '?(?P<third>\w+)'? is not compatible"
)
FRAME = re.compile(r"(?:site|dist)-packages/(?P<package>\w+)[/.]")
# How a module is published, where its distribution has another name.
DISTRIBUTIONS = {"huggingface_hub": "huggingface-hub", "flash_attn": "flash-attn", "yaml": "pyyaml", "PIL": "pillow",
                 "liger_kernel": "liger-kernel", "unsloth_zoo": "unsloth-zoo", "awq": "autoawq", "cv2": "opencv-python",
                 "flashinfer": "flashinfer-python", "auto_gptq": "auto-gptq", "sklearn": "scikit-learn",
                 "compressed_tensors": "compressed-tensors", "swift": "ms-swift", "pkg_resources": "setuptools",
                 "mistral_common": "mistral-common", "google": "protobuf", "attr": "attrs",
                 "sentence_transformers": "sentence-transformers", "lm_eval": "lm-eval"}  # fmt: skip
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
# Who writes the sources of others anew, or carries copies of them.
REWRITES = ("unsloth", "unsloth-zoo", "verl", "ms-swift", "llamafactory", "axolotl", "openrlhf")


class Missed(NamedTuple):
    """A name that somebody asked for in vain."""

    package: str
    said: str
    fact: Fact | None  # when it came and went, where that is known
    own: bool = True  # of the package for sure, not of a class that somebody derived from one of its


def findings(apis: Apis, environment: Environment, text: str) -> Iterator[Finding]:
    """What the names in an error tell, the last error first: it is the one that ended the run."""
    frames = [name for name in map(distribution, FRAME.findall(text)) if name]
    seen = set()
    for missed in reversed(list(_missed(apis, environment, text))):
        if missed.said in seen:
            continue
        seen.add(missed.said)
        if missed.fact is not None:
            found = _dated(missed.fact, environment, missed, frames)
        else:
            found = _undated(apis, environment, missed, frames)
        if found is not None:
            yield found


def distribution(module: str) -> str:
    return versions.name(DISTRIBUTIONS.get(module.partition(".")[0], module.partition(".")[0]))


def _missed(apis: Apis, environment: Environment, text: str) -> Iterator[Missed]:
    for match in IMPORT.finditer(text):
        package = distribution(match["module"])
        facts = (f"{match['module']}:{match['name']}", f"{match['module']}.{match['name']}:")
        yield _named(apis, package, f"{match['name']} in {match['module']}", *facts)
    for match in MEMBER.finditer(text):
        facts = (f"{match['module']}:{match['name']}", f"{match['module']}.{match['name']}:")
        yield _named(apis, distribution(match["module"]), f"{match['name']} in {match['module']}", *facts)
    for match in MODULE.finditer(text):
        found = _named(apis, distribution(match["module"]), f"the module {match['module']}", f"{match['module']}:")
        if "." in match["module"] or found.fact is not None:
            yield found
    for match in KEYWORD.finditer(text):
        owner, callee, name = match["owner"], match["callee"], match["name"]
        holder = _owner(owner or callee)
        if owner and callee != "__init__":
            fact = history.of_class(apis, owner, f".{callee}({name}", holder)
        elif owner or callee[:1].isupper():
            fact = history.of_class(apis, owner or callee, f"({name}", holder)
        else:
            fact = history.exact(apis, f"{callee}({name}")
        by = fact.package if fact is not None else holder
        if by is not None:
            own = fact is None or fact.near >= history.RELATED
            yield Missed(by, f"the parameter {name} of {owner or callee}", fact, own)
    for match in BARE.finditer(text):
        fact = _of_any_class(apis, environment, match["name"])
        if fact is not None:
            yield Missed(fact.package, f"the parameter {match['name']} of {fact.name.partition('(')[0]}", fact)
    for match in OPTIONS.finditer(text):
        for option in re.findall(r"--?([a-z][\w-]+)", match["options"])[:3]:
            fact = _of_any_class(apis, environment, option.replace("-", "_"))
            if fact is not None:
                yield Missed(fact.package, f"the option {option} of {fact.name.partition('(')[0]}", fact)
    for match in ATTRIBUTE.finditer(text):
        holder = _owner(match["owner"])
        fact = history.of_class(apis, match["owner"], f".{match['name']}", holder)
        by = fact.package if fact is not None else holder
        if by is not None:
            own = fact is None or fact.near == history.ITSELF
            yield Missed(by, f"{match['name']} of {match['owner']}", fact, own)


def _of_any_class(apis: Apis, environment: Environment, parameter: str) -> Fact | None:
    """The class whose constructor lacks a parameter, where what is installed leaves only one package."""
    found = []
    for package, api in apis.items():
        for fact in history.named(api, parameter):
            holder, _, name = fact.partition("(")
            if name == parameter and holder.isidentifier() and holder[0].isupper():
                found.append(Fact(package, fact, history.changes(api, fact), history.RELATED))
    lacking = [one for one in found if history.has(one, environment.version(one.package) or "") is False]
    lacking = lacking or [one for one in found if environment.version(one.package) is None]
    return lacking[0] if len({one.package for one in lacking}) == 1 else None


def _named(apis: Apis, package: str, said: str, *facts: str) -> Missed:
    found = (history.exact(apis, fact, package) for fact in facts)
    return Missed(package, said, next((one for one in found if one is not None), None))


def _offered(apis: Apis, name: str) -> list[Fact]:
    """Every module that has had a name."""
    return [Fact(package, fact, history.changes(api, fact), history.ITSELF) for package, api in apis.items()
            for fact in history.named(api, name) if fact.endswith(f":{name}")]  # fmt: skip


def undefined(apis: Apis, environment: Environment, text: str) -> Iterator[Finding]:
    """A name that somebody's copy of the sources took for granted: it came, or went, with a release."""
    frames = [distribution(one) for one in FRAME.findall(text)]
    for match in list(UNDEFINED.finditer(text))[-1:]:
        facts = _offered(apis, match["name"])
        if not facts:
            continue
        # The shortest way to it is where it is offered.
        fact = min(facts, key=lambda one: (one.package not in ("transformers", "accelerate", "trl"), len(one.name)))
        turn = fact.changes[-1][1:]
        there = [one for one in (*reversed(frames), *REWRITES) if environment.version(one) and one != fact.package]
        asks = there[0] if there else None
        version = environment.version(fact.package)
        if version is not None and versions.within(f">={turn}", version) is False:
            continue
        yield Finding(
            "undefined-name",
            f"{match['name']} {'came' if fact.since else 'went'} with {fact.package} {turn}"
            + (f", which {asks} does not expect" if asks else ""),
            {fact.package: version, **({asks: environment.version(asks)} if asks else {})}, "crash", "possible",
            [f"the error says: {match.group()}"], [f"{fact.package}<{turn}, or a later release of what asks for it"],
            decide=["whose code misses it"], ranges={fact.package: [f">={turn}"]}, shown=1, weight=0.5,
        )  # fmt: skip


def raised(apis: Apis, environment: Environment, text: str) -> Iterator[Finding]:
    """An error of a kind that came with a release: before, nothing raised it."""
    for name in dict.fromkeys(reversed(RAISED.findall(text))):
        facts = _offered(apis, name)
        fact = min(facts, key=lambda one: len(one.name)) if facts else None
        version = environment.version(fact.package) if fact is not None else None
        if fact is None or not fact.since or (version and versions.within(f">={fact.since}", version) is False):
            continue
        yield Finding(
            "new-error", f"{fact.package} raises {name} since {fact.since}", {fact.package: version},
            "crash", "possible", ["in the published releases: " + " ".join(fact.changes)],
            [f"{fact.package}<{fact.since}, or what it asks for"],
            decide=["whether an earlier release does what is wanted"], ranges={fact.package: [f">={fact.since}"]},
            shown=1, weight=0.3,
        )  # fmt: skip
        return


def models(apis: Apis, environment: Environment, text: str) -> Iterator[Finding]:
    """A model that this Transformers, or this vLLM, does not know yet."""
    changes: dict[str, str] = apis.get("transformers", {}).get("changes", {})
    said = UNKNOWN_MODEL.search(text)
    if said is not None:
        wanted = re.sub(r"[^a-z0-9]", "", (said["type"] or said["key"] or "").lower())
        name = next((one for one in changes if one.lower().replace("_", "") == f"transformers:{wanted}config"), None)
        fact = history.exact(apis, name, "transformers") if name else None
        if fact is not None:
            known = Missed("transformers", f"the model type {said['type'] or said['key']}", fact)
            found = _dated(fact, environment, known, [])
            if found is not None:
                found.confidence = "likely" if said["type"] else found.confidence
                yield found
    other = UNKNOWN_ARCHITECTURE.search(text)
    if other is not None:
        name = other["name"] or other["other"] or other["third"]
        version = environment.version("vllm")
        listed = history.exact(apis, f"vllm models:{name}", "vllm")
        bad = history.spans(listed.changes)[0] if listed else []
        yield Finding(
            "unknown-model", f"vLLM {version or ''} does not run {name}".replace("  ", " "), {"vllm": version},
            "crash", "likely", [f"the error says: {other.group()}"],
            [f"vllm>={listed.since}" if listed and listed.since else "a newer vLLM, with the TRL that lists it"],
            ranges={"vllm": bad} if bad else {}, shown=2, weight=0.5,
        )  # fmt: skip


def signatures(apis: Apis, environment: Environment, text: str) -> Iterator[Finding]:
    """A method that is called as another release declares it."""
    frames = [distribution(one) for one in FRAME.findall(text)]
    for match in list(SIGNATURE.finditer(text))[-1:]:
        name = match["name"]
        facts = history.turned(apis, match["owner"], name) if match["owner"] else _with_method(apis, name)
        if match["lacks"]:
            facts = [one for one in facts if one.name.endswith(f"({match['lacks']}")] or facts
        owner = _owner(match["owner"]) if match["owner"] else facts[0].package if facts else None
        if owner is None and not facts:
            continue
        turned = _turn(facts, environment)
        packages: dict[str, str | None] = {}
        ranges = {}
        if turned is not None:
            packages[turned[0]] = environment.version(turned[0])
            ranges = {turned[0]: [f">={turned[1]}"]}
        others = [one for one in dict.fromkeys(frames) if one != owner]
        if owner == "trl" and not others:
            # Whose Trainer calls what TRL's overrides, or who rewrites TRL's trainers.
            others = ["unsloth" if environment.version("unsloth") else "transformers"]
        for one in (*([owner] if owner else []), *others[-1:]):
            packages.setdefault(one, environment.version(one))
        yield Finding(
            "signature", f"{match['name']} is called with other arguments than it takes", packages, "crash", "possible",
            [f"the error says: {match.group()}",
             *([f"its arguments changed in {' '.join(turned)}"] if turned else [])],
            [f"releases of {' and '.join(packages)} that belong together"],
            decide=["in which release its signature changed"], ranges=ranges, shown=1,
        )  # fmt: skip


def _turn(facts: list[Fact], environment: Environment) -> tuple[str, str] | None:
    """The last change of a method up to what is installed."""
    found: list[tuple[int, versions.Version, str, str]] = []
    for fact in facts:
        have = environment.version(fact.package)
        past = [one[1:] for one in fact.changes if one != "+0"
                and (have is None or versions.within(f">={one[1:]}", have) is not False)]  # fmt: skip
        found += [(fact.near, versions.parse(one) or versions.Version("0"), fact.package, one) for one in past]
    return max(found)[2:] if found else None


def _with_method(apis: Apis, name: str) -> list[Fact]:
    """Every change of the parameters of a method or function of this name, where one package has it."""
    found, members = [], set()
    for package, api in apis.items():
        for fact in api["changes"]:
            if fact.endswith(f".{name}"):
                members.add(package)
            elif f"{name}(" in fact and fact.split("(")[0].rpartition(".")[2] == name:
                found.append(Fact(package, fact, history.changes(api, fact), history.FAR))
    holders = {one.package for one in found} | members
    if len(holders) != 1:
        return []
    return found or [Fact(next(iter(holders)), f".{name}", ("+0",), history.FAR)]


def _owner(of: str | None) -> str | None:
    return next((package for pattern, package in OWNERS if of and pattern.fullmatch(of)), None)


def _undated(apis: Apis, environment: Environment, missed: Missed, frames: list[str]) -> Finding | None:
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


def _dated(fact: Fact, environment: Environment, missed: Missed, frames: list[str]) -> Finding | None:
    """A name whose releases are known. One that this very version has is missing for another reason."""
    package, version = fact.package, environment.version(fact.package)
    bad, good = history.spans(fact.changes)
    asks = next((name for name in reversed(frames) if name != package), None)
    packages = {package: version, **({asks: environment.version(asks)} if asks else {})}
    if version is not None and history.has(fact, version):
        if missed.own or not fact.since:
            return None
        return Finding(
            "new-name",
            f"{package} {version} expects {missed.said}, which it has since {fact.since}",
            packages, "crash", "possible", [f"in the published releases: since {fact.since}", "the error names it"],
            [f"{package}<{fact.since}, or later code of what derives from it"],
            decide=["whether it is code of your own, or of a model's, that was written for an earlier release"],
            ranges={package: [f">={fact.since}"]}, shown=1,
        )  # fmt: skip
    held = [span for span in bad if version is None or versions.within(span, version) is not False]
    said = "; ".join(f"{'since' if one[0] == '+' else 'gone in'} {one[1:]}" for one in fact.changes if one != "+0")
    sure = version is not None and any(versions.within(span, version) for span in bad) and fact.near >= history.RELATED
    return Finding(
        "moved-name",
        f"{package} {version or ''}".strip() + f" does not have {missed.said}",
        packages, "crash", "likely" if sure else "possible",
        [f"in the published releases: {said}", "the error names it"],
        [" or ".join(f"{package}{span}" for span in good)
         + (f", or a release of {asks} that does not ask for it" if asks else
            ", or code that does not ask for it")],
        ranges={package: held or bad}, shown=2, weight=1.0 if sure else 0.1,
    )  # fmt: skip
