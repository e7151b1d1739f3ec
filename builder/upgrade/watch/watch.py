"""A watch on one stack: what is new upstream is tried in a branch, and the branch says what came of it.

All that fits is tried together. What breaks the suite is bisected, left out, and the rest is tried again; so the branch
ends with the most that may move. The same releases are not tried twice.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from builder.base import errors, sources
from builder.base.project import Project, remove, sha256, write
from builder.certify import certificate
from builder.certify.certify import Options
from builder.intent.advisory import Advisory
from builder.lock import lockfile, renewal
from builder.lock.lockfile import Lock
from builder.lock.renewal import Renewal
from builder.trajectory import comparison, record
from builder.upgrade import outdated, recertify, training
from builder.upgrade.mainline import Mainline
from builder.upgrade.outdated import OutdatedPin
from builder.upgrade.recertification import Progress, Recertification
from builder.upgrade.watch import branch, exposure, git, notices, verdict
from builder.upgrade.watch.branch import Branch
from builder.upgrade.watch.exposure import Exposure

GREEN = ("green", "nothing")
VERDICT = "verdict.md"
TRIED = "tried.json"
ALONE = ("unresolvable", "unsound", "not built")  # together; one by one, some may move


@dataclass
class Watched:
    """What a watch saw of a stack, and did. `unchanged`: the day on which the same was tried; then nothing ran."""

    lock: Lock
    day: datetime.date
    notices: list[str] = field(default_factory=list)
    untrained: list[str] = field(default_factory=list)  # why a record cannot be compared with what is trained today
    newer: list[OutdatedPin] = field(default_factory=list)
    renewal: Renewal | None = None  # by today's Debian packages
    not_renewed: str = ""  # why that is not known
    exposures: list[Exposure] = field(default_factory=list)  # by the user's export of OSV
    records: int = 0  # in that export; 0 where there is none
    trials: list[Recertification] = field(default_factory=list)
    untried: str = ""  # why nothing was tried, although something fits
    failed: str = ""  # why the trials ended early
    unchanged: str = ""
    outcome: str = ""  # of the last trial, an earlier watch's where nothing ran
    branch: str = ""
    commit: str = ""
    pushed: str = ""  # the commit that the branch had before, where an earlier watch made it
    verdict: Path | None = None
    subject: str = ""
    request: str = ""  # the address of the pull or merge request
    main: list[Mainline] = field(default_factory=list)  # the main branches of packages

    @property
    def name(self) -> str:
        return self.lock.name

    @property
    def fitting(self) -> list[OutdatedPin]:
        """What may be tried."""
        return [pin for pin in self.newer if pin.fits != pin.locked]

    @property
    def good(self) -> bool:
        """Does every certificate hold for a while, did everything move that fits, and is no known fix left out?"""
        exposed = any(exposure.needs_a_person for exposure in self.exposures)
        broken = any(main.outcome == "red" for main in self.main)
        return not (self.notices or self.failed or exposed or broken) and self.outcome in ("", *GREEN)


def look(home: Project, name: str, day: datetime.date, scratch: Path) -> Watched:
    """What is new for a stack, and what becomes of its certificates. Nothing is tried."""
    lock = lockfile.load(home, name)
    watched = Watched(lock, day, notices.of(home, lock, day), training.older(home, name))
    watched.newer = outdated.of_stack(lock, scratch)
    if day != certificate.today():
        watched.not_renewed = "a mirror has the packages of today, and not of another day"
        return watched
    try:
        watched.renewal = renewal.of(home, lock, scratch)
    except (errors.NetworkError, errors.MissingToolError) as error:  # everything else can be said without it
        watched.not_renewed = error.what.partition("\n")[0]
    return watched


def attempt(
    home: Project, watched: Watched, options: Options, advisories: Sequence[Advisory], scratch: Path,
    progress: Progress, *, force: bool = False,
) -> None:  # fmt: skip
    """Try what fits, on a branch. The caller holds the stack's watch. Raises VettedError and its kinds."""
    identity = _identity(home, watched, options)
    journal = branch.folder(home, watched.name) / "last.json"
    last = _last(journal)
    known = git.commit(home.root, f"refs/heads/{branch.PREFIX}{watched.name}")
    watched.pushed = last
    if not force and known and known == last and _again(home, watched, known, identity, scratch):
        return
    with branch.checked_out(home, watched.name, last) as tree, tree.holding(watched.name) as own:
        train = training.recorded(tree, watched.name, options) is not None
        watched.trials = _trials(tree, watched.fitting, watched.name, options, advisories, own, progress, train=train)
        bad = [trial.outcome for trial in watched.trials if trial.outcome not in GREEN]
        watched.outcome = bad[0] if bad else "green"
        _conclude(tree, watched, identity, own)
        # Before the folders go, which takes a while.
        write(journal, json.dumps({"commit": watched.commit}) + "\n", scratch)
        progress.say("removing the folders of the trials")


