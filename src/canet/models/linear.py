"""Multinomial logistic regression on the columns of the nodes and of their neighbours."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import functional as F

from canet.data.task import ShiftTask
from canet.errors import VersionError
from canet.methods import Settings, Traits
from canet.models.base import Fitted, Learner, State, entry
from canet.models.options import Options
from canet.models.replacing import Replacing, replacing_in
from canet.models.tabular import node_weights, training_graph, training_rows
from canet.nn.model import Features, Prediction, linear_map
from canet.reading.columns import Columns, TabularSettings
from canet.reading.prepared import PreparedGraph
from canet.settings import override, setting
from canet.training.loop import Progress
from canet.util.colour import Colour
from canet.util.devices import recorded
from canet.util.sparse import Matrix, from_matrix, to_matrix
from canet.util.torch_state import seeded

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)  # strengths of the penalty that are tried, for losses per node
MAX_STEPS = 100
SPARSE_WIDTH = 512
"""Nonzero numbers of a row of sparse features, if there are more columns than this."""
MAX_DENSE = 64  # columns of a sparse matrix that are read as a dense one


@dataclass(frozen=True)
class LinearSettings(TabularSettings):
    """Settings of the linear model."""

    penalty: float = setting(
        0.0,
        "strength of the L2 penalty on the weights; 0: the one with the best validation loss",
        minimum=0,
    )


class FittedLinear(Fitted):
    """A linear model.

    Args:
        settings: Which columns it reads.
        weight: Weights $[C, D]$.
        bias: Biases $[C]$.
    """

    kind = "linear"

    def __init__(self, settings: LinearSettings, weight: Tensor, bias: Tensor) -> None:
        self.settings, self.weight, self.bias = settings, weight, bias
        self.sizes = settings.num_features(weight.shape[1]), weight.shape[0]

    def read(self, graph: PreparedGraph, nodes: Tensor | None = None) -> Prediction:
        logits = partial(linear_map, weight=self.weight, bias=self.bias)
        return Prediction(Columns(graph, self.settings).logits(nodes, len(self.bias), logits))

    def replacing(self, graph: PreparedGraph, nodes: Tensor) -> Replacing:
        """As `Fitted.replacing`; logits are sums over columns, so only changed ones are read."""
        if self.settings.scaling == "rows":  # each number depends on all columns
            return super().replacing(graph, nodes)

        def share(values: Matrix, columns: np.ndarray) -> Tensor:
            if sp.issparse(values) and len(columns) <= MAX_DENSE:
                values = values.toarray()
            changed = graph.with_features(from_matrix(values))
            return self._part(columns).read(changed, nodes).logits

        whole = self.read(graph, nodes).logits
        return replacing_in(to_matrix(graph.data.x), whole, share, lambda logits: logits)

    def _part(self, columns: np.ndarray) -> "FittedLinear":
        """Return the model that reads only some features, with their share of the logits."""
        chosen, width = torch.from_numpy(columns), self.weight.shape[1]
        if self.settings.neighbours:
            steps = [chosen + i * (width // 3) for i in range(3)]
            chosen = torch.cat([*steps, chosen.new_tensor([width - 1])])
        return FittedLinear(self.settings, self.weight[:, chosen], self.bias)

    def state(self) -> State:
        about = {"kind": self.kind, "settings": asdict(self.settings)}
        return about, {"weight": self.weight, "bias": self.bias}

    def learner(self, shared: Settings, options: Options) -> Learner:
        return Linear(self.settings, options)

    def chosen_settings(self) -> dict[str, Any]:
        return {"penalty": self.settings.penalty}

    @classmethod
    def restore(cls, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        settings = override(LinearSettings(), entry(about, "settings", dict))
        weight, bias = (entry(tensors, name, Tensor) for name in ("weight", "bias"))
        if weight.dim() != 2 or bias.shape != weight.shape[:1] or weight.dtype != bias.dtype:
            raise VersionError("the weights of the linear model do not fit together")
        return cls(settings, weight, bias)


class Linear(Learner):
    r"""Multinomial logistic regression.

    It minimises $\sum_v w_v \ell_v / \sum_v w_v + \frac{\lambda}{2} \|W\|^2$ over the training
    nodes, with the cross entropy $\ell$, and the weights w of nodes and classes. The strength
    $\lambda$ is chosen by the loss on the validation nodes.
    """

    name = "linear"
    label = "Linear"
    colour = Colour("#5b4a00", "#e0c34d")
    summary = "logistic regression on the columns of a node and the means of its neighbours"
    paper = "Cox, The regression analysis of binary sequences, J. R. Stat. Soc. B '58"
    traits = Traits(trains_in_batches=True)
    settings_type = LinearSettings
    settings: LinearSettings

    def fit(
        self, task: ShiftTask, seed: int = 0, *, on_progress: Progress | None = None, **_: Any
    ) -> Fitted:
        nodes = self._rows(task), task.valid
        train, valid = self._columns(task, *nodes)
        y, valid_y = (task.y[n].to(self.device) for n in nodes)
        weight = node_weights(task, nodes[0], self.options.class_weight).to(self.device)
        theta = torch.zeros(task.num_classes, train.shape[1] + 1, device=self.device)
        best = theta, np.inf, 0.0
        strengths = (self.settings.penalty,) if self.settings.penalty else STRENGTHS[::-1]
        with seeded(seed, self.device, self.options.threads):
            for done, strength in enumerate(strengths, 1):
                theta = self._minimise(train, y, weight / weight.sum(), strength, theta)
                found = linear_map(valid, theta[:, :-1], theta[:, -1])
                loss = float(F.cross_entropy(found.double(), valid_y))
                is_better = loss < best[1]
                if is_better:
                    best = theta, loss, strength
                if on_progress:
                    score = float(task.scorer(found, valid_y))
                    on_progress(done, len(strengths), score)
                if not is_better:  # a weaker penalty is not better either
                    break
        chosen = override(self.settings, {"penalty": best[2]})
        theta = best[0].cpu()
        return FittedLinear(chosen, theta[:, :-1].contiguous(), theta[:, -1].contiguous())

    def _rows(self, task: ShiftTask) -> Tensor:
        """Return the nodes to train on."""
        width = task.num_features * (3 if self.settings.neighbours else 1)
        if not self.settings.neighbours and task.data.x.layout == torch.sparse_csr:
            width = min(width, SPARSE_WIDTH)
        return training_rows(task, self.name, width, task.train.numel())

    def _columns(self, task: ShiftTask, *nodes: Tensor) -> Iterator[Features]:
        """Yield the columns of each of some sets of nodes, on the device."""
        graph = training_graph(task)
        columns = Columns(graph, self.settings, self.device, self.options.check_time)
        columns.prepare([*nodes, *task.scored().values()])
        yield from (columns.rows(n).to(self.device) for n in nodes)

    def _minimise(
        self, x: Features, y: Tensor, weight: Tensor, strength: float, start: Tensor
    ) -> Tensor:
        """Return the weights and biases $[C, D + 1]$ of logistic regression."""
        theta = start.clone().requires_grad_()

        def loss() -> Tensor:
            logits = linear_map(x, theta[:, :-1], theta[:, -1])
            value = weight @ F.cross_entropy(logits, y, reduction="none")
            value = value + strength / 2 * theta[:, :-1].square().sum()
            (slope,) = torch.autograd.grad(value, theta)
            return torch.cat([value.detach().view(1), slope.flatten()])

        loss = recorded(loss, self.device)

        def loss_and_slope(flat: np.ndarray) -> tuple[float, np.ndarray]:
            self.options.check_time()
            theta.data.copy_(torch.from_numpy(flat).view_as(theta))
            found = loss().cpu().double().numpy()
            return float(found[0]), found[1:]

        options = {"maxiter": MAX_STEPS, "gtol": 1e-5, "ftol": 1e-7}
        begin = start.double().cpu().numpy().ravel()
        found = minimize(loss_and_slope, begin, jac=True, method="L-BFGS-B", options=options)
        return torch.from_numpy(found.x).to(start).view_as(start)
