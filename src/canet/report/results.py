"""Many run folders → results: the one reader of finished runs that tables and reports use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean

from canet.training import RunConfig, RunFolder, find_runs
from canet.training.summary import Scored, deviation

OOD_MEAN = "ood"
"""Stands for the mean over a task's OOD sets where the name of a split is asked for."""


@dataclass(frozen=True)
class Result:
    """Finished runs that differ in their seed alone, in the order of their seeds.

    Args:
        config: What they have in common, with seed 0.
        runs: Config and result of each.
        places: Folder of each.
    """

    config: RunConfig
    runs: list[Scored] = field(default_factory=list)
    places: list[RunFolder] = field(default_factory=list)

    def scores(self, split: str) -> list[float]:
        """Score of each run in percent; `split` is a name in result.json, or `ood`."""
        if split == OOD_MEAN:
            return [run.ood_mean for run in self.runs]
        return [run.scores[split] for run in self.runs]

    def mean(self, split: str) -> float:
        return mean(self.scores(split))

    def std(self, split: str) -> float:
        """Standard deviation of a sample, 0 for one run."""
        return deviation(self.scores(split))


def read_results(root: Path) -> list[Result]:
    """The finished runs at or below `root`, grouped; unfinished ones are left out."""
    return results_of(find_runs(root))


def results_of(places: Iterable[RunFolder]) -> list[Result]:
    """Finished runs grouped by everything but their seed, in order of first appearance.

    The same config gives the same run, so of several copies of a run only the first counts.
    """
    found: dict[str, dict[int, RunFolder]] = {}
    configs: dict[str, RunConfig] = {}
    for place in places:
        config = place.read_config()
        configs.setdefault(config.name, replace(config, seed=0))
        found.setdefault(config.name, {}).setdefault(config.seed, place)
    results = []
    for name, by_seed in found.items():
        ordered = [by_seed[seed] for seed in sorted(by_seed)]
        runs = [Scored(place.read_config(), place.read_result()) for place in ordered]
        results.append(Result(configs[name], runs, ordered))
    return results
