"""The default (`auto`), compared with what a user would take instead, on every task and transfer.

    python -m experiments.choice FILE [--part I/N] [--tasks NAME,…] [--draws N]

compares the models of `auto` on each training set and draw, and adds a JSON object for each to
FILE, as JSON lines; cases that are already in FILE are skipped. `--part 2/15` does the second of 15
parts. With `--seeds`, it trains only a GCN, with three seeds on each real case.
`python -m experiments.choice FILE EARLIER SEEDS --table` prints the tables of the page; EARLIER has
the scores of other networks and of an earlier default that knew only networks, in the same form,
and SEEDS those of `--seeds`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import permutations
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np

from canet.data import DATASETS, GENERATORS, load_task
from canet.data.task import ShiftTask
from canet.models import Auto, Average, Fitted, Options
from canet.models.auto import AutoSettings, Tried, average_of
from canet.models.parts import Parts
from canet.models.portfolio import OWN, PRESETS, Recipe
from canet.report.score import to_percent
from canet.settings import override
from canet.util.devices import device_name

DRAWS = range(3)
CITATION = ("cora", "citeseer", "pubmed")
DECIDED_ON = {
    name: tuple(p for p in DATASETS[name].protocols if not p.startswith("only-"))
    for name in ("election", "webkb", "airports", "twitch", "fb100")
}
"""Real shifts with which the list of models and the rule were decided: task → training sets."""
CONFIRMED = {
    "roads": tuple(p for p in DATASETS["roads"].protocols if p != "manor_tx")[:6],
    "twitch": tuple(p for p in DATASETS["twitch"].protocols if p.startswith("only-")),
}
"""Real shifts that were used once, after all decisions. The scores of Manor had been seen."""
TREES, GCN = Recipe("trees", changes=OWN), Recipe("erm", "gcn")
SIX, AUTO, EARLIER, HINDSIGHT = "mean of six", "auto", "auto, networks only", "best in hindsight"
COLUMNS = {
    AUTO: AUTO,
    "GCN": GCN.name,
    "linear, x": "linear neighbours=False",
    "linear": "linear",
    "trees, x": TREES.name,
    "trees": "trees",
    SIX: SIX,
    "CaNet": "CaNet as published",
    "transformer": "erm-transformer",
    EARLIER: EARLIER,
    HINDSIGHT: HINDSIGHT,
}
"""Column of the tables → name of the model."""
TITLES = {name: column for column, name in COLUMNS.items()}
SIMPLE = [
    GCN.name,
    TREES.name,
    SIX,
    *(recipe.name for recipe in PRESETS["fast"] if recipe.name != "trees scaling=standardised"),
]
"""What a user would take instead."""
NUM_RESAMPLES = 2_000


class Case(NamedTuple):
    """A task, and the seed of data and training."""

    task: str
    protocol: str
    generator: str
    draw: int


def cases(draws: Iterable[int] = DRAWS) -> Iterator[Case]:
    """All cases, draw by draw."""
    for draw in draws:
        for task in CITATION:
            for generator in GENERATORS:
                protocol = "disjoint" if generator == "resampled" else "paper"
                yield Case(task, protocol, generator, draw)
        for tasks in (DECIDED_ON, CONFIRMED):
            for task, protocols in tasks.items():
                yield from (Case(task, protocol, "shared", draw) for protocol in protocols)


class Trained(NamedTuple):
    """All models of `auto` on one case, and their average."""

    task: ShiftTask
    auto: Auto
    parts: Parts
    tried: list[Tried]
    average: Average


def load(case: Case) -> tuple[ShiftTask, AutoSettings]:
    """Return the task of a case, and the settings that all networks share."""
    name, protocol, generator, draw = case
    task = load_task(name, data_seed=draw, protocol=protocol, generator=generator)
    return task, override(AutoSettings(), DATASETS[case.task].shared_settings)


def train(case: Case, device: str) -> Trained:
    """Train all models on one case."""
    task, settings = load(case)
    auto, parts = Auto(settings, Options(device)), Parts(task)
    tried = list(auto.try_all(parts, case.draw))
    return Trained(task, auto, parts, tried, average_of(parts, tried))


def examine(case: Case, device: str) -> dict[str, Any]:
    """Train all models on one case; return the scores under shift, also of their averages."""
    begin = time.monotonic()
    task, auto, _, tried, average = train(case, device)
    models = {one.name: one.model for one in tried if one.model is not None}
    six = [models[recipe.name] for recipe in PRESETS["fast"]]
    models[TREES.name] = TREES.learner(auto.settings, Options(device)).fit(task, case.draw)
    models |= {SIX: Average(six, [1 / len(six)] * len(six)), AUTO: average}
    return {
        **case._asdict(),
        "models": {name: _scores(task, model) for name, model in models.items()},
        "candidates": [asdict(one) for one in average.candidates],
        "seconds": round(time.monotonic() - begin, 1),
        "device": device_name(auto.device),
    }


def with_seeds(case: Case, device: str) -> dict[str, Any]:
    """Train a GCN with several seeds on one case; return the scores under shift."""
    task, settings = load(case)
    learner = GCN.learner(settings, Options(device))
    scores = [_scores(task, learner.fit(task, seed)) for seed in DRAWS]
    return {**case._asdict(), "seeds": scores, "device": device_name(learner.device)}


def _scores(task: ShiftTask, model: Fitted) -> dict[str, float]:
    """Scores of a model on the shifted test sets."""
    metric, logits, y = task.scorer, model.logits(task), task.y
    return {
        name: round(float(metric(logits[f"ood/{name}"], y[nodes])), 5)
        for name, nodes in task.test_ood.items()
    }


Transfer = tuple[str, str, str, str]
"""Task, protocol, generator and test set."""
Scores = Mapping[Transfer, Mapping[str, float]]


def by_transfer(cases: Sequence[Mapping[str, Any]]) -> dict[Transfer, dict[str, float]]:
    """Transfer → score of each model in percent, mean over the draws that the default has."""
    found: dict[Transfer, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    own = {tuple(case[name] for name in Case._fields) for case in cases if "candidates" in case}
    for case in cases:
        if tuple(case[name] for name in Case._fields) not in own:
            continue
        models = dict(case["models"])
        if "candidates" not in case:
            kept = (COLUMNS["CaNet"], COLUMNS["transformer"])
            models = {name: models[name] for name in kept} | {EARLIER: case["ways"]["auto"]}
        for name, sets in models.items():
            for test, score in sets.items():
                transfer = case["task"], case["protocol"], case["generator"], test
                found[transfer][name].append(to_percent(score))
    scores = {t: {name: mean(of) for name, of in names.items()} for t, names in found.items()}
    for names in scores.values():
        names[HINDSIGHT] = max(names[recipe.name] for recipe in PRESETS["robust"])
    return scores


def group(transfer: Transfer) -> str:
    """The row of the tables to which a transfer belongs."""
    task, protocol, generator, _ = transfer
    if task in CITATION:
        return f"{task} {generator}"
    return "twitch, one country" if protocol.startswith("only-") else task


def tables(lines: Sequence[Mapping[str, Any]]) -> str:
    """The tables of the page, in Markdown."""
    seeds = [line for line in lines if "seeds" in line]
    scores = by_transfer([line for line in lines if "seeds" not in line])
    made = {t: s for t, s in scores.items() if t[0] in CITATION}
    confirmed = {t: s for t, s in scores.items() if t[1] in CONFIRMED.get(t[0], ())}
    decided = {t: s for t, s in scores.items() if t not in made and t not in confirmed}
    real = {**decided, **confirmed}
    rows = {
        f"real ({len(real)})": real,
        f"real, decided on ({len(decided)})": decided,
        f"real, to confirm ({len(confirmed)})": confirmed,
        f"synthetic ({len(made)})": made,
    }
    parts = [table_text(["transfers", *COLUMNS], [_means(*row) for row in rows.items() if row[1]])]
    for halves in (real, made):
        groups = dict.fromkeys(map(group, halves))
        by_group = {name: {t: s for t, s in halves.items() if group(t) == name} for name in groups}
        means = [_means(f"{name} ({len(own)})", own) for name, own in by_group.items()]
        parts.append(table_text(["task", *COLUMNS], means))
    parts += [_comparison(real), _limits(real), _between_seeds(real, seeds)]
    return "\n\n".join(parts)


def _means(label: str, scores: Scores) -> list[str]:
    cells = []
    for name in COLUMNS.values():
        values = [own[name] for own in scores.values() if name in own]
        cells.append(f"{mean(values):.1f}" if len(values) == len(scores) else "–")
    return [label, *cells]


def _comparison(scores: Scores) -> str:
    """How far `auto` is above each simple model on real transfers, with intervals over tasks."""
    rows = []
    for name in [*SIMPLE, HINDSIGHT]:
        lead = {t: own[AUTO] - own[name] for t, own in scores.items()}
        low, high = _interval(lead)
        lost = [f"{100 * mean(one < -limit for one in lead.values()):.0f} %" for limit in (1, 3)]
        title = TITLES.get(name, name)
        rows.append([title, f"{mean(lead.values()):+.1f}", f"{low:+.1f} to {high:+.1f}", *lost])
    heads = ["`auto` against", "mean", "95 % interval", "more than 1 below", "more than 3 below"]
    return table_text(heads, rows)


def _limits(scores: Scores) -> str:
    """How often a choice that knows the test scores of a training set is below a simple model."""
    models, sets = [recipe.name for recipe in PRESETS["robust"]], defaultdict(list)
    for transfer, own in scores.items():
        sets[transfer[:-1]].append(own)
    found = []
    for name in (COLUMNS["linear, x"], COLUMNS["GCN"]):
        lead = [
            own[best] - own[name]
            for group in sets.values()
            for best in [max(models, key=lambda m: mean(own[m] for own in group))]
            for own in group
        ]
        found.append([TITLES[name], f"{100 * mean(one < -1 for one in lead):.0f} %"])
    heads = ["the best model of each training set, chosen with the test labels, against"]
    return table_text([*heads, "more than 1 below"], found)


def _between_seeds(scores: Scores, lines: Sequence[Mapping[str, Any]]) -> str:
    """How often a GCN is below itself with another seed, and `auto` below the mean of its seeds.

    `roads` has most of the transfers.
    """
    apart: dict[Transfer, list[float]] = defaultdict(list)
    means: dict[Transfer, list[float]] = defaultdict(list)
    for line in lines:
        for test in line["seeds"][0]:
            transfer = line["task"], line["protocol"], line["generator"], test
            runs = [to_percent(run[test]) for run in line["seeds"]]
            apart[transfer] += [one - other for one, other in permutations(runs, 2)]
            means[transfer].append(mean(runs))
    roads = [transfer for transfer in apart if transfer[0] == "roads"]
    others = [transfer for transfer in apart if transfer[0] != "roads"]
    rows = []
    for name, own in (("roads", roads), ("the others", others), ("all", list(apart))):
        if own:
            below = mean(np.less(apart[t], -1).mean() for t in own)
            lead = [scores[t][AUTO] - mean(means[t]) for t in own]
            shares = [f"{100 * share:.0f} %" for share in (below, np.less(lead, -1).mean())]
            rows.append([f"{name} ({len(own)})", *shares, f"{mean(lead):+.1f}"])
    return table_text(["more than 1 below", "GCN below itself", "`auto` below GCN", "mean"], rows)


def _interval(lead: Mapping[Transfer, float]) -> tuple[float, float]:
    """95 % interval of a mean over transfers, by a bootstrap over tasks."""
    tasks = defaultdict(list)
    for transfer, value in lead.items():
        tasks[group(transfer)].append(value)
    sums = np.array([(sum(values), len(values)) for values in tasks.values()])
    drawn = np.random.default_rng(0).integers(len(sums), size=(NUM_RESAMPLES, len(sums)))
    means = sums[drawn].sum(axis=1)
    low, high = np.quantile(means[:, 0] / means[:, 1], [0.025, 0.975])
    return float(low), float(high)


def table_text(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---", *["--:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--tasks", default="")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--draws", type=int, default=len(DRAWS))
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--seeds", action="store_true")
    options = parser.parse_args()
    if options.table:
        print(tables([json.loads(line) for file in options.files for line in file.open()]))
        return
    (file,) = options.files
    part, count = map(int, options.part.split("/"))
    lines = file.read_text().splitlines() if file.exists() else []
    done = {tuple(json.loads(line)[name] for name in Case._fields) for line in lines}
    tasks = [name for name in options.tasks.split(",") if name]
    chosen = [case for case in cases(range(options.draws)) if not tasks or case.task in tasks]
    if options.seeds:
        chosen = [case for case in chosen if case.task not in CITATION]
    for case in chosen[part - 1 :: count]:
        if tuple(case) not in done:
            found = (with_seeds if options.seeds else examine)(case, options.device)
            with file.open("a") as out:
                out.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
