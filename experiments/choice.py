"""The model that `auto` chooses, compared with others on every task and transfer.

    python -m experiments.choice FILE [--part I/N] [--tasks NAME,…] [--parts KIND,…]

tries all models of the preset `robust` on each task and draw, and adds a JSON object for each to
FILE, as JSON lines; cases that are already in FILE are skipped. `--part 2/15` does the second of 15
parts.
`python -m experiments.choice FILE... --table` prints the tables of the page.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from canet.data import DATASETS, GENERATORS, load_task
from canet.data.task import ShiftTask
from canet.defaults import task_settings
from canet.methods.interventions import cluster_rows
from canet.models import Auto, Average, Options
from canet.models.auto import AutoSettings, Tried, with_weights
from canet.models.portfolio import PRESETS
from canet.models.shifts import HELD_OUT, hold_out, training_part
from canet.report.score import to_percent
from canet.settings import override
from canet.store.summary import OOD
from canet.training import Trainer
from canet.util.devices import device_name
from canet.util.sparse import to_scipy

DRAWS = range(3)
ERM, CANET, AUTO = "erm-gcn", "CaNet as published", "auto"
CITATION = ("cora", "citeseer", "pubmed")
TRANSFERS = ("webkb", "airports", "election", "twitch", "fb100")
DEVELOPMENT_TASKS = ("citeseer", "webkb", "election", "twitch")
"""Tasks by which the portfolio and the rating were chosen."""
COUNTS: dict[str, Callable[[int], int]] = {
    "the best": lambda n: 1,
    "best 3": lambda n: 3,
    "best 5": lambda n: 5,
    "all": lambda n: n,
}


class Case(NamedTuple):
    """A task, and the seed of data and training."""

    task: str
    protocol: str
    generator: str
    draw: int


def cases() -> Iterator[Case]:
    """All cases, draw by draw."""
    for draw in DRAWS:
        for task in CITATION:
            for generator in GENERATORS:
                protocol = "disjoint" if generator == "resampled" else "paper"
                yield Case(task, protocol, generator, draw)
        for task in TRANSFERS:
            for protocol in DATASETS[task].protocols:
                yield Case(task, protocol, "shared", draw)


def examine(case: Case, device: str, kinds: Sequence[str]) -> dict[str, Any]:
    """Train all models on one case; return the scores of all models and of all selection rules."""
    begin = time.monotonic()
    task = load_task(
        case.task, data_seed=case.draw, protocol=case.protocol, generator=case.generator
    )
    settings = override(AutoSettings(), DATASETS[case.task].shared_settings)
    auto = Auto(settings, Options(device))
    tried = list(auto.try_all(task, case.draw))
    shown = with_weights([one.candidate for one in tried])
    held_out = {one.name: _by_kind(one.shifts) for one in shown}
    for kind in kinds:
        for name, score in _other_kind(auto, task, kind, case.draw).items():
            held_out[name][kind] = score
    rankings = {kind: {n: by[kind] for n, by in held_out.items()} for kind in held_out[ERM]}
    rankings["validation"] = {one.name: one.validation for one in shown}
    rankings["rating"] = {one.name: one.rating for one in shown}
    ways = {}
    for kind, ranking in rankings.items():
        order = sorted(tried, key=lambda one: -ranking[one.candidate.name])
        for label, count in COUNTS.items():
            ways[f"{kind}, {label}"] = _scores(task, order[: count(len(order))])
    pairs = zip(tried, shown, strict=True)
    ways[AUTO] = _scores(task, [one for one, candidate in pairs if candidate.weight])
    published = Trainer(task, "canet", "gcn", task_settings(case.task, "canet", "gcn"), device)
    result = published.run(case.draw).result.scores
    shifted = {n.removeprefix(OOD): s for n, s in result.items() if n.startswith(OOD)}
    models = {one.candidate.name: _scores(task, [one]) for one in tried}
    return {
        **case._asdict(),
        "models": models | {CANET: shifted},
        "rankings": rankings,
        "ways": ways,
        "members": [one.name for one in shown if one.weight],
        "seconds": round(time.monotonic() - begin, 1),
        "device": device_name(published.device),
    }


def _by_kind(shifts: Mapping[str, float]) -> dict[str, float]:
    """Mean score on the given parts (environments, graphs), and on the inferred groups."""
    kinds: dict[str, list[float]] = defaultdict(list)
    for name, score in shifts.items():
        kinds["groups" if name.startswith("without group ") else "given"].append(score)
    return {kind: mean(scores) for kind, scores in kinds.items()}


def _other_kind(auto: Auto, task: ShiftTask, kind: str, seed: int) -> dict[str, float]:
    """Mean score of each model on parts that are held out by another criterion."""
    part = training_part(task)
    shifts = [hold_out(part, mask, name) for name, mask in OTHER_PARTS[kind](part)]
    found = {}
    for recipe in PRESETS[auto.settings.preset]:
        learner = recipe.learner(auto.settings, auto.options)
        runs = [learner.run(shift.task, {seed: None})[0] for shift in shifts if shift]
        scores = [run.result.scores[f"{OOD}{HELD_OUT}"] for run in runs if run.result]
        found[recipe.name] = mean(scores)
    return found


def _scores(task: ShiftTask, members: Sequence[Tried]) -> dict[str, float]:
    """Scores of the average of some models on the shifted test sets."""
    average = Average([one.model for one in members], [1 / len(members)] * len(members))
    metric, logits = task.scorer, average.logits(task)
    names = task.test_ood.items()
    return {n: float(metric(logits[f"ood/{n}"], task.data.y[nodes])) for n, nodes in names}


def _degrees(task: ShiftTask) -> Iterator[tuple[str, Tensor]]:
    """Quarters of the nodes by their number of edges."""
    degree = torch.bincount(task.data.edge_index[1], minlength=task.num_nodes)
    cuts = degree.double().quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.double)).unique()
    yield from _parts(torch.searchsorted(cuts, degree.double(), side="right"), cuts.numel() + 1)


def _communities(task: ShiftTask) -> Iterator[tuple[str, Tensor]]:
    """The communities of the Louvain method, merged into four parts of similar size."""
    graph = nx.Graph(task.data.edge_index.t().tolist())
    graph.add_nodes_from(range(task.num_nodes))
    part, sizes = torch.zeros(task.num_nodes, dtype=torch.long), [0] * 4
    for community in sorted(nx.community.louvain_communities(graph, seed=0), key=len)[::-1]:
        smallest = int(np.argmin(sizes))
        part[list(community)] = smallest
        sizes[smallest] += len(community)
    yield from _parts(part, 4)


def _parts(number: Tensor, count: int) -> Iterator[tuple[str, Tensor]]:
    yield from ((str(i), number == i) for i in range(count))


def _features(task: ShiftTask) -> Iterator[tuple[str, Tensor]]:
    """Clusters of nodes with similar features, independent of the class."""
    x = task.data.x
    rows = to_scipy(x) if x.layout == torch.sparse_csr else x.numpy()
    known = rows[torch.cat([task.train, task.valid]).numpy()]
    yield from _parts(cluster_rows(known, rows, 4), 4)


OTHER_PARTS: dict[str, Callable[[ShiftTask], Iterator[tuple[str, Tensor]]]] = {
    "features": _features,
    "degree": _degrees,
    "communities": _communities,
}


Transfer = tuple[str, str, str, str]
"""Task, protocol, generator and test set."""


def tables(cases: Sequence[Mapping[str, Any]]) -> str:
    """The tables of the page, in Markdown."""
    scores = _by_transfer(cases)
    parts = [
        f"{len(scores)} transfers from {len({t[:3] for t in scores})} training sets, "
        f"{len(cases)} cases; mean OOD score in percent."
    ]
    halves = {
        "all": scores,
        "decided on": {t: s for t, s in scores.items() if t[0] in DEVELOPMENT_TASKS},
        "the others": {t: s for t, s in scores.items() if t[0] not in DEVELOPMENT_TASKS},
    }
    shown = [ERM, CANET, _best_everywhere(scores), AUTO, HINDSIGHT]
    parts.append(_table(["", *shown], [_means(name, half, shown) for name, half in halves.items()]))
    rows = [_regret_row(name, halves) for name in [*shown[:-1], *_ways(scores)]]
    heads = [f"{of}, {what}" for of in halves for what in ("mean", "90 %", "worst")]
    parts.append(_table(["regret", *heads], sorted(rows, key=lambda row: float(row[1]))))
    sources = sorted({t[:3] for t in scores})
    rows = []
    for source in sources:
        own = {t: s for t, s in scores.items() if t[:3] == source}
        rho = _correlations([c for c in cases if _source(c) == source])
        label, *means = _means(" ".join(source), own, shown)
        rows.append([label, str(len(own)), *means, *rho])
    heads = ["trained on", "transfers", *shown, *(f"ρ {kind}" for kind in RANKINGS)]
    parts.append(_table(heads, rows))
    return "\n\n".join(parts)


HINDSIGHT = "best model in hindsight"
RANKINGS = ("validation", "given", "groups", "rating")


def _source(case: Mapping[str, Any]) -> tuple[str, str, str]:
    return case["task"], case["protocol"], case["generator"]


def _by_transfer(cases: Sequence[Mapping[str, Any]]) -> dict[Transfer, dict[str, float]]:
    """Transfer → score of each model and selection rule, mean over draws."""
    found: dict[Transfer, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for case in cases:
        for name, sets in {**case["models"], **case["ways"]}.items():
            for test, score in sets.items():
                found[*_source(case), test][name].append(score)
    means = {t: {name: mean(of) for name, of in names.items()} for t, names in found.items()}
    for names in means.values():
        names[HINDSIGHT] = max(names[recipe.name] for recipe in PRESETS["robust-1"])
    return means


def _best_everywhere(scores: Mapping[Transfer, Mapping[str, float]]) -> str:
    """The single model with the best mean over all transfers."""
    names = [recipe.name for recipe in PRESETS["robust-1"]]
    return max(names, key=lambda name: mean(own[name] for own in scores.values()))


def _ways(scores: Mapping[Transfer, Mapping[str, float]]) -> list[str]:
    """Other selection rules that all transfers have."""
    first = next(iter(scores.values()))
    common = [name for name in first if all(name in own for own in scores.values())]
    repeated = {"rating, best 5", "groups, all", "validation, all"}
    return [name for name in common if ", " in name and name not in repeated]


def _means(
    label: str, scores: Mapping[Transfer, Mapping[str, float]], names: Sequence[str]
) -> list[str]:
    means = (to_percent(mean(own[name] for own in scores.values())) for name in names)
    return [label, *(f"{value:.1f}" for value in means)]


def _regret_row(
    name: str, halves: Mapping[str, Mapping[Transfer, Mapping[str, float]]]
) -> list[str]:
    """Points below the best model in hindsight: mean, 90 % quantile and maximum."""
    row = [name]
    for half in halves.values():
        lost = to_percent(np.array([own[HINDSIGHT] - own[name] for own in half.values()]))
        row += [f"{value:.1f}" for value in (lost.mean(), np.quantile(lost, 0.9), lost.max())]
    return row


def _correlations(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rank correlation of each ranking of the models with their OOD score, the mean over draws."""
    cells = []
    for kind in RANKINGS:
        found = []
        for case in cases:
            if ranking := case["rankings"].get(kind):
                ood = [mean(case["models"][name].values()) for name in ranking]
                found.append(float(spearmanr(list(ranking.values()), ood).statistic))
        cells.append(f"{mean(found):.2f}" if found else "–")
    return cells


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---", *["--:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--tasks", default=",".join([*CITATION, *TRANSFERS]))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--parts", default="", help=f"also hold out by {', '.join(OTHER_PARTS)}")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        print(tables([json.loads(line) for file in options.files for line in file.open()]))
        return
    (file,) = options.files
    part, count = map(int, options.part.split("/"))
    lines = file.read_text().splitlines() if file.exists() else []
    done = {tuple(json.loads(line)[name] for name in Case._fields) for line in lines}
    tasks = options.tasks.split(",")
    chosen = [case for case in cases() if case.task in tasks and case.draw < options.draws]
    kinds = [kind for kind in options.parts.split(",") if kind]
    for case in chosen[part - 1 :: count]:
        if tuple(case) not in done:
            found = examine(case, options.device, kinds)
            with file.open("a") as out:
                out.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
