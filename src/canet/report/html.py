"""The report: one HTML page without external resources, with a section for each comparison."""

import base64
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean

from canet.data import DATASETS, GENERATORS
from canet.data.benchmarks.dataset import USER_GRAPH
from canet.errors import warn_user
from canet.methods import METHODS, Settings
from canet.report.comparison import (
    NO_CONTEXT,
    Comparison,
    Contender,
    Ranking,
    ReportContext,
    compare,
    find_results,
)
from canet.report.curves import curve_figure
from canet.report.labels import SEARCHED_NOTE
from canet.report.page_tables import (
    NO_SCORE,
    Column,
    PageTable,
    Row,
    cost_table,
    environment_tables,
    machine_table,
    ranked_scores,
    score_table,
    selection_rules,
    settings_table,
    sort_key,
    stored_table,
    variant_table,
)
from canet.report.score import Score
from canet.report.tables import Table
from canet.runs.run import read_failure
from canet.scoring.metrics import METRICS
from canet.store import RunFolder, open_runs
from canet.store.run_folder import CONFIG, folders_below
from canet.util.files import read_regular
from canet.util.rendering import environment, inline_svg, number, write_page

TYPES = {".png": "image/png", ".svg": "image/svg+xml"}
MAX_BYTES = 2**25  # per picture


def write_report(out: Path, target: Path, context: ReportContext = NO_CONTEXT) -> None:
    """Write a page about all finished runs at or below `out` to the file `target`.

    `out` is a folder or an archive of runs. The page includes the tables in `out/tables` and the
    figures in `out/figures`. It lists the runs that cannot be read.
    """
    folder = Path(__file__).parent / "templates"
    templates = environment(folder, count_best=count_best, sort_key=sort_key)
    with open_runs(out) as root:
        results, left_out = find_results(root)
        sections = [Section(comparison, context) for comparison in compare(results, context)]
        rankings, overview = make_overview(sections, context)
        everyone = [contender for section in sections for contender in section.everyone]
        runs = [run for contender in everyone for run in contender.runs]
        page = templates.get_template("report.html.jinja").render(
            default_epochs=Settings().epochs,
            searched_note=SEARCHED_NOTE,
            sections=sections,
            rankings=rankings,
            is_shifted=all(section.comparison.is_shifted for section in sections),
            overview=overview,
            num_runs=len(runs),
            num_configurations=len(everyone),
            rules=selection_rules(runs),
            machines=machine_table(runs),
            seconds=sum(run.result.seconds for run in runs),
            left_out=left_out,
            failures=failures(root),
            figures=figures(root / "figures"),
            tables=[stored_table(Table.read(p)) for p in sorted(root.glob("tables/*.json"))],
        )
    write_page(page, target)


class Section:
    """The content of the section of one comparison."""

    def __init__(self, comparison: Comparison, context: ReportContext = NO_CONTEXT) -> None:
        config, backbones = comparison.config, comparison.backbones
        marks = [config.protocol] if config.protocol != "paper" else []
        marks += [config.generator] if config.generator != GENERATORS[0] else []
        marks += [config.features] if comparison.is_structural else []
        marks += ["inductive"] if config.inductive else []
        name = Path(config.task).name  # the task of a graph store is its path
        shown_name = "Your graph" if config.task == USER_GRAPH else name.capitalize()
        self.comparison = comparison
        self.anchor = "-".join([name, config.protocol, *marks])
        self.title = ", ".join([shown_name, *marks])
        self.dataset = DATASETS.get(config.task)  # None for a task that is not in the catalogue
        self.metric = METRICS[self.dataset.metric].label if self.dataset else "score"

        default, contenders = Settings().epochs, comparison.contenders
        epochs = {c.config.settings.get("epochs", default) for c in contenders}
        self.short_epochs = sorted(number for number in epochs if number < default)
        self.everyone = [*contenders, *comparison.variants]
        found = ((contender, _shifted_columns(contender)) for contender in self.everyone)
        self.shifted_columns = [(contender, columns) for contender, columns in found if columns]
        self.tables = [score_table(comparison, b, self.metric, context) for b in backbones]
        ranked = list[Contender]()
        for backbone in backbones:
            ranked += [c for c in comparison.of(backbone) if c not in ranked]
        figure = curve_figure(comparison)
        self.curves = inline_svg(figure, [c.colour for c in ranked]) if figure else None
        self.environments = [table for c in ranked for table in environment_tables(c)]
        variants = [variant_table(comparison, self.metric)] if comparison.variants else []
        self.folded = [*variants, settings_table(ranked), cost_table(ranked)]


