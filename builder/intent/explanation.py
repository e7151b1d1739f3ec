"""What the advisories know about a failed probe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from builder.intent.advisory import JUDGEMENTS, Advisory, Judgement


@dataclass(frozen=True)
class Explanation:
    """An advisory that may explain a failure. `symptomatic`: one of its symptoms is in what the probe printed."""

    advisory: Advisory
    judgement: Judgement
    symptomatic: bool


def explain(advisories: Iterable[Advisory], probe: str, output: str, versions: Mapping[str, str]) -> list[Explanation]:
    """The advisories that name a failed probe, and those with a symptom in its output.

    Those that match the installed versions come first; among equals, those with a symptom.
    """
    explanations = [
        Explanation(advisory, advisory.matches(versions), advisory.shows_in(output))
        for advisory in advisories
        if not advisory.withdrawn and (probe in advisory.probes or advisory.shows_in(output))
    ]
    return sorted(
        explanations,
        key=lambda explanation: (JUDGEMENTS.index(explanation.judgement), not explanation.symptomatic),
    )
