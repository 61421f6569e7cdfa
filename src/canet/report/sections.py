"""A comparison as a page shows it: tables, charts, inferred environments, settings, costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from canet.data import CATALOG
from canet.data.benchmarks.catalog import GENERATORS
from canet.data.metrics import METRIC_NAMES
from canet.methods import METHODS, Settings
from canet.report.comparison import Comparison, Contender, differences
from canet.report.context import NO_CONTEXT, ReportContext
from canet.report.curves import Chart, Histories, draw_chart, under_shift, validation
from canet.report.labels import SEARCHED_NOTE, backbone_label
from canet.report.moved import moved_columns
from canet.report.score import Score
from canet.report.section_tables import SectionTable, cost_table, score_table, variant_table
from canet.store.summary import LEFT_OUT, OOD

ALWAYS_SHOWN = ("erm", "canet")
FEW_LINES = 4
"""Up to so many lines of a chart are all in colour."""
CONTROLS_NOTE = (
    "Controls do not compete. A blind model never sees the spurious columns; where these follow "
    "the label in every domain alike, as in the paper, it is no upper bound: a centred model, for "
    "which every domain's columns are centred, reads the label off them, and collapses where they "
    "do not."
)
SPLIT_NAMES = {"train": "training", "valid": "validation", "test_id": "test, ID"}


class LayerEnvironments(NamedTuple):
    """Environments that one layer infers: how many are used, do they match, mean posteriors."""

    effective: Score
    alignment: Score | None
    bars: list[tuple[str, list[float]]]


class Inferred(NamedTuple):
    """Environments of one contender; bars are those of the run `shown`, numbers those of all."""

    contender: Contender
    shown: str
    environments: int
    layers: list[LayerEnvironments]


class Setup(NamedTuple):
    """Settings of one contender: those that are not its method's default, and all."""

    contender: Contender
    changed: list[tuple[str, Any]]
    every: list[tuple[str, Any]]


@dataclass(frozen=True)
class Section:
    """All there is to show of one comparison."""

    anchor: str
    title: str
    tags: list[str]
    notes: list[str]
    tables: list[SectionTable]
    charts: list[tuple[str, Chart]]
    chart_note: str
    legend: list[Contender]
    inferred: list[Inferred]
    variants: SectionTable | None
    costs: SectionTable
    setups: list[Setup]


def make_section(
    comparison: Comparison, histories: Histories, context: ReportContext = NO_CONTEXT
) -> Section:
    """Everything about one comparison, its learning curves read through `histories`."""
    config = comparison.config
    entry = CATALOG.get(config.task)
    metric = METRIC_NAMES[entry.metric] if entry else "score"
    marks = [config.protocol] if config.protocol != "paper" else []
    marks += [config.generator] if config.generator != GENERATORS[0] else []
    marks += [config.features] if comparison.is_structural else []
    marks += ["inductive"] if config.inductive else []
    tags = [f"{metric} in %", f"protocol {config.protocol}", f"{config.features} features"]
    ranked = [c for backbone in comparison.backbones for c in comparison.of(backbone)]
    charts = list(_charts(comparison, histories))
    return Section(
        anchor="-".join([config.task, config.protocol, *marks]),
        title=", ".join([config.task.capitalize(), *marks]),
        tags=tags + ([f"shift: {entry.shift}"] if entry else []),
        notes=list(_notes(comparison, context)),
        tables=[score_table(comparison, b, metric, context) for b in comparison.backbones],
        charts=charts,
        chart_note=_chart_note([chart for _, chart in charts]),
        legend=legend(ranked),
        inferred=[found for c in ranked if (found := _inferred(c))],
        variants=variant_table(comparison, metric, context) if comparison.variants else None,
        costs=cost_table(ranked),
        setups=[_setup(contender) for contender in ranked],
    )


def legend(contenders: Sequence[Contender]) -> list[Contender]:
    """One contender for each label: CaNet, the other methods as listed, then controls."""
    order = ["canet", *METHODS]
    unique = {contender.label: contender for contender in contenders}

    def place(contender: Contender) -> tuple[bool, int, bool]:
        method = contender.config.method
        number = order.index(method) if method in order else len(order)
        return contender.is_control, number, contender.searched

    return sorted(unique.values(), key=place)


