"""The page's first sentences: how often each method is best under shift, and what leads are worth.

Every method is described in the same words; a tie is reported as a tie and counts for nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from canet.report.comparison import Contender, Lead, Verdict
from canet.report.score import number


def headline(verdicts: Sequence[Verdict]) -> str:
    """Who is best how often, by the means of runs."""
    contests = _contests(verdicts)
    if not contests:
        return "Scores under shift"
    if len(contests) == 1:
        return _alone(contests[0])
    parts = _counts(v for v in contests if v.lead is not Lead.TIED)
    ties = Counter(joined(labels(v.best)) for v in contests if v.lead is Lead.TIED)
    parts += [f"{names} tied in {times}" for names, times in sorted(ties.items())]
    return f"Best under shift in {len(contests)} comparisons: {'; '.join(parts)}"


def evidence(verdicts: Sequence[Verdict]) -> str:
    """How many of the leads exceed the spread, whose these are, and who is never best."""
    contests = _contests(verdicts)
    if len(contests) < 2:
        return ""
    clear = [v for v in contests if v.lead is Lead.CLEAR]
    leads = Counter(v.lead for v in contests)
    whose = f" ({'; '.join(_counts(clear))})" if clear else ""
    of_all = f"{len(clear)} of {len(contests)} comparisons"
    parts = [f"The lead is larger than the spread in {of_all}{whose}"]
    parts += [f"within it in {leads[Lead.WITHIN]}"] if leads[Lead.WITHIN] else []
    parts += [f"unknown in {leads[Lead.SINGLE]} of single runs"] if leads[Lead.SINGLE] else []
    best = labels(c for v in contests for c in v.best)
    never = [name for name in labels(c for v in contests for c in v.ranked) if name not in best]
    return f"{joined(parts)}." + (f" Never best: {joined(never)}." if never else "")


def labels(contenders: Iterable[Contender]) -> list[str]:
    """Each once, in the order of the alphabet."""
    return sorted({contender.label for contender in contenders}, key=str.casefold)


def joined(names: Sequence[str]) -> str:
    """`a, b and c`."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _contests(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Those with somebody to compare with."""
    return [verdict for verdict in verdicts if verdict.runner_up]


def _alone(verdict: Verdict) -> str:
    """The sentence about a single comparison."""
    names = joined(labels(verdict.best))
    if verdict.lead is Lead.TIED:
        return f"{names} are tied under shift"
    digits = 1 if verdict.points >= 0.1 else 2
    return (
        f"{names} is best under shift, by {number(verdict.points, digits)} points: {verdict.lead}"
    )


def _counts(verdicts: Iterable[Verdict]) -> list[str]:
    """How often each is best, the most often first; methods of equal counts together."""
    counts = Counter(verdict.ranked[0].label for verdict in verdicts)
    texts = []
    for times in sorted(set(counts.values()), reverse=True):
        names = sorted((n for n, count in counts.items() if count == times), key=str.casefold)
        texts.append(f"{joined(names)} in {times}" + (" each" if len(names) > 1 else ""))
    return texts
