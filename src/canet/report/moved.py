"""The columns that interventions found to move between groups of training nodes, in words."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import mean

from canet.report.comparison import Contender
from canet.report.labels import backbone_label

MOST_NAMED = 12


def moved_columns(contenders: Iterable[Contender]) -> str:
    """Each contender with interventions, and its columns by how many runs and how much moved.

    Such as `CaNet, GCN, inferred groups: 1433 (88 %), …`; empty where no run has interventions.
    """
    return "; ".join(filter(None, map(_columns_of, contenders)))


def _columns_of(contender: Contender) -> str:
    found = [run.result.get("findings", {}) for run in contender.runs]
    shares: dict[int, list[float]] = {}
    for one in found:
        for column, share in zip(one.get("moved_columns", ()), one.get("share", ()), strict=True):
            shares.setdefault(column, []).append(share)
    ranked = sorted(shares, key=lambda c: (-len(shares[c]), -mean(shares[c]), c))
    if not ranked:
        return ""
    named = [f"{column} ({100 * mean(shares[column]):.0f} %)" for column in ranked[:MOST_NAMED]]
    more = f" and {len(ranked) - MOST_NAMED} more" if len(ranked) > MOST_NAMED else ""
    settings = contender.config.settings
    groups = "given" if settings.get("interventions") == "given" else "inferred"
    who = f"{contender.label}, {backbone_label(contender.config.backbone)}, {groups} groups"
    return f"{who}: {', '.join(named)}{more}"