def legend(contenders: Sequence[Contender]) -> list[Contender]:
    """One contender for each label: CaNet, the other methods, then controls."""
    unique = {contender.label: contender for contender in contenders}

    def order(contender: Contender) -> tuple[bool, int, bool]:
        method = contender.config.method
        number = ["canet", *METHODS, method].index(method)
        return bool(contender.control), number, contender.is_searched

    return sorted(unique.values(), key=order)


def _shifted_columns(contender: Contender) -> list[tuple[int, float]]:
    """Shifted columns with their mean share of variance, those found in most runs first."""
    shares: dict[int, list[float]] = {}
    for found in filter(None, (run.result.findings for run in contender.runs)):
        for column, share in zip(found.shifted_columns, found.share, strict=True):
            shares.setdefault(column, []).append(share)
    ranked = sorted(shares, key=lambda c: (-len(shares[c]), -mean(shares[c]), c))
    return [(column, mean(shares[column])) for column in ranked]


def make_overview(
    sections: Sequence[Section], context: ReportContext
) -> tuple[list[Ranking], PageTable]:
    """The rankings with at least two methods, and a table with a row for each of them."""
    rankings, rows, leads = [], [], []
    scores = list[dict[str, Score]]()  # by the labels of the contenders
    for section in sections:
        for backbone in section.comparison.backbones:
            ranking = section.comparison.ranking(backbone)
            if ranking is None:
                continue
            contenders = section.comparison.of(backbone)
            cells = ranked_scores(contenders, section.comparison.splits[0], context)
            scores.append({c.label: cell for c, cell in zip(contenders, cells, strict=True)})
            title = section.comparison.title_of(backbone)
            rows.append(Row(section.title, title, target=section.anchor))
            best = " and ".join(ranking.best_labels)
            if len(ranking.best) == 1:
                lead = number(ranking.points, 2 if ranking.points < 0.1 else 1)
                best += f", {lead} points above {ranking.ranked[1].label}"
            leads.append(f"{best} ({ranking.lead})")
            rankings.append(ranking)
    everyone = [c for section in sections for c in section.comparison.contenders]
    columns = [Column("best", "", leads)]
    columns += [
        Column(c.label, "", [row.get(c.label, NO_SCORE) for row in scores])
        for c in legend(everyone)
        if any(c.label in row for row in scores)
    ]
    return rankings, PageTable("Scores", rows, columns, head="task")


def count_best(rankings: Iterable[Ranking]) -> list[tuple[int, list[str]]]:
    """Number of first ranks → labels with that number, the highest number first."""
    counts = Counter(ranking.ranked[0].label for ranking in rankings)
    names = sorted(counts, key=str.casefold)
    times = sorted(set(counts.values()), reverse=True)
    return [(number, [name for name in names if counts[name] == number]) for number in times]


def figures(folder: Path) -> list[tuple[str, str]]:
    """Title and data URI of each picture of a folder, sorted by name; SVG is preferred over PNG.

    `ablation-bars-cora.svg` has the title `Ablation: bars cora`. Links to files outside the folder
    are left out with a warning.
    """
    paths = {path.stem: path for suffix in TYPES for path in folder.glob(f"*{suffix}")}
    inside = folder.parent.resolve() / folder.name
    found = []
    for name, path in sorted(paths.items()):
        if path.resolve().parent != inside:
            warn_user(f"left out '{path}': the picture is not in this folder")
            continue
        title = name.replace("_", "-").replace("-", ": ", 1).replace("-", " ")
        content = base64.b64encode(read_regular(path, MAX_BYTES)).decode()
        uri = f"data:{TYPES[path.suffix]};base64,{content}"
        found.append((title[0].upper() + title[1:], uri))
    return found


def failures(out: Path) -> list[tuple[str, list[str]]]:
    """Name and last lines of each failed job at or below `out` that no later attempt finished."""
    found = []
    for folder in folders_below(out):
        run = RunFolder(folder)
        if not run.finished and (lines := read_failure(run)):
            name = folder.relative_to(out).as_posix()
            if (folder / CONFIG).exists():
                config = run.read_config()
                job = f"{config.task} {config.method}-{config.backbone}, seed {config.seed}"
                name = f"{job} ({name})"
            found.append((name, lines))
    return found
