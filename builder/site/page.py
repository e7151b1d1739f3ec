"""A page of the site, and the content that every page may show."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from builder.base.project import Project
from builder.intent.advisory import Advisory
from builder.site import markup
from builder.site.certificates import Certificate
from builder.site.proof import Proof
from builder.site.stacks import StackPage

REGISTRY = "registry.example.org/team/vetted"  # in the commands, where nobody named one
COMPARED = 40  # stacks of which each pair has a page: such pages grow with the square of it


@dataclass(frozen=True)
class Content:
    """All that the site shows. `commit`: of the project, with `-dirty` after changes; empty without git.
    `registry`: where the images are published."""

    project: Project
    stacks: Sequence[StackPage]
    advisories: Sequence[Advisory]
    proof: Proof
    day: datetime.date
    commit: str
    registry: str = REGISTRY

    @cached_property
    def lists(self) -> list[Certificate]:
        """Every certificate that is there today."""
        return [entry for stack in self.stacks for entry in stack.current]

    @cached_property
    def compared(self) -> Sequence[StackPage]:
        """The stacks of which each pair has a page; where there are too many, those that are certified first."""
        chosen = {stack.name for stack in sorted(self.stacks, key=lambda stack: not stack.certified)[:COMPARED]}
        return [stack for stack in self.stacks if stack.name in chosen]


@dataclass(frozen=True)
class Page:
    """One file of the site. `kind`: what the search may be limited to; empty: the search does not know this page."""

    path: str
    template: str
    title: str
    kind: str = ""
    values: Mapping[str, object] = field(default_factory=dict)

    @property
    def root(self) -> str:
        """The way from this page to the site's root."""
        return "../" * self.path.count("/")

    def html(self, content: Content) -> str:
        """The page, complete."""
        template = markup.templates().get_template(self.template)
        return template.render(page=self, root=self.root, content=content, **self.values)
