"""A comparison as a page shows it: tables, charts, inferred environments, settings, costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, NamedTuple

from canet.console import METRIC_NAMES
from canet.data import CATALOG
from canet.experiments.paper.french_labels import SHIFTED, SPLIT
from canet.experiments.published import published
from canet.experiments.report.comparison import Comparison, Contestant, Spread, differences, spread
from canet.experiments.report.curves import Chart, Histories, draw_chart, under_shift, validation
from canet.experiments.results import OOD_MEAN
from canet.experiments.tables import GAP, METHOD_LABELS
from canet.methods import METHODS, Settings
from canet.training.summary import LEFT_OUT, OOD

SPLIT_NAMES = {"train": "training", "valid": "validation", "test_id": "test, ID"}


class Column(NamedTuple):
    """A sortable column; `about` is shown below its name."""

    name: str
    about: str = ""
    words: bool = False
    sorted: bool = False


class Cell(NamedTuple):
    """What a cell shows, beside and below it too, what it is sorted by, and whether it is best."""

    text: str
    key: float | str
    beside: str = ""
    below: str = ""
    best: bool = False


class Row(NamedTuple):
    """A line of a table: a contestant, its name and what is special about it, then cells."""

    contestant: Contestant
    name: str
    about: str
    cells: list[Cell]


class Table(NamedTuple):
    title: str
    caption: str
    columns: list[Column]
    rows: list[Row]


class Layer(NamedTuple):
    """Environments that one layer infers: how many are used, do they match, mean posteriors."""

    effective: Spread
    alignment: Spread | None
    bars: list[tuple[str, list[float]]]


class Inferred(NamedTuple):
    """Environments of one contestant; bars are those of the run `shown`, numbers those of all."""

    contestant: Contestant
    shown: str
    environments: int
    layers: list[Layer]


class Setup(NamedTuple):
    """Settings of one contestant: those that are not its method's default, and all."""

    contestant: Contestant
    changed: list[tuple[str, Any]]
    every: list[tuple[str, Any]]


@dataclass(frozen=True)
class Section:
    """All there is to show of one comparison."""

    anchor: str
    title: str
    tags: list[str]
    notes: list[str]
    tables: list[Table]
    charts: list[tuple[str, Chart]]
    legend: list[Contestant]
    inferred: list[Inferred]
    variants: Table | None
    costs: Table
    setups: list[Setup]


def make_section(comparison: Comparison, histories: Histories) -> Section:
    """Everything about one comparison, its learning curves read through `histories`."""
    config = comparison.config
    entry = CATALOG.get(config.task)
    metric = METRIC_NAMES[entry.metric] if entry else "score"
    marks = [config.protocol] if config.protocol != "paper" else []
    marks += [config.features] if comparison.is_structural else []
    marks += ["inductive"] if config.inductive else []
    tags = [f"{metric} in %", f"protocol {config.protocol}", f"{config.features} features"]
    ranked = [c for backbone in comparison.backbones for c in comparison.of(backbone)]
    return Section(
        anchor="-".join([config.task, config.protocol, *marks]),
        title=", ".join([config.task.capitalize(), *marks]),
        tags=tags + ([f"shift: {entry.shift}"] if entry else []),
        notes=list(_notes(comparison)),
        tables=[_scores(comparison, backbone, metric) for backbone in comparison.backbones],
        charts=list(_charts(comparison, histories)),
        legend=legend(ranked),
        inferred=[found for c in ranked if (found := _inferred(c))],
        variants=_variants(comparison, metric) if comparison.variants else None,
        costs=_costs(ranked),
        setups=[_setup(contestant) for contestant in ranked],
    )


def label_of(contestant: Contestant) -> str:
    """The method as tables name it."""
    name = METHOD_LABELS.get(contestant.config.method, contestant.config.method)
    return f"{name} ceiling" if contestant.is_ceiling else name


def legend(contestants: Sequence[Contestant]) -> list[Contestant]:
    """One contestant for each label: CaNet, the other methods as listed, then the ceiling."""
    order = ["canet", *METHODS]
    unique = {label_of(contestant): contestant for contestant in contestants}

    def place(contestant: Contestant) -> tuple[bool, int]:
        method = contestant.config.method
        return contestant.is_ceiling, order.index(method) if method in order else len(order)

    return sorted(unique.values(), key=place)