def _notes(comparison: Comparison, context: ReportContext) -> Iterator[str]:
    config = comparison.config
    entry = CATALOG.get(config.task)
    if comparison.is_structural:
        yield (
            "Structural features are computed from the graph alone, in place of the task's own. "
            "These scores do not compare with published ones, so none stand beside them."
        )
    if entry and "disjoint" in entry.protocols:
        if config.protocol == "paper":
            yield (
                "Under the paper's protocol a test node usually has a copy in the training "
                "domains: scores tell how well a model resists the spurious columns."
            )
        else:
            yield "Test nodes are really new: the training domains hold no copy of them."
    yield from (extra.note for extra in context.extra_sets if extra.task == config.task)
    if shortened := _shortened(comparison):
        yield f"Trained for fewer epochs than are the default here: {shortened}."
    if any(contender.searched for contender in comparison.contenders):
        yield f"{SEARCHED_NOTE} The overview says who is best without the searched one."
    if any(contender.is_control for contender in comparison.contenders):
        yield CONTROLS_NOTE
    if moved := moved_columns([*comparison.contenders, *comparison.variants]):
        yield (
            "Columns that move between groups of training nodes, given the class, and the share "
            f"of their variance that is between groups: {moved}."
        )


def _shortened(comparison: Comparison) -> str:
    """The numbers of epochs that are below the default, in words."""
    default = Settings().epochs
    epochs = {c.config.settings.get("epochs", default) for c in comparison.contenders}
    shorter = sorted(number for number in epochs if number < default)
    return f"{', '.join(map(str, shorter))} instead of {default}" if shorter else ""


def _charts(comparison: Comparison, histories: Histories) -> Iterator[tuple[str, Chart]]:
    for backbone in comparison.backbones:
        contenders = comparison.of(backbone)[::-1]
        quiet = _quiet(comparison, backbone)
        for words, curve in (("under shift", under_shift), ("validation", validation)):
            if chart := draw_chart(contenders, curve, histories, quiet):
                yield f"{backbone_label(backbone)}, {words}", chart


def _quiet(comparison: Comparison, backbone: str) -> set[str]:
    """Labels that stand back where there are many: not ERM, CaNet, the best nor a control."""
    contenders = comparison.of(backbone)
    if len(contenders) <= FEW_LINES:
        return set()
    verdict = comparison.verdict(backbone)
    best = [contender.label for contender in verdict.best] if verdict else []
    return {
        c.label
        for c in contenders
        if c.searched or (c.config.method not in ALWAYS_SHOWN and c.label not in best)
    }


def _chart_note(charts: Sequence[Chart]) -> str:
    """What lines and bands are, and for whom bands are drawn."""
    lines = [line for chart in charts for line in chart.lines]
    quiet = not all(line.in_focus for line in lines)
    sentences = ["Means over all runs."]
    if any(line.band for line in lines):
        whose = ", drawn for the lines in colour" if quiet else ""
        sentences.append(f"The band is one standard deviation{whose}.")
    if quiet:
        sentences.append(
            "In colour are ERM, CaNet and the best under shift; the others are grey until chosen "
            "above."
        )
    return " ".join(sentences)


def _inferred(contender: Contender) -> Inferred | None:
    """Bars of the first run: environments have no names, so those of two runs do not add up."""
    found = [
        (run.config, environments)
        for run in contender.runs
        if (environments := run.result.get("inferred_environments"))
    ]
    if not found:
        return None
    config, first = found[0]
    depth = len(first["effective"])
    alike = [content for _, content in found if len(content["effective"]) == depth]
    layers = []
    for i in range(depth):
        matches = [content["alignment"][i] for content in alike if content.get("alignment")]
        effective = Score([content["effective"][i] for content in alike])
        bars = [(_split_name(name), rows[i]) for name, rows in first["posterior"].items()]
        layers.append(LayerEnvironments(effective, Score(matches) if matches else None, bars))
    shown = f"data seed {config.data_seed}, run seed {config.seed}"
    return Inferred(contender, shown, len(first["posterior"]["train"][0]), layers)


def _split_name(split: str) -> str:
    return SPLIT_NAMES.get(split, split.removeprefix(OOD).removeprefix(LEFT_OUT))


def _setup(contender: Contender) -> Setup:
    config = contender.config
    known = METHODS.get(config.method)
    defaults = asdict(known.settings_type()) if known else {}
    return Setup(contender, differences(config.settings, defaults), list(config.settings.items()))
