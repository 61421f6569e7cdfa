"""A reproduction folder as `canet reproduce` leaves it, with made-up scores and no training."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from canet.data import DATASETS, WITHOUT_SPURIOUS
from canet.report.score import Published, Score
from canet.report.tables import Table
from canet.store import RunConfig, RunFolder
from canet.util.files import write_json
from tests.support.finished import change_result, make_config, write_run

LEVEL = {"erm": 0.62, "irm": 0.635, "mixup": 0.71, "canet": 0.88}
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="400" height="240" viewBox="0 0 400 240">'
    '<rect width="400" height="240" fill="#fff"/>'
    '<path d="M20 200 L140 120 L260 150 L380 40" stroke="#1f6f8b" stroke-width="4" fill="none"/>'
    "</svg>"
)
TABLE = Table(
    "table1",
    "Table 1: <accuracy> under shift",
    ["backbone", "method", "Cora OOD"],
    [
        ["GCN", "ERM", Score([0.657, 0.857], 2, Published("Table 1", 0.743, 0.0266))],
        ["GCN", "CaNet", Score([0.933, 0.985], 2, Published("Table 1", 0.9612, 0.0104))],
        ["GCN", "EERM", Score([], 2, Published("Table 1", None, None))],
    ],
    ["Mean ± standard deviation over two draws."],
).ranked()


@dataclass(frozen=True)
class Maker:
    """Writes made-up runs below `root`, the same ones every time."""

    root: Path
    epochs: int = 40

    def run(self, config: RunConfig, level: float | None = None) -> Path:
        """One finished run; its scores lie around `level`, that of its method if None."""
        random = np.random.default_rng([config.seed, config.data_seed, *config.name.encode()])
        if level is None:
            level = LEVEL.get(config.method, 0.65) + 0.04 * math.sin(sum(config.name[:-8].encode()))
        names = DATASETS[config.task].ood_sets
        shifted = {name: level - 0.04 * i + random.normal(0, 0.015) for i, name in enumerate(names)}
        scores = {"test_id": min(level + 0.12, 0.96) + random.normal(0, 0.005)} | shifted
        if config.task == "elliptic":
            scores["left_out/steps 6-10"] = level + 0.03
        curves = ["valid", *(names if config.ood_curves else [])]
        rise = 1 - np.exp(-np.arange(1, self.epochs + 1) / (self.epochs / 8))
        history = {
            name: (scores.get(name, 0.95) * rise + random.normal(0, 0.008, self.epochs)).tolist()
            for name in curves
        }
        place = write_run(self.root, config, scores, {"loss": rise[::-1].tolist(), **history})
        extra = {
            "epochs": self.epochs,
            "selected_epoch": int(random.integers(self.epochs // 2, self.epochs)),
            "seconds_per_epoch": 0.004 + random.random() / 1000,
            "peak_memory_mb": 480.0,
            "device": "NVIDIA H200",
            "versions": {"canet": "0.1.0", "python": "3.11.7", "torch": "2.11.0"},
        }
        if config.method == "canet":
            extra["inferred_environments"] = _environments(config, ["train", "valid", *scores])
        change_result(place, **extra)
        return place.path

    def runs(
        self,
        tasks: Sequence[str],
        methods: Sequence[str] = tuple(LEVEL),
        draws: int = 1,
        seeds: int = 2,
        level: float | None = None,
        **changes: Any,
    ) -> None:
        """Runs of every task, method, backbone, draw and seed; changes are fields of the config."""
        for task in tasks:
            for method in methods:
                for backbone in ("gcn", "gat"):
                    for draw in range(draws):
                        for seed in range(seeds if draw == 0 else 1):
                            config = make_config(task, method, backbone, seed, draw, True)
                            self.run(replace(config, **changes), level)


def write_reproduction(out: Path) -> None:
    """Tasks of every kind, controls, variants, a failed job, tables and figures."""
    maker = Maker(out / "runs")
    maker.runs(["cora"], draws=3)
    maker.runs(["cora"], ["erm"], level=0.95, draws=3, seeds=1, features=WITHOUT_SPURIOUS)
    maker.runs(["cora"], ["erm", "canet"], draws=3, seeds=1, protocol="disjoint")
    maker.runs(["twitch"], ["erm", "canet"])
    maker.runs(["arxiv", "elliptic"], ["erm", "canet"], features="structural")
    for number in (2, 5):
        maker.run(make_config("cora", "canet", num_environments=number), 0.8)
    failed = make_config("cora", "eerm", seed=3)
    folder = out / "runs" / failed.name / "seed-3"
    RunFolder(folder).begin(failed)
    write_json(folder / "failed.json", {"lines": ["Traceback …", "MemoryError: <no room>"]})
    (out / "figures").mkdir()
    for name in ("elliptic-gcn", "sensitivity_twitch"):
        (out / "figures" / f"{name}.svg").write_text(SVG, encoding="utf-8")
    TABLE.write(out / "tables")


def spoil(folder: Path, split: str) -> None:
    """Make one score of a run not a number."""
    place = RunFolder(folder)
    change_result(place, scores=place.read_result().scores | {split: math.nan})


def _environments(config: RunConfig, splits: Sequence[str]) -> dict[str, Any]:
    random = np.random.default_rng(config.seed)
    number, layers = config.settings["num_environments"], config.settings["num_layers"]
    posterior = {split: random.dirichlet([4.0] * number, size=layers).tolist() for split in splits}
    return {
        "posterior": posterior,
        "effective": [2.31, 2.9, 2.7][:layers],
        "alignment": None if config.task == "twitch" else [0.42, 0.05, 0.1][:layers],
    }
