"""The weights of the branches: heat maps, and a number for how different the branches are."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from canet.methods import get_method
from canet.paper.experiment import Experiment
from canet.paper.finished import Finished
from canet.paper.published import PAPER_BACKBONES
from canet.paper.scope import Subject
from canet.report.figures import new_figure, save_figure
from canet.report.labels import backbone_label
from canet.report.score import Score
from canet.report.tables import Cell, Table
from canet.settings import override
from canet.store import RunConfig, RunFolder
from canet.store.run_folder import WEIGHTS
from canet.util.torch_state import seeded

LAYERS = ("first layer", "last layer")
WHEN = ("trained", "at the start")
MEASURES, DRAWN = "branches.json", "branches.safetensors"
"""Files added to a run: how different its branches are, and the weights that are drawn."""
MEASURED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine similarity": lambda a, b: F.cosine_similarity(a, b, dim=0),
    "relative distance": lambda a, b: (a - b).norm() / (a.norm() * b.norm()).sqrt(),
}


class Weights(Experiment):
    """The W_D of CaNet's K = 3 branches in the first and the last layer."""

    name = "weights"
    title = "Branch weights"
    tasks = ("arxiv", "twitch")
    quick_tasks = ("twitch",)

    def configs(self) -> list[RunConfig]:
        return [config for _, _, jobs in self._cases() for config in jobs]

    def score_again(self, finished: Finished, device: str) -> None:
        for _, _, jobs in self._cases():
            places = finished.places(jobs)
            for place in places:
                if not (place.path / MEASURES).exists():
                    place.add_json(MEASURES, measures(place))
            for place in places[:1]:
                if not (place.path / DRAWN).exists():
                    tensors = dict(zip(LAYERS, branch_weights(place), strict=True))
                    place.add_tensors(DRAWN, tensors)

    def tables(self, finished: Finished) -> list[Table]:
        rows: list[list[Cell]] = []
        for subject, backbone, jobs in self._cases():
            found = [place.read_json(MEASURES) for place in finished.places(jobs)]
            for layer in LAYERS:
                scores = [
                    Score([measured[name][when][layer] for measured in found], len(jobs), digits=3)
                    for name in MEASURED
                    for when in WHEN
                ]
                rows.append([subject.label, backbone_label(backbone), layer, *scores])
        columns = ["task", "backbone", "layer", "cosine similarity", "at the start"]
        columns += ["relative distance", "at the start"]
        notes = [
            "How different the W_D of the branches are: cosine similarity and Frobenius distance "
            "‖W_i − W_j‖ / √(‖W_i‖ ‖W_j‖), mean over the pairs of branches, mean ± standard "
            "deviation over runs. Branches that are alike have 1 and 0; unrelated ones 0 and √2 ≈ "
            "1.414. The yardstick is the same runs before the first step."
        ]
        return [self.table("", "how different the branches are", columns, rows, notes)]

    def draw(self, finished: Finished, folder: Path) -> None:
        for subject, backbone, jobs in self._cases():
            for place in finished.places(jobs[:1]):
                name = self.file_name(f"{subject.task}-{backbone}")
                title = f"$W_D$ of CaNet-{backbone_label(backbone)} on {subject.label}"
                tensors = place.read_tensors(DRAWN)
                draw_weights([tensors[layer] for layer in LAYERS], title, folder, name)

    def _cases(self) -> list[tuple[Subject, str, list[RunConfig]]]:
        """A task, a backbone and the runs of CaNet with them."""
        return [
            (subject, backbone, self.runs(subject, "canet", backbone))
            for subject in self.subjects
            for backbone in PAPER_BACKBONES
        ]


def measures(place: RunFolder) -> dict[str, dict[str, dict[str, float]]]:
    """Measure → trained or at the start → layer → how different the branches are."""
    weights = dict(zip(WHEN, (branch_weights(place), branch_weights_at_start(place)), strict=True))
    return {
        name: {
            when: {layer: over_pairs(w, name) for layer, w in zip(LAYERS, layers, strict=True)}
            for when, layers in weights.items()
        }
        for name in MEASURED
    }


def branch_weights(place: RunFolder) -> list[Tensor]:
    """W_D $[K, H, H]$ of a finished run's first and last layer."""
    return _first_and_last(place.read_tensors(WEIGHTS))


def branch_weights_at_start(place: RunFolder) -> list[Tensor]:
    """The same as the run began with them, drawn again from its seed."""
    config, trained = place.read_config(), place.read_tensors(WEIGHTS)
    method = get_method(config.method)
    settings = override(method.settings_type(), config.settings)
    num_features = trained["model.phi_in.weight"].shape[1]
    num_classes = trained["model.phi_out.weight"].shape[0]
    with seeded(config.seed, torch.device("cpu")):
        start = method(settings, config.backbone, num_features, num_classes, 0)
    return _first_and_last(start.state_dict())


def _first_and_last(tensors: dict[str, Tensor]) -> list[Tensor]:
    """Convolutions keep W_D above W_S in one matrix; attention has W_D alone."""
    names = [n for n in tensors if n.startswith("model.branches.") and n.endswith(".weight")]
    names.sort(key=lambda name: int(name.split(".")[2]))
    weights = [tensors[name] for name in (names[0], names[-1])]
    return [weight[:, : weight.shape[2], :].detach() for weight in weights]


def over_pairs(weights: Tensor, name: str) -> float:
    """Mean of a measure over the pairs of branches $[K, H, H]$."""
    pairs = combinations(weights.flatten(1), 2)
    return float(torch.stack([MEASURED[name](a, b) for a, b in pairs]).mean())


def draw_weights(layers: list[Tensor], title: str, folder: Path, name: str) -> None:
    """Branches across, first and last layer down, one colour scale for all, white at 0."""
    limit = float(np.quantile(torch.stack(layers).abs().numpy(), 0.995))
    rows, columns = len(layers), len(layers[0])
    figure = new_figure(rows, columns, 2.5, 2.4)
    panels = figure.subplots(rows, columns, squeeze=False)
    for row, layer, weights in zip(panels, LAYERS, layers, strict=True):
        for branch, (axes, matrix) in enumerate(zip(row, weights.numpy(), strict=True), start=1):
            image = axes.imshow(matrix, cmap="RdBu_r", vmin=-limit, vmax=limit)
            axes.set_title(f"{layer}, branch {branch}", loc="left", fontsize="small")
            axes.set(xticks=[], yticks=[])
    figure.colorbar(image, ax=panels, shrink=0.7, extend="both")
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium")
    save_figure(figure, folder, name)