def number(value: float, digits: int) -> str:
    """With a true minus sign, but none before nought; a dash for what is not a number."""
    if not math.isfinite(value):
        return GAP
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def setting_text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def _notes(comparison: Comparison) -> Iterator[str]:
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
    if config.task == "twitch":
        yield (
            "The published column of FR was most likely scored with shifted labels: it stands "
            "beside no score whose labels are in their place."
        )
    if shortened := _shortened(comparison):
        yield f"Trained for fewer epochs than the published settings have: {shortened}."
    if any(contestant.is_ceiling for contestant in comparison.contestants):
        yield (
            "The ceiling never sees the spurious columns: it is no competitor, but tells what "
            "is left to gain."
        )


def _shortened(comparison: Comparison) -> str:
    """The numbers of epochs that are below the default, in words."""
    default = Settings().epochs
    epochs = {c.config.settings.get("epochs", default) for c in comparison.contestants}
    shorter = sorted(number for number in epochs if number < default)
    return f"{', '.join(map(str, shorter))} instead of {default}" if shorter else ""


def _scores(comparison: Comparison, backbone: str, metric: str) -> Table:
    contestants = comparison.of(backbone)
    rows = [(contestant, "") for contestant in contestants]
    return _score_table(backbone.upper(), metric, comparison.splits, rows)


def _variants(comparison: Comparison, metric: str) -> Table:
    """The same methods with other settings, each named by what is other."""

    def key(contestant: Contestant) -> tuple[str, str, str]:
        config = contestant.config
        return config.backbone, config.method, config.features

    main = {key(contestant): contestant for contestant in comparison.contestants}
    rows = []
    for variant in sorted(comparison.variants, key=key):
        changed = differences(variant.config.settings, main[key(variant)].config.settings)
        words = [f"{name} = {setting_text(value)}" for name, value in changed]
        rows.append((variant, ", ".join([variant.config.backbone.upper(), *words])))
    return _score_table("Other settings", metric, comparison.splits, rows, ranked=False)


def _score_table(
    title: str,
    metric: str,
    splits: Sequence[str],
    contestants: Sequence[tuple[Contestant, str]],
    ranked: bool = True,
) -> Table:
    everyone = [contestant for contestant, _ in contestants]
    rules = {trained.run.result["selection"] for c in everyone for trained in c.trained}
    bases = {contestant.basis for contestant in everyone}
    over = f" over {bases.pop()}" if len(bases) == 1 else ""
    caption = f"{metric} in %, mean ± standard deviation{over}, epoch by {' or '.join(rules)}"
    twice = any(len(c.draws) > 1 and c.spread_over_runs(OOD_MEAN).size > 1 for c in everyone)
    columns = [Column("method", words=True), *map(_column, splits), Column("lost", "ID − OOD")]
    columns[1] = columns[1]._replace(sorted=ranked)
    columns += [Column("one draw", "OOD over its runs")] if twice else []
    columns += [Column("runs", "spread over")]
    rivals = [c for c in everyone if not c.is_ceiling] if ranked else []
    contests = splits if len(rivals) > 1 else []
    best = {split: max(_shown(c, split) for c in rivals) for split in contests}
    rows = []
    for contestant, about in contestants:
        cells = [_cell(contestant, split, best.get(split)) for split in splits]
        if not ranked:
            cells = [cell._replace(below="") for cell in cells]
        lost = contestant.spread("test_id").mean - contestant.spread(OOD_MEAN).mean
        cells.append(Cell(number(lost, 1), _key(lost)))
        if twice:
            again = contestant.spread_over_runs(OOD_MEAN)
            cells.append(_spread_cell(again) if again.size > 1 else Cell(GAP, ""))
        num_runs = len(contestant.trained)
        cells.append(Cell(str(num_runs), num_runs, below=contestant.basis))
        rows.append(Row(contestant, label_of(contestant), about, cells))
    return Table(title, caption, columns, rows)


