"""A diagnosis on one screen of a terminal."""

from __future__ import annotations

from textwrap import fill

from canet.diagnosis.between_words import group_words
from canet.diagnosis.diagnosis import NEW, TRAINING, Diagnosis
from canet.diagnosis.estimate import Estimate
from canet.diagnosis.reliance import ALL, OTHERS, OWN, by_name
from canet.diagnosis.shift import Shift
from canet.diagnosis.words import answer, confidence_words, environment_words, main_reliance
from canet.util.console import print_table

WIDTH = 98
HEADS = {TRAINING: "train", NEW: "new"}
MOST_BLOCKS, MOST_COLUMNS, LONGEST = 4, 2, 24


def show(found: Diagnosis) -> None:
    """Print what matters: the answer, reliance, shift, groups, environments, confidence."""
    print(title(found))
    for paragraph in answer(found):
        print(fill(paragraph, WIDTH))
    _show_reliance(found)
    if found.shift is not None:
        _show_shift(found.shift)
    for sentences in (group_words(found), environment_words(found), confidence_words(found)):
        if sentences:
            print(fill(" ".join(sentences), WIDTH))


def title(found: Diagnosis) -> str:
    """The model and the graphs, in a line."""
    sizes = [f"{name} graph {nodes:,} nodes" for name, (nodes, _) in found.graphs.items()]
    model = f"{found.model.method}-{found.model.backbone}"
    return f"{model}, {len(found.model.classes)} classes; {', '.join(sizes)}"


def _show_reliance(found: Diagnosis) -> None:
    main = main_reliance(found)
    shown = [effect.name for effect in main.features[:MOST_BLOCKS]]
    shown += [ALL, "edges rewired", "edges dropped", OWN, OTHERS]
    heads, rows = ["changed"], {name: [_short(name)] for name in shown}
    for graph in (TRAINING, NEW):
        if (relied := found.reliance.get(graph)) is None:
            continue
        heads.append(f"{HEADS[graph]}: flips %")
        if relied.accuracy is not None:
            heads.append(f"right: {relied.accuracy.value:.1f} to")
        for name, effect in by_name(relied).items():
            if name in rows:
                rows[name].append(_range(effect.flipped))
                if effect.accuracy is not None:
                    rows[name].append(f"{effect.accuracy.value:.1f}")
    hidden = len(main.features) - MOST_BLOCKS
    more = f"; blocks that flip less: {hidden}" if hidden > 0 else ""
    print_table(f"Relies on (values of {main.donors}{more})", heads, list(rows.values()))


def _show_shift(shift: Shift) -> None:
    rows = [
        [part.name, f"{part.effect:.2f}", part.measure, _p_value(part.p_value)]
        for part in shift.parts
    ]
    for column in shift.columns[:MOST_COLUMNS]:
        measure = f"KS, mean {column.before:.3g} to {column.after:.3g}"
        name = _short(f"column {column.name}")
        rows.append([name, f"{column.effect:.2f}", measure, _p_value(column.p_value)])
    print_table(
        "Moved since training (0: not at all, 1: nothing as before)",
        ["part", "effect", "measure", "p, corrected"],
        rows,
    )


def _range(estimate: Estimate) -> str:
    return f"{estimate.value:.1f} ({estimate.low:.1f}-{estimate.high:.1f})"


def _p_value(p_value: float) -> str:
    if p_value != p_value:
        return "-"
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."
