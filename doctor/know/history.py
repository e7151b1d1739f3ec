"""When names came and went: lookups in doctor/know/apis.json.gz.

A fact is `module:name`, `Class.member`, `Class(parameter`, `Class.method(parameter` or `function(parameter`. What every
release has is not written down there, nor what came and went together with its module or its class.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from doctor.base import versions

Apis = dict[str, dict[str, Any]]
# What a class is, by the last word of its name, and the classes that give its like their members.
MODEL = ("PreTrainedModel", "ModuleUtilsMixin", "GenerationMixin", "EmbeddingAccessMixin", "PeftAdapterMixin")
KINDS = (
    (re.compile(r"\w*Trainer"), ("Trainer",)),
    (re.compile(r"(?:GRPO|SFT|DPO|RLOO|PPO|KTO|ORPO|CPO|Reward|GKD|OnlineDPO)Config|\w*TrainingArguments"),
     ("TrainingArguments",)),
    (re.compile(r"\w*Config"), ("PreTrainedConfig",)),
    (re.compile(r"\w*Tokenizer(?:Fast)?"), ("PreTrainedTokenizerBase", "PreTrainedTokenizer", "PreTrainedTokenizerFast",
                                            "SpecialTokensMixin", "TokenizersBackend", "PythonBackend")),
    (re.compile(r"\w*Processor(?:Fast)?"), ("ProcessorMixin", "BaseImageProcessor", "BaseImageProcessorFast")),
    (re.compile(r"\w*Cache"), ("Cache", "DynamicCache")),
    (re.compile(r"\w*For[A-Z]\w+|\w*(?:Model|LM)"), MODEL),
)  # fmt: skip
# Of everybody's, or of Python itself: what they lack says nothing of a release.
NOBODYS = {"NoneType", "Tensor", "Namespace", "DictConfig", "Parameter", "DataFrame", "Series", "Dataset", "Module"}
ITSELF, LIKE, RELATED, FAR = 100, 50, 10, 1


class Fact(NamedTuple):
    package: str
    name: str
    changes: tuple[str, ...]  # "+4.49.0", "-5.0.0"
    near: int  # how sure it is that the fact is of what was asked for

    @property
    def since(self) -> str:
        """The release from which on it is there, where that is how it ends."""
        return self.changes[-1][1:] if self.changes[-1][0] == "+" and self.changes[-1] != "+0" else ""


def exact(apis: Apis, name: str, package: str = "") -> Fact | None:
    """A fact by its name: of this package, or of the only one that has it."""
    holders = [one for one in apis if name in apis[one]["changes"]]
    if package not in holders and len(holders) != 1:
        return None
    holder = package if package in holders else holders[0]
    return Fact(holder, name, changes(apis[holder], name), ITSELF)


def named(api: dict[str, Any], name: str) -> list[str]:
    """The facts of a package that end in a name."""
    held: dict[str, list[str]] | None = api.get("named")
    return held.get(name, []) if held is not None else [one for one in api["changes"] if one.endswith(name)]


def of_class(apis: Apis, owner: str, ending: str, package: str | None = None) -> Fact | None:
    """The nearest fact of a class or of those that it may derive from: `.member`, `(parameter`, `.method(parameter`."""
    if owner in NOBODYS:
        return None
    found = []
    for name, api in apis.items():
        for fact in named(api, ending[1:].rpartition("(")[2]):
            if fact.endswith(ending):
                holder = fact[: -len(ending)]
                near = _near(owner, holder) if holder.isidentifier() else 0
                if near:
                    found.append(Fact(name, fact, changes(api, fact), near))
    best = max(found, key=lambda one: (one.near, one.package == package), default=None)
    if best is None or best.changes[-1][0] == "+":
        return best
    # What a class gives up it may still have from the one that it derives from.
    bases = [one for one in found if one.package == best.package and one.near in (best.near, RELATED + 2)]
    return max(bases, key=lambda one: (one.changes[-1][0] == "+", versions.parse(one.changes[-1][1:]) or 0))


def turned(apis: Apis, owner: str, method: str) -> list[Fact]:
    """Every change of the parameters of a method of this class or of one that it derives from."""
    found = []
    pattern = re.compile(rf"(\w+)\.{re.escape(method)}\(\w+")
    for name, api in apis.items():
        for fact in api["changes"]:
            match = pattern.fullmatch(fact) if f".{method}(" in fact else None
            near = _near(owner, match[1]) if match else 0
            if near >= RELATED:
                found.append(Fact(name, fact, changes(api, fact), near))
    return found


def spans(changes: tuple[str, ...]) -> tuple[list[str], list[str]]:
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


def has(fact: Fact, version: str) -> bool | None:
    """Does a release have it? None where that cannot be told."""
    bad, good = spans(fact.changes)
    if any(versions.within(span, version) for span in good):
        return True
    return False if any(versions.within(span, version) for span in bad) else None


def changes(api: dict[str, Any], fact: str) -> tuple[str, ...]:
    """When it came and went; "+0" where it was there from the beginning, or from before what was read."""
    return tuple(api["changes"][fact].split())


def _near(owner: str, holder: str) -> int:
    """How near a class is to another by their names: itself, what it is named after, or what its like derive from."""
    if owner == holder:
        return ITSELF
    if len(holder) > 6 and owner.endswith(holder) and holder != "Trainer":
        return LIKE + len(holder) // 4
    for pattern, bases in KINDS:
        if pattern.fullmatch(owner):
            kind = next((one for one in bases if one == holder), None)
            if kind is not None:
                return RELATED + 2
            words = _words(holder)
            alike = pattern.fullmatch(holder) and len(words) >= 2 and all(one in owner for one in words)
            return RELATED + 1 if alike else 0
    return FAR if holder in MODEL[:1] else 0


def _words(name: str) -> set[str]:
    return set(re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+", name))
