"""A diagnosis in whole sentences: what it relies on, what moved, what to expect."""

from __future__ import annotations

from collections.abc import Iterator

from canet.diagnosis.diagnosis import NEW, TRAINING, Diagnosis
from canet.diagnosis.estimate import Estimate
from canet.diagnosis.expected import ExpectedScore
from canet.diagnosis.reliance import Reliance, by_name
from canet.diagnosis.shift import CLEAR_EFFECT, CLEAR_P_VALUE, Part, Shift

WORTH_TELLING = 1.0  # percent of the predictions
MOSTLY_FAR = 50.0  # percent of the new nodes
LITTLE_TOLD_APART = 1.05


def headline(found: Diagnosis) -> str:
    """The diagnosis in one line."""
    top = main_reliance(found).features[0]
    relies = f"It relies most on {top.name}"
    if top.flipped.value < WORTH_TELLING:
        relies = "It relies on no single feature block"
    elif top.name in risky_blocks(found):
        relies += ", which moved"
    expected = found.expected
    if expected is None:
        return relies
    hoped = f"{expected.thresholded.value:.0f} %"
    if expected.actual is not None:
        return f"{relies}; {expected.actual.value:.0f} % are right where {hoped} was expected"
    left = accuracy_left(found)
    if left is not None and left.value < expected.thresholded.value:
        return f"{relies}; expect {left.value:.0f} to {hoped} right"
    return f"{relies}; expect {'at most about' if out_of_reach(found) else 'about'} {hoped} right"


def answer(found: Diagnosis) -> list[str]:
    """The diagnosis in a few sentences, a paragraph each: reliance, shift, expected score."""
    paragraphs = [_relies(found)]
    if found.shift is not None:
        paragraphs.append(_moved(found.shift, risky_blocks(found)))
    if found.expected is not None:
        paragraphs.append(_expect(found, found.expected))
    return [" ".join(sentences) for sentences in paragraphs]


def accuracy_left(found: Diagnosis) -> Estimate | None:
    """Accuracy in training if what moved told nothing; None where that was not tried."""
    return found.stressed.accuracy if found.stressed is not None else None


def main_reliance(found: Diagnosis) -> Reliance:
    """Of the training graph, where it was given: there predictions are as they were learnt."""
    return found.reliance.get(TRAINING) or found.reliance[NEW]


def risky_blocks(found: Diagnosis) -> list[str]:
    """Blocks that predictions rely on and that moved, those relied on most first."""
    if found.shift is None:
        return []
    moved = {block.name for block in found.shift.blocks if block.effect >= CLEAR_EFFECT}
    relied = main_reliance(found).features
    return [e.name for e in relied if e.name in moved and e.flipped.value >= WORTH_TELLING]


def out_of_reach(found: Diagnosis) -> bool:
    """Whether most new nodes are so far from training that confidence was never tested there."""
    unlike = found.confidence.unlike
    return unlike is not None and unlike.far.value >= MOSTLY_FAR


def clear_parts(shift: Shift) -> list[Part]:
    """The parts that moved by more than chance and a little."""
    return [
        part
        for part in shift.parts
        if part.effect >= CLEAR_EFFECT and not part.p_value > CLEAR_P_VALUE
    ]


def part_text(part: Part) -> str:
    """How far a part moved: `features (told apart with AUC 0.93)`."""
    if part.auc is not None:
        return f"{part.name} (told apart with AUC {part.auc.value:.2f})"
    if part.name in ("labels", "predictions"):
        return f"{part.name} ({100 * part.effect:.0f} % are other classes)"
    if part.name == "homophily":
        return f"homophily ({part.before:.2f} to {part.after:.2f})"
    return f"{part.name} (mean {part.before:.1f} to {part.after:.1f})"


def interval(estimate: Estimate, digits: int = 0) -> str:
    """`91 % (88 to 94)`."""
    value, low, high = (
        f"{number:.{digits}f}" for number in (estimate.value, estimate.low, estimate.high)
    )
    return f"{value} % ({low} to {high})"


def environment_words(found: Diagnosis) -> list[str]:
    """How many pseudo environments are used, and what they go with, a sentence for each layer."""
    inferred = found.environments.get(NEW) or found.environments.get(TRAINING)
    if inferred is None:
        return []
    sentences = []
    for i, layer in enumerate(inferred.layers, start=1):
        used = f"Layer {i} uses {layer.used:.1f} of {inferred.number} environments"
        if layer.told_apart < LITTLE_TOLD_APART:
            sentences.append(f"{used}, but gives nearly all nodes the same mixture of them.")
            continue
        name, agreement = max(layer.goes_with.items(), key=lambda pair: pair[1], default=("", 0.0))
        goes = f"they go with the {name} (agreement {agreement:.2f})"
        goes = goes if agreement >= CLEAR_EFFECT else "they go with nothing that is known"
        sentences.append(f"{used} and tells nodes apart by {layer.told_apart:.1f}; {goes}.")
    return sentences


