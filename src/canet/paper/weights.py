"""The weights of the branches: heat maps, and measures of how different the branches are."""

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from canet.methods import get_method
from canet.paper.experiment import Experiment
from canet.paper.finished_runs import FinishedRuns
from canet.paper.published import PAPER_BACKBONES
from canet.paper.scope import TaskSpec
from canet.report.figures import new_figure
from canet.report.labels import backbone_label
from canet.report.score import Score
from canet.report.tables import Cell, Table
from canet.settings import override
from canet.store import RunConfig, RunFolder
from canet.store.run_folder import WEIGHTS
from canet.util.rendering import save_figure
from canet.util.torch_state import seeded

LAYERS = ("first layer", "last layer")
WHEN = ("trained", "at the start")
MEASURES_FILE, WEIGHTS_FILE = "branches.json", "branches.safetensors"
"""Files added to a run folder: measures of the branches, and the weights of the heat map."""
MEASURES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
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

    def add_measurements(self, finished: FinishedRuns, device: str) -> None:
        for _, _, jobs in self._cases():
            run_folders = finished.folders(jobs)
            for run_folder in run_folders:
                if not (run_folder.path / MEASURES_FILE).exists():
                    run_folder.add_json(MEASURES_FILE, measures(run_folder))
            for run_folder in run_folders[:1]:
                if not (run_folder.path / WEIGHTS_FILE).exists():
                    tensors = dict(zip(LAYERS, branch_weights(run_folder), strict=True))
                    run_folder.add_tensors(WEIGHTS_FILE, tensors)

    def tables(self, finished: FinishedRuns) -> list[Table]:
        rows: list[list[Cell]] = []
        for spec, backbone, jobs in self._cases():
            found = [run.read_json(MEASURES_FILE) for run in finished.folders(jobs)]
            for layer in LAYERS:
                values = [[one[m][when][layer] for one in found] for m in MEASURES for when in WHEN]
                scores = [Score(some, len(jobs), digits=3, is_share=False) for some in values]
                rows.append([spec.label, backbone_label(backbone), layer, *scores])
        columns = ["task", "backbone", "layer", "cosine similarity", "at the start"]
        columns += ["relative distance", "at the start"]
        notes = [
            "Cosine similarity and relative Frobenius distance ‖W_i − W_j‖ / √(‖W_i‖ ‖W_j‖) of the "
            "branch weights W_D: mean over the pairs of branches, then mean ± standard deviation "
            "over runs. Equal branches have 1 and 0, unrelated branches 0 and √2 ≈ 1.414. At the "
            "start: the same runs before the first training step."
        ]
        return [self.table("", "how different the branches are", columns, rows, notes)]

    def draw(self, finished: FinishedRuns, folder: Path) -> None:
        for spec, backbone, jobs in self._cases():
            for run_folder in finished.folders(jobs[:1]):
                name = self.file_name(f"{spec.task}-{backbone}")
                title = f"$W_D$ of CaNet-{backbone_label(backbone)} on {spec.label}"
                tensors = run_folder.read_tensors(WEIGHTS_FILE)
                draw_weights([tensors[layer] for layer in LAYERS], title, folder, name)

    def _cases(self) -> list[tuple[TaskSpec, str, list[RunConfig]]]:
        """Each task and backbone with its runs of CaNet."""
        return [
            (spec, backbone, self.runs(spec, "canet", backbone))
            for spec in self.specs
            for backbone in PAPER_BACKBONES
        ]


def measures(folder: RunFolder) -> dict[str, dict[str, dict[str, float]]]:
    """Measure → trained or at the start → layer → mean over the pairs of branches."""
    layers_of = branch_weights(folder), branch_weights_at_start(folder)
    weights = dict(zip(WHEN, layers_of, strict=True))
    return {
        name: {
            when: {layer: over_pairs(w, name) for layer, w in zip(LAYERS, layers, strict=True)}
            for when, layers in weights.items()
        }
        for name in MEASURES
    }


def branch_weights(folder: RunFolder) -> list[Tensor]:
    """W_D $[K, H, H]$ of the first and the last layer of a finished run."""
    return _first_and_last(folder.read_tensors(WEIGHTS))


def branch_weights_at_start(folder: RunFolder) -> list[Tensor]:
    """The initial W_D of the same layers, initialised again from the seed of the run."""
    config, trained = folder.read_config(), folder.read_tensors(WEIGHTS)
    method = get_method(config.method)
    settings = override(method.settings_type(), config.settings)
    num_features = trained["model.phi_in.weight"].shape[1]
    num_classes = trained["model.phi_out.weight"].shape[0]
    with seeded(config.seed, torch.device("cpu")):
        start = method(settings, config.backbone, num_features, num_classes, 0)
    return _first_and_last(start.state_dict())


def _first_and_last(tensors: dict[str, Tensor]) -> list[Tensor]:
    """W_D of the first and last layer; convolutions store W_D above W_S in one matrix."""
    names = [n for n in tensors if n.startswith("model.branches.") and n.endswith(".weight")]
    names.sort(key=lambda name: int(name.split(".")[2]))
    weights = [tensors[name] for name in (names[0], names[-1])]
    return [weight[:, : weight.shape[2], :].detach() for weight in weights]


def over_pairs(weights: Tensor, name: str) -> float:
    """Mean of a measure over the pairs of branches $[K, H, H]$."""
    pairs = combinations(weights.flatten(1), 2)
    return float(torch.stack([MEASURES[name](a, b) for a, b in pairs]).mean())


def draw_weights(layers: list[Tensor], title: str, folder: Path, name: str) -> None:
    """Draw a heat map for each layer (rows) and branch (columns), with one colour scale."""
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
