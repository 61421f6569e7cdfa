"""The columns that interventions found to move between groups of training nodes, in words."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import mean

from canet.report.comparison import Contestant
from canet.report.labels import backbone_label

MOST_NAMED = 12


def moved_columns(contestants: Iterable[Contestant]) -> str:
    """Each contestant with interventions, and its columns by how many runs and how much moved.

    Such as `CaNet, GCN, inferred groups: 1433 (88 %), …`; empty where no run has interventions.
    """
    return "; ".join(filter(None, map(_columns_of, contestants)))


def _columns_of(contestant: Contestant) -> str:
    shares: dict[int, list[float]] = {}
    for found in (run.result.findings for run in contestant.runs):
        if found is not None:
            for column, share in zip(found.moved_columns, found.share, strict=True):
                shares.setdefault(column, []).append(share)
    ranked = sorted(shares, key=lambda c: (-len(shares[c]), -mean(shares[c]), c))
    if not ranked:
        return ""
    named = [f"{column} ({100 * mean(shares[column]):.0f} %)" for column in ranked[:MOST_NAMED]]
    more = f" and {len(ranked) - MOST_NAMED} more" if len(ranked) > MOST_NAMED else ""
    settings = contestant.config.settings
    groups = "given" if settings.get("interventions") == "given" else "inferred"
    who = f"{contestant.label}, {backbone_label(contestant.config.backbone)}, {groups} groups"
    return f"{who}: {', '.join(named)}{more}"