def _again(home: Project, watched: Watched, known: str, identity: str, scratch: Path) -> bool:
    """Whether a commit of watch shows what would be tried now; then it says again what it said.

    All of it is in the commit. The state may come from elsewhere, and says only which commits are watch's own.
    """
    own = f"{known}:./{branch.FOLDER}/{watched.name}"
    try:
        tried = json.loads(git.run(home.root, "show", f"{own}/{TRIED}").stdout)
    except (ValueError, RecursionError):
        return False
    keys = ("identity", "day", "outcome")
    if not isinstance(tried, dict) or not all(isinstance(tried.get(key), str) for key in keys):
        return False
    text = git.run(home.root, "show", f"{own}/{VERDICT}").stdout
    if tried["identity"] != identity or not text:
        return False
    watched.unchanged, watched.outcome, watched.commit = tried["day"], tried["outcome"], known
    watched.branch = f"{branch.PREFIX}{watched.name}"
    watched.subject = git.check(home.root, "log", "-1", "--format=%s", known)
    watched.verdict = branch.folder(home, watched.name) / VERDICT
    write(watched.verdict, text, scratch)
    return True


def _trials(
    tree: Branch, pins: Sequence[OutdatedPin], name: str, options: Options, advisories: Sequence[Advisory],
    scratch: Path, progress: Progress, *, train: bool,
) -> list[Recertification]:  # fmt: skip
    """`train`: the stack has golden trajectories. What departs from them ends the trials: a person decides."""
    trials: list[Recertification] = []

    def try_(chosen: Sequence[OutdatedPin]) -> Recertification:
        progress.say(f"trying {', '.join(f'{pin.name} {pin.fits}' for pin in chosen)}")
        (own := scratch / f"trial-{len(trials)}").mkdir()
        upgrade = [f"{pin.name}=={pin.fits}" if pin.name in fixed else pin.name for pin in chosen]
        trials.append(recertify.run(tree, name, upgrade, options, advisories, own, progress, train=train))
        return trials[-1]

    fixed = lockfile.load(tree, name).stack.pinned
    left = list(pins)
    while left:
        result = try_(left)
        if result.outcome in ALONE and len(left) > 1:
            for pin in left:  # what is green moves the branch on
                try_([pin])
            break
        culprits = {change.name for change in result.breaking.culprits} if result.breaking else set()
        if result.outcome in GREEN or culprits.isdisjoint(pin.name for pin in left):
            break
        left = [pin for pin in left if pin.name not in culprits]
    return trials


def _conclude(tree: Branch, watched: Watched, identity: str, scratch: Path) -> None:
    """Write the verdict, and commit it with what moved and what was tried."""
    moved = lockfile.load(tree, watched.name)
    own = Path(branch.FOLDER) / watched.name
    for number, trial in enumerate(watched.trials, start=1):
        _keep(tree, trial, own / f"trial-{number}", scratch)
    watched.subject = verdict.subject(watched.lock, moved, watched.trials)
    certified = next(iter(certificate.of_stack(tree.home, watched.name).values()), None)
    more = verdict.debian(watched.renewal, watched.not_renewed)
    if watched.records:
        more += exposure.section(watched.exposures, watched.records)
    text = verdict.verdict(
        watched.lock, moved, watched.day, watched.newer, watched.notices, watched.trials, certified, more
    )
    write(tree.root / own / VERDICT, text, scratch)
    tried = {"identity": identity, "day": str(watched.day), "outcome": watched.outcome}
    write(tree.root / own / TRIED, json.dumps(tried, indent=1) + "\n", scratch)
    paths = [
        tree.relative(tree.stack_dir(watched.name)), f"images/{watched.name}", "README.md", "README.zh-CN.md", "docs",
        "doctor",
    ]  # fmt: skip
    watched.commit = branch.commit(tree, watched.subject, paths, scratch)
    watched.branch = tree.name
    watched.verdict = branch.folder(tree.home, watched.name) / VERDICT
    write(watched.verdict, text, scratch)


def _keep(tree: Branch, trial: Recertification, own: Path, scratch: Path) -> None:
    """Put a trial's picture, draft of an advisory and reproducer on the branch; `own` is below its root."""
    if trial.training and comparison.drawn(tree, trial.training, scratch, tree.root / own / "training.svg"):
        trial.picture = own / "training.svg"
    if trial.advisory:
        write(tree.root / own / "advisory.toml", trial.advisory.read_bytes(), scratch)
    if trial.reproducer:
        target = tree.root / own / "reproducer"
        remove(target)
        shutil.copytree(trial.reproducer.parent, target, ignore=shutil.ignore_patterns("smoke"))
        if (trial.reproducer.parent / "smoke").is_dir():  # the branch has the same suite
            (target / "smoke").symlink_to(os.path.relpath(tree.smoke, target))
        trial.reproducer = own / "reproducer" / trial.reproducer.name


def _identity(home: Project, watched: Watched, options: Options) -> str:
    """What decides what a trial would show: the lock, the suite, the trajectories, what fits, and where it runs."""
    trajectories = home.relative(record.folder(home, watched.name))
    parts = [
        watched.lock.digest, sources.digest(home.smoke), options.engine, options.device,
        git.run(home.root, "rev-parse", "--verify", "--quiet", f"HEAD:./{trajectories}").stdout.strip(),
        *(asdict(pin) for pin in watched.fitting),
    ]  # fmt: skip
    return sha256(json.dumps(parts, sort_keys=True).encode())


def _last(journal: Path) -> str:
    """The commit that the last watch left; "" where there was none, or its file was damaged."""
    try:
        content = json.loads(journal.read_text())
    except (OSError, ValueError, RecursionError):
        return ""
    commit = content.get("commit") if isinstance(content, dict) else None
    return commit if isinstance(commit, str) else ""