def _column(split: str) -> Column:
    if split == OOD_MEAN:
        return Column("OOD mean", "all shifted sets")
    if split == "test_id":
        return Column("ID", "not shifted")
    if split.startswith(LEFT_OUT):
        return Column(split.removeprefix(LEFT_OUT), "not in the paper")
    return Column(split.removeprefix(OOD), "no result" if split == SHIFTED else "shifted")


def _cell(contestant: Contestant, split: str, best: float | None) -> Cell:
    marked = not contestant.is_ceiling and split != SHIFTED and _shown(contestant, split) == best
    below = _paper_text(contestant, split)
    return _spread_cell(contestant.spread(split))._replace(below=below, best=marked)


def _paper_text(contestant: Contestant, split: str) -> str:
    """The paper's number; that of FR belongs to the score with shifted labels."""
    told = published(contestant.config, SPLIT if split == SHIFTED else split)
    if told is None or split == SPLIT:
        return ""
    return "paper OOM" if told.mean is None else f"paper {told.mean:.2f} ± {told.std:.2f}"


def _spread_cell(found: Spread) -> Cell:
    std = f"± {found.std:.2f}" if found.size > 1 and math.isfinite(found.std) else ""
    return Cell(number(found.mean, 2), _key(found.mean), std)


def _shown(contestant: Contestant, split: str) -> float:
    """The score with the digits that a table shows, so that equals are marked alike."""
    mean = contestant.spread(split).mean
    return round(mean, 2) if math.isfinite(mean) else -math.inf


def _key(value: float) -> float | str:
    """What a number is sorted by; nothing if it is none."""
    return round(value, 4) if math.isfinite(value) else ""


def _charts(comparison: Comparison, histories: Histories) -> Iterator[tuple[str, Chart]]:
    for backbone in comparison.backbones:
        contestants = comparison.of(backbone)[::-1]
        for words, curve in (("under shift", under_shift), ("validation", validation)):
            if chart := draw_chart(contestants, curve, histories):
                yield f"{backbone.upper()}, {words}", chart


def _inferred(contestant: Contestant) -> Inferred | None:
    """Bars of the first run: environments have no names, so those of two runs do not add up."""
    found = [
        (trained.run.config, environments)
        for trained in contestant.trained
        if (environments := trained.run.result.get("inferred_environments"))
    ]
    if not found:
        return None
    config, first = found[0]
    layers = []
    for i in range(len(first["effective"])):
        matches = [content["alignment"][i] for _, content in found if content["alignment"]]
        effective = spread([content["effective"][i] for _, content in found])
        bars = [(_split_name(name), rows[i]) for name, rows in first["posterior"].items()]
        layers.append(Layer(effective, spread(matches) if matches else None, bars))
    shown = f"data seed {config.data_seed}, run seed {config.seed}"
    return Inferred(contestant, shown, len(first["posterior"]["train"][0]), layers)


def _split_name(split: str) -> str:
    return SPLIT_NAMES.get(split, split.removeprefix(OOD).removeprefix(LEFT_OUT))


def _costs(contestants: Sequence[Contestant]) -> Table:
    columns = [Column("method", words=True), Column("ms per epoch"), Column("peak memory", "MB")]
    columns += [Column("epoch chosen", "median"), Column("device", words=True)]
    rows = []
    for contestant in contestants:
        results = [trained.run.result for trained in contestant.trained]
        epoch = spread([1000 * result["seconds_per_epoch"] for result in results]).mean
        memory = max(result["peak_memory_mb"] for result in results)
        chosen = median(result["selected_epoch"] for result in results)
        devices = ", ".join(sorted({result["device"] for result in results}))
        cells = [Cell(number(epoch, 1), _key(epoch)), Cell(number(memory, 0), _key(memory))]
        cells += [Cell(f"{chosen:g}", chosen), Cell(devices, devices)]
        about = contestant.config.backbone.upper()
        rows.append(Row(contestant, label_of(contestant), about, cells))
    caption = "means over runs; memory is the run's peak on a GPU, the process's on a CPU"
    return Table("Time and memory", caption, columns, rows)


def _setup(contestant: Contestant) -> Setup:
    config = contestant.config
    known = METHODS.get(config.method)
    defaults = asdict(known.settings_type()) if known else {}
    return Setup(contestant, differences(config.settings, defaults), list(config.settings.items()))
