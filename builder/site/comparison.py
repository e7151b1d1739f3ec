"""From one stack to another, what changes: versions, sizes, advisories, GPUs, patches, training, numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from packaging.version import Version

from builder.certify.certificate import ProbeResult
from builder.intent.advisory import Advisory
from builder.lock.change import Change, changes
from builder.site.stacks import StackPage
from builder.trajectory import comparison as trajectories
from builder.trajectory.verdict import Verdict

# What a change of version touches, by the first part of the release that differs.
PARTS = ("major", "minor", "patch")


@dataclass(frozen=True)
class LayerPair:
    """A layer in both images: the place of each in its image's list, None where the image has no such layer."""

    name: str
    old: int | None
    new: int | None
    shared: bool


@dataclass(frozen=True)
class NumberPair:
    """A probe's headline in a certificate of each stack, with its JSON pointers."""

    probe: str
    name: str
    old: float
    old_at: str
    new: float
    new_at: str


@dataclass(frozen=True)
class Pull:
    """Bytes to pull, and the places of the sizes that they are the sum of."""

    bytes: int
    at: str


@dataclass(frozen=True)
class Comparison:
    """The step from `old` to `new`."""

    old: StackPage
    new: StackPage

    @property
    def page(self) -> str:
        return f"compare/{self.old.name}/{self.new.name}.html"

    @property
    def versions(self) -> list[Change]:
        return changes(self.old.lock.versions, self.new.lock.versions)

    @property
    def facts(self) -> list[tuple[str, str, str]]:
        """What a user notices besides versions: each fact with its two values, where they differ."""
        rows = [
            (title, old, new)
            for (title, old), (_, new) in zip(_facts(self.old).items(), _facts(self.new).items(), strict=True)
        ]
        gpus = self.old.gpus, self.new.gpus
        rows += [(gpu, gpus[0].get(gpu, "–"), gpus[1].get(gpu, "–")) for gpu in {**gpus[0], **gpus[1]}]
        return [row for row in rows if row[1] != row[2]]

    @property
    def layers(self) -> list[LayerPair]:
        """The layers of both images; empty unless both were measured."""
        if self.old.image is None or self.new.image is None:
            return []
        old, new = (
            {layer.name: i for i, layer in enumerate(image.layers)} for image in (self.old.image, self.new.image)
        )
        digests = {layer.digest for layer in self.old.image.layers}
        return [
            LayerPair(
                name, old.get(name), new.get(name), name in new and self.new.image.layers[new[name]].digest in digests
            )
            for name in new | old
        ]

    @property
    def pull(self) -> Pull | None:
        """What a host that has the old image pulls for the new one; None where that is nothing, or not known."""
        missing = [layer.new for layer in self.layers if layer.new is not None and not layer.shared]
        if not missing or self.new.image is None:
            return None
        at = f"evidence/images.json#/images/{self.new.lock.image}/layers"
        layers = self.new.image.layers
        return Pull(sum(layers[i].bytes for i in missing), " ".join(f"{at}/{i}/bytes" for i in missing))

    @property
    def gone(self) -> list[Advisory]:
        """The advisories that match the old lock alone."""
        kept = {advisory.id for advisory in self.new.advisories}
        return [advisory for advisory in self.old.advisories if advisory.id not in kept]

    @property
    def coming(self) -> list[Advisory]:
        """The advisories that match the new lock alone."""
        return Comparison(self.new, self.old).gone

    @property
    def patches(self) -> tuple[list[str], list[str]]:
        """The patches of the old stack alone, and those of the new one alone."""
        old, new = ([patch.file for patch in stack.lock.stack.patch] for stack in (self.old, self.new))
        return [file for file in old if file not in new], [file for file in new if file not in old]

    @property
    def training(self) -> list[Verdict | str]:
        """The verdict on each two golden trajectories of one device, or why these two cannot be compared."""
        both = product(self.old.records, self.new.records)
        alike = [pair for pair in both if pair[0].place.device == pair[1].place.device]
        return [judged for pair in alike for judged in trajectories.pairs(pair)]

    @property
    def not_recorded(self) -> list[str]:
        """The stacks that have no golden trajectories."""
        return [stack.name for stack in (self.old, self.new) if not stack.records]

    @property
    def numbers(self) -> list[NumberPair]:
        """The headlines of both, where both have a certificate that holds."""
        if not self.old.certified or not self.new.certified:
            return []
        old, new = self.old.certified[0], self.new.certified[0]
        headlines = _headlines(old.statement.predicate.probes)
        return [
            NumberPair(probe, name, *old.numbers[probe, name], *new.numbers[probe, name])
            for probe, name in headlines.items()
            if (probe, name) in old.numbers and (probe, name) in new.numbers
        ]


def _headlines(probes: Sequence[ProbeResult]) -> dict[str, str]:
    return {probe.name: probe.headline.name for probe in probes if probe.headline}


def _facts(stack: StackPage) -> Mapping[str, str]:
    intent = stack.lock.stack
    return {
        "device": intent.device,
        "Python": intent.python,
        "Debian": intent.debian,
        "platforms": ", ".join(["amd64", *stack.platforms]),
        "distributions": str(len(stack.lock.python)),
        "Debian packages": str(len(stack.lock.debian)),
        "certified on": ", ".join(entry.hardware for entry in stack.certified) or "nothing",
    }


def part(change: Change) -> str:
    """What a change touches: a major, minor or patch release; or it is added, or removed."""
    if change.old is None or change.new is None:
        return "added" if change.old is None else "removed"
    old, new = (Version(version).release for version in (change.old, change.new))
    width = max(len(old), len(new))
    padded = [release + (0,) * (width - len(release)) for release in (old, new)]
    differing = next((i for i in range(width) if padded[0][i] != padded[1][i]), None)
    if differing is None:
        return "build"
    direction = "" if padded[1] > padded[0] else ", older"
    return PARTS[min(differing, len(PARTS) - 1)] + direction
