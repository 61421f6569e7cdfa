"""The model that `auto` chooses, compared with others on every task and transfer.

    python -m experiments.choice FILE [--part I/N] [--tasks NAME,…] [--device cpu|cuda]

tries all models of the preset `best` on each task and draw, and adds a JSON object for each to
FILE, as JSON lines; what is there already is left out. `--part 2/15` does a fifteenth.
`python -m experiments.choice FILE... --table` prints the tables of the page.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from torch import Tensor

from canet.choice.auto import AutoTrainer, Tried, with_weights
from canet.choice.ensemble import Ensemble
from canet.choice.portfolio import PRESETS, AutoSettings
from canet.choice.shifts import PARTS, hold_out, training_part
from canet.data import DATASETS, GENERATORS, load_task
from canet.data.task import ShiftTask
from canet.presets import preset
from canet.settings import override
from canet.training import METRICS, Trainer
from canet.util.sparse import to_scipy

DRAWS = range(3)
ERM, CANET, AUTO = "erm-gcn", "CaNet as published", "auto"
CITATION = ("cora", "citeseer", "pubmed")
TRANSFERS = ("webkb", "airports", "election", "twitch", "fb100")
DECIDED_ON = ("citeseer", "webkb", "election", "twitch")
"""Tasks that the portfolio and the rule were chosen by; the others were only looked at later."""
COUNTS = {"1": lambda n: 1, "3": lambda n: 3, "5": lambda n: 5, "half": lambda n: n // 2}


class Case(NamedTuple):
    """What to train on, and the seed of data and training."""

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


def examine(case: Case, device: str) -> dict[str, Any]:
    """Try all models on one case; scores of every model, and of every way to choose."""
    begin = time.monotonic()
    task = load_task(
        case.task, data_seed=case.draw, protocol=case.protocol, generator=case.generator
    )
    settings = override(AutoSettings(preset="best"), DATASETS[case.task].shared_settings)
    auto = AutoTrainer(task, settings, device)
    tried = list(auto.try_all(case.draw))
    shown = [one.candidate for one in tried]
    shifts = {"default": {one.name: one.shifts for one in shown}}
    part = training_part(task)
    kinds = ["within classes"] if case.draw else ["within classes", *ONCE.get(case.task, [])]
    for kind in kinds:
        parts = OTHER_PARTS[kind]
        held = [hold_out(part, mask, name, "features") for name, mask in parts(part)]
        for recipe in PRESETS["best"]:
            found = [auto._train(recipe, shift, case.draw, None) for shift in held if shift]
            scores = {str(i): one.held_out for i, one in enumerate(found)}
            shifts.setdefault(kind, {})[recipe.name] = scores
    published = Trainer(task, "canet", "gcn", preset(case.task, "canet", "gcn"), device)
    result = published.run(case.draw).result.scores
    models = {one.candidate.name: _scores(task, [one]) for one in tried}
    ways = {AUTO: _chosen(task, tried, with_weights(shown))}
    rankings = {
        kind: {name: mean(scores.values()) for name, scores in by.items() if scores}
        for kind, by in shifts.items()
    }
    rankings["validation"] = {one.name: one.validation for one in shown}
    both = rankings["default"].items()
    rankings["default and validation"] = {n: s + rankings["validation"][n] for n, s in both}
    for kind, ranking in rankings.items():
        if len(ranking) == len(tried):
            order = sorted(tried, key=lambda one: -ranking[one.candidate.name])
            for label, count in COUNTS.items():
                ways[f"{kind}, {label}"] = _scores(task, order[: count(len(order))])
    ways["all"] = _scores(task, tried)
    return {
        **case._asdict(),
        "models": models | {CANET: _shifted(result)},
        "rankings": rankings,
        "ways": ways,
        "members": [one.name for one in with_weights(shown) if one.weight],
        "seconds": round(time.monotonic() - begin, 1),
        "device": published.device.type,
    }


def _chosen(task: ShiftTask, tried: Sequence[Tried], candidates: Sequence[Any]) -> dict[str, float]:
    pairs = zip(tried, candidates, strict=True)
    return _scores(task, [one for one, candidate in pairs if candidate.weight])


def _scores(task: ShiftTask, members: Sequence[Tried]) -> dict[str, float]:
    """Scores of the mean of some models on the shifted test sets."""
    ensemble = Ensemble([], [1 / len(members)] * len(members))
    metric, found = METRICS[task.metric], {}
    for name, nodes in task.test_ood.items():
        logits = [one.logits[f"ood/{name}"] for one in members]
        found[name] = float(metric(ensemble.combine(logits), task.data.y[nodes]))
    return found


def _shifted(scores: Mapping[str, float]) -> dict[str, float]:
    return {n.removeprefix("ood/"): s for n, s in scores.items() if n.startswith("ood/")}


def _within_classes(task: ShiftTask) -> Iterator[tuple[str, Tensor]]:
    """Groups by what is left of the features when the mean of each node's class is removed."""
    x = task.data.x
    x = to_scipy(x) if x.layout == torch.sparse_csr else x.numpy().astype(np.float64)
    labelled = torch.cat([task.train, task.valid]).numpy()
    y = task.data.y.numpy()
    size = min(16, *(n - 1 for n in x[labelled].shape))
    pca = PCA(size, svd_solver="arpack", random_state=0).fit(x[labelled])
    z = np.asarray(pca.transform(x))
    classes = np.unique(y[labelled])
    means = np.stack([z[labelled][y[labelled] == c].mean(axis=0) for c in classes])
    nearest = ((z[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    nearest[labelled] = np.searchsorted(classes, y[labelled])
    rest = z - means[nearest]
    groups = KMeans(4, n_init=4, random_state=0).fit(rest[labelled]).predict(rest)
    yield from _parts(torch.from_numpy(groups), 4)


def _degrees(task: ShiftTask) -> Iterator[tuple[str, Tensor]]:
    """Quarters of the nodes by their number of edges."""
    degree = torch.bincount(task.data.edge_index[1], minlength=task.num_nodes)
    cuts = degree.double().quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.double)).unique()
    yield from _parts(torch.searchsorted(cuts, degree.double(), side="right"), cuts.numel() + 1)


def _communities(task: ShiftTask) -> Iterator[tuple[str, Tensor]]:
    """The communities that Louvain's method finds, joined to four parts of similar size."""
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


OTHER_PARTS: dict[str, Callable[[ShiftTask], Iterator[tuple[str, Tensor]]]] = {
    "features": PARTS["features"],
    "within classes": _within_classes,
    "degree": _degrees,
    "communities": _communities,
}


ONCE = {
    task: ["degree", "communities"] + ["features"] * (task == "cora")
    for task in ("cora", "webkb", "airports", "election")
}
"""Ways to hold out parts that are only tried on the first draw of some tasks."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--tasks", default=",".join([*CITATION, *TRANSFERS]))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        print(tables([json.loads(line) for file in options.files for line in file.open()]))
        return
    (file,) = options.files
    part, count = map(int, options.part.split("/"))
    lines = file.read_text().splitlines() if file.exists() else []
    done = {tuple(json.loads(line)[name] for name in Case._fields) for line in lines}
    chosen = [case for case in cases() if case.task in options.tasks.split(",")]
    for case in chosen[part - 1 :: count]:
        if tuple(case) not in done:
            found = examine(case, options.device)
            with file.open("a") as out:
                out.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