def confidence_words(found: Diagnosis) -> list[str]:
    """What confidence is worth."""
    c = found.confidence
    sure = "as sure as it is right"
    if abs(c.valid.confidence - c.valid.accuracy.value) >= 2:
        sure = "too sure" if c.valid.confidence > c.valid.accuracy.value else "not sure enough"
    sentences = [
        f"On validation nodes it is {sure}: mean confidence {c.valid.confidence:.0f} %, accuracy "
        f"{c.valid.accuracy.value:.0f} %; temperature {c.temperature:.2f} brings the calibration "
        f"error from {c.valid.error:.1f} to {c.valid.scaled_error:.1f} points."
    ]
    if c.new is not None:
        half = c.new.abstention[50]
        sentences.append(
            f"On the new graph the error is {c.new.error:.1f} points, {c.new.scaled_error:.1f} at "
            f"that temperature; of the surer half of its nodes {half.value:.0f} % are right, of "
            f"all {c.new.accuracy.value:.0f} %."
        )
    if c.unlike is not None:
        sentences.append(
            f"{c.unlike.far.value:.0f} % of the new nodes are further from training than 95 % of "
            f"the validation nodes (usual: 5 %)."
        )
    return sentences


def _relies(found: Diagnosis) -> Iterator[str]:
    relied = main_reliance(found)
    top, *others = relied.features
    if top.flipped.value < WORTH_TELLING:
        yield (
            f"No feature block matters alone: with values of {relied.donors} none flips more than "
            f"{top.flipped.value:.1f} % of the predictions; all features together flip "
            f"{relied.everything.flipped.value:.0f} %."
        )
    else:
        text = (
            f"It relies most on {top.name}: {top.flipped.value:.0f} % of the predictions flip when "
            f"its values come from {relied.donors}"
        )
        if others and others[0].flipped.value >= WORTH_TELLING:
            text += f", next on {others[0].name} ({others[0].flipped.value:.0f} %)"
        yield f"{text}."
    rewired = next(effect for effect in relied.edges if effect.name == "rewired")
    yield (
        f"Rewired edges flip {rewired.flipped.value:.0f} %, other values in a node's own features "
        f"{relied.own.flipped.value:.0f} %, in those of all others "
        f"{relied.others.flipped.value:.0f} %."
    )
    if len(found.reliance) > 1:
        there = by_name(found.reliance[NEW])[top.name].flipped.value
        yield f"So it is on the training graph; on the new one {top.name} flips {there:.0f} %."


def _moved(shift: Shift, risky: list[str]) -> Iterator[str]:
    parts = clear_parts(shift)
    if not parts and not shift.moved:
        yield "Nothing clearly moved between training and the new graph."
        return
    named = [part_text(part) for part in parts[:2]]
    if shift.moved:
        first = shift.moved[0]
        text = f"{column_text(first.name)} ({_distance(first.difference)})"
        if (count := len(shift.moved)) > 1:
            text = f"{count:,} of {len(shift.columns):,} columns, most of all {text}"
        named.append(text)
    yield f"What moved since training: {'; '.join(named)}."
    if risky:
        yield f"It relies on what moved: {', '.join(risky[:3])}."


def column_text(name: str) -> str:
    """A column's name, or `column 7` where nobody named it."""
    return f"column {name}" if name.isdigit() else name


def _distance(difference: float) -> str:
    up = "up" if difference > 0 else "down"
    size = f"{abs(difference):.1f}" if abs(difference) < 100 else "over 100"
    return f"{up} by {size} standard deviations"


def _expect(found: Diagnosis, expected: ExpectedScore) -> Iterator[str]:
    yield (
        f"Expect {interval(expected.thresholded)} of the predictions on the new graph to be right; "
        f"on validation nodes {expected.valid.value:.0f} % were."
    )
    if out_of_reach(found):
        assert found.confidence.unlike is not None
        yield (
            f"Take that for the best case: {found.confidence.unlike.far.value:.0f} % of the new "
            "nodes are unlike those of training, where its confidence was never tested."
        )
    if (left := accuracy_left(found)) is not None:
        yield f"If what moved told nothing any more, {left.value:.0f} % would be right."
    if expected.actual is not None:
        yield f"By the labels that are there, {expected.actual.value:.0f} % are."
