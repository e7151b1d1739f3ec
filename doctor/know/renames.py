"""Which parameter another one has become, by the history of names: `tokenizer` is `processing_class` in TRL since 0.12.

A rename is never written down as one. It shows where a parameter goes with the release that brings exactly one other
one, where several classes of a package change one for the other, or where a later one is spelled almost the same.
"""

from __future__ import annotations

import re
from collections import Counter
from difflib import SequenceMatcher
from typing import NamedTuple

from doctor.base import versions
from doctor.base.versions import Version
from doctor.know.data import Api
from doctor.know.history import Apis, exact

ALIKE, VERY_ALIKE = 0.5, 0.8  # how much two names agree, of 1
ENOUGH = 3  # classes that change one for the other
FAMILY = ("trl", "transformers")  # which take their parameters' names from each other
KIND = re.compile(r"[A-Z][a-z0-9]+$")  # the last word of a class: Trainer, Config

Parameters = dict[str, list[str]]  # of one class or function: its changes, such as "+4.46.0"


class Rename(NamedTuple):
    """What a parameter is called now, since which release, and how many classes or functions changed it so."""

    name: str
    since: str
    owners: int


def of_parameter(apis: Apis, package: str, owner: str, parameter: str, installed: str | None) -> Rename | None:
    """The name that a parameter of a class or function has now; None where that cannot be told.

    A class that never had the parameter is judged by the others of its kind: what they call it, it calls it, too.
    """
    if package not in apis:
        return None
    of_owner = apis[package].parameters.get(owner, {})
    own = _likely(of_owner, parameter)
    others = _of_others(apis[package], owner, parameter)
    if own is not None and (own[2] or own[0] in {new for new, _ in others}):
        rename = Rename(own[0], own[1], max(1, others[own[0], own[1]]))
    elif others and others.most_common(1)[0][1] >= ENOUGH:
        (new, since), count = others.most_common(1)[0]
        # What it lacks in all releases that tell of its parameters it does not call so.
        if new in of_owner and of_owner[new][-1][0] == "-":
            return None
        rename = Rename(new, since, count)
    else:
        return _of_family(apis, package, owner, parameter, installed)
    later = installed is not None and versions.within(f">={rename.since}", installed) is False
    return None if later else rename


def of_config(apis: Apis, package: str, owner: str, parameter: str, installed: str) -> tuple[str, str] | None:
    """The class that takes what a trainer took once, and its name for it: SFTTrainer(packing) is SFTConfig(packing)."""
    if package not in apis or not owner.endswith("Trainer"):
        return None
    config = f"{owner[: -len('Trainer')]}Config"
    changes = apis[package].parameters.get(config, {}).get(parameter)
    if changes is None:
        return None
    fact = exact(apis, f"{config}({parameter}", package)
    if fact is not None and fact.in_release(installed):
        return config, parameter
    renamed = of_parameter(apis, package, config, parameter, installed)
    return (config, renamed.name) if renamed is not None else None


def _of_others(api: Api, owner: str, parameter: str) -> Counter[tuple[str, str]]:
    """How many classes of the same kind changed the parameter for which other one, with which release."""
    kind = KIND.search(owner)
    changes = (
        _likely(params, parameter, strictly=True)
        for other, params in api.parameters.items()
        if parameter in params and (kind is None or other.endswith(kind.group()))
    )
    return Counter((new, since) for new, since, _ in filter(None, changes))


def _of_family(apis: Apis, package: str, owner: str, parameter: str, installed: str | None) -> Rename | None:
    """What the packages that train together call it, where this class has that name, too."""
    for other in FAMILY:
        counts = _of_others(apis[other], owner, parameter) if other in apis and other != package else Counter()
        for (new, _), count in counts.most_common(1):
            fact = exact(apis, f"{owner}({new}", package)
            if count >= ENOUGH and fact is not None and fact.since and fact.in_release(installed or fact.since):
                return Rename(new, fact.since, count)
    return None


def _likely(params: Parameters, parameter: str, *, strictly: bool = False) -> tuple[str, str, bool] | None:
    """The parameter that came for one that went, its release, and whether that is sure enough by itself.

    `strictly`: only one that came alone with the release in which the other went.
    """
    changes = params.get(parameter, ["+0"])
    if changes[-1][0] != "-":
        return None
    gone = {change[1:] for change in changes if change[0] == "-"}
    last, first = _place(changes[-1][1:]), _place(changes[0][1:])
    best: tuple[float, str, str, bool] | None = None
    for name, history in params.items():
        came = history[-1][1:]
        if history[-1][0] != "+" or came == "0" or not first < _place(came) <= last:
            continue
        alike = SequenceMatcher(None, parameter, name).ratio()
        alone = came in gone and _alone(params, came)
        if strictly and not alone:
            continue
        sure = alike > VERY_ALIKE or (alone and alike >= ALIKE)
        best = max(best or (0.0, "", "", False), (alike + alone, name, came, sure))
    return best[1:] if best is not None and (best[3] or strictly or best[0] >= 1) else None


def _alone(params: Parameters, release: str) -> bool:
    """Did one parameter go and one come with a release, and no other?"""
    came = [name for name, history in params.items() if f"+{release}" in history]
    went = [name for name, history in params.items() if f"-{release}" in history]
    return len(came) == len(went) == 1


def _place(release: str) -> Version:
    return versions.parse(release) or Version("0")
