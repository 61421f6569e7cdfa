"""CaNet written directly from the equations: the baseline of the speed measurements.

It is correct and idiomatic, but not optimised. Each pass computes the whole graph, including test
nodes, from dense features. Each forward pass counts degrees and adds self-loops. All K branches are
computed for all nodes and kept. Attention gathers both ends of each edge for each branch. Scoring
copies the logits of all nodes to the host.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from canet.data.task import ShiftTask
from canet.methods.canet import CaNetSettings

NEGATIVE_SLOPE = 0.01


def scatter_sum(values: Tensor, index: Tensor, size: int) -> Tensor:
    """Sum of the rows of `values` $[E, …]$ that share an index: $[size, …]$."""
    return values.new_zeros(size, *values.shape[1:]).index_add_(0, index, values)


def convolve(z: Tensor, edge_index: Tensor, propagation: str) -> Tensor:
    """Sum over incoming edges of $z_v$, each divided by $\\sqrt{d_u d_v}$ if `symmetric`."""
    src, dst = edge_index
    messages = z.index_select(0, src)
    if propagation == "symmetric":
        degree = scatter_sum(torch.ones_like(dst, dtype=z.dtype), dst, z.shape[0])
        scale = degree.rsqrt().nan_to_num(posinf=0.0)
        messages = messages * (scale[src] * scale[dst]).unsqueeze(1)
    return scatter_sum(messages, dst, z.shape[0])


def attend(h: Tensor, edge_index: Tensor, attention: Tensor) -> Tensor:
    """Graph attention over neighbours and the node itself for states $[N, H]$ of one branch."""
    nodes = torch.arange(h.shape[0], device=h.device)
    proper = edge_index[:, edge_index[0] != edge_index[1]]
    src, dst = torch.cat([proper, nodes.expand(2, -1)], dim=1)
    of_src, of_dst = h.index_select(0, src), h.index_select(0, dst)
    scores = F.leaky_relu(torch.cat([of_dst, of_src], dim=1) @ attention, NEGATIVE_SLOPE)
    highest = torch.full_like(h[:, 0], -torch.inf).scatter_reduce(0, dst, scores.detach(), "amax")
    exponents = (scores - highest[dst]).exp()
    weights = exponents / scatter_sum(exponents, dst, h.shape[0])[dst]
    return scatter_sum(of_src * weights.unsqueeze(1), dst, h.shape[0])


class PlainLayer(nn.Module):
    """An environment estimator and K branches, weighted by its output."""

    def __init__(self, settings: CaNetSettings, backbone: str) -> None:
        super().__init__()
        hidden, k = settings.hidden, settings.num_environments
        self.settings = settings
        self.backbone = backbone
        reads_graph = settings.estimator == "graph"
        self.estimator = nn.Linear(hidden * (1 + reads_graph), k, bias=not reads_graph)
        width = 2 * hidden if backbone == "gcn" else hidden
        bound = 1 / math.sqrt(hidden)
        self.weight = nn.Parameter(torch.empty(k, width, hidden).uniform_(-bound, bound))
        if backbone == "gat":
            self.attention = nn.Parameter(torch.empty(k, 2 * hidden))
            nn.init.xavier_uniform_(self.attention, gain=math.sqrt(2))

    def forward(self, z: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        """States $[N, H]$ → new states, and the divergence of each node $[N]$ from the prior."""
        along = edge_index
        if self.settings.direction == "against":
            edge_index = edge_index.flip(0)
        inputs = z
        if self.settings.estimator == "graph":
            shared = self.backbone == "gcn" and self.settings.propagation == "symmetric"
            context = convolve(z, edge_index if shared else along, "symmetric")
            inputs = torch.cat([context, z], dim=1)
        logits = self.estimator(inputs)
        log_posterior = F.log_softmax(logits, dim=1)
        e = F.gumbel_softmax(logits, self.settings.tau) if self.training else log_posterior.exp()
        divergence = (e * (log_posterior + math.log(e.shape[1]))).sum(dim=1)
        branches = torch.stack(self.branches(z, edge_index), dim=1)
        return F.relu((branches * e.unsqueeze(2)).sum(dim=1) + z), divergence

    def branches(self, z: Tensor, edge_index: Tensor) -> list[Tensor]:
        """Output $[N, H]$ of each branch."""
        if self.backbone == "gcn":
            neighbours = convolve(z, edge_index, self.settings.propagation)
            inputs = torch.cat([neighbours, z], dim=1)
            return [inputs @ weight for weight in self.weight]
        pairs = zip(self.weight, self.attention, strict=True)
        return [attend(z @ weight, edge_index, attention) for weight, attention in pairs]


class PlainCaNet(nn.Module):
    """The model of the paper with `gcn` or `gat` branches."""

    def __init__(
        self, num_features: int, num_classes: int, settings: CaNetSettings, backbone: str
    ) -> None:
        super().__init__()
        self.dropout = settings.dropout
        self.phi_in = nn.Linear(num_features, settings.hidden)
        self.layers = nn.ModuleList(
            PlainLayer(settings, backbone) for _ in range(settings.num_layers)
        )
        self.phi_out = nn.Linear(settings.hidden, num_classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        """Features $[N, D]$ → logits $[N, C]$ and divergence $[N]$, the mean over the layers."""
        z = F.relu(self.phi_in(F.dropout(x, self.dropout, self.training)))
        divergences = []
        for layer in self.layers:
            z, divergence = layer(F.dropout(z, self.dropout, self.training), edge_index)
            divergences.append(divergence)
        logits = self.phi_out(F.dropout(z, self.dropout, self.training))
        return logits, torch.stack(divergences).mean(dim=0)


class PlainTraining:
    """Trains :class:`PlainCaNet` on the whole graph of a task.

    Args:
        task: The task.
        settings: Settings of CaNet; `prior` is always uniform.
        backbone: `gcn` or `gat`.
        device: The device.
    """

    def __init__(
        self, task: ShiftTask, settings: CaNetSettings, backbone: str, device: torch.device
    ) -> None:
        x = task.data.x
        self.x = (x if x.layout == torch.strided else x.to_dense()).to(device)
        assert task.data.edge_index is not None
        self.edge_index = task.data.edge_index.to(device)
        self.y = task.y.to(device)
        self.train, self.valid = task.train.to(device), task.valid
        self.host_y = task.y
        self.metric = task.scorer
        self.settings = settings
        self.model = PlainCaNet(task.num_features, task.num_classes, settings, backbone).to(device)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )

    def epoch(self) -> float:
        """Do a training step, then return the validation score."""
        self.model.train()
        self.optimizer.zero_grad()
        logits, divergence = self.model(self.x, self.edge_index)
        supervised = self.supervised(logits[self.train], self.y[self.train])
        (supervised + self.settings.reg_weight * divergence[self.train].mean()).backward()
        self.optimizer.step()
        self.model.eval()
        with torch.no_grad():
            logits = self.model(self.x, self.edge_index)[0].cpu()
        return float(self.metric(logits[self.valid], self.host_y[self.valid]))

    def supervised(self, logits: Tensor, y: Tensor) -> Tensor:
        if self.settings.loss == "cross_entropy":
            return F.cross_entropy(logits, y)
        return F.binary_cross_entropy_with_logits(logits, F.one_hot(y, logits.shape[1]).float())
