"""CaNet as a researcher would write it from the equations: the yardstick of our speed.

Every pass computes the whole graph, test nodes included, with dense features; each of the K
branches is computed for every node, attention gathers both ends of every edge, and degrees are
counted in every forward pass. Correct, plain and slow.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def convolve(z: Tensor, edge_index: Tensor) -> Tensor:
    """Symmetric propagation: sum over incoming edges of z_v / sqrt(d_u d_v)."""
    src, dst = edge_index
    degree = torch.zeros(z.shape[0]).index_add_(0, dst, torch.ones(dst.numel()))
    scale = degree.rsqrt().nan_to_num(posinf=0.0)
    messages = z[src] * (scale[src] * scale[dst])[:, None]
    return torch.zeros_like(z).index_add_(0, dst, messages)


class PlainCaNet(nn.Module):
    """The model of the paper with a `graph` estimator, for `gcn` or `gat` branches."""

    def __init__(
        self, num_features: int, num_classes: int, hidden: int, layers: int, k: int, backbone: str
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.phi_in = nn.Linear(num_features, hidden)
        self.phi_out = nn.Linear(hidden, num_classes)
        width = 2 * hidden if backbone == "gcn" else hidden
        bound = hidden**-0.5
        self.branches = nn.ParameterList(
            torch.empty(k, width, hidden).uniform_(-bound, bound) for _ in range(layers)
        )
        self.attention = nn.ParameterList(torch.randn(k, 2 * hidden, 1) for _ in range(layers))
        self.estimators = nn.ModuleList(nn.Linear(2 * hidden, k, bias=False) for _ in range(layers))

    def forward(self, x: Tensor, edge_index: Tensor, tau: float, dropout: float) -> tuple:
        z = F.relu(self.phi_in(F.dropout(x, dropout, self.training)))
        divergence = torch.zeros(())
        for weight, attention, estimator in zip(
            self.branches, self.attention, self.estimators, strict=True
        ):
            z = F.dropout(z, dropout, self.training)
            logits = estimator(torch.cat([convolve(z, edge_index), z], dim=1))
            if self.training:
                e = F.gumbel_softmax(logits, tau)
                divergence = divergence + (e * F.log_softmax(logits, dim=1)).sum(dim=1).mean()
            else:
                e = logits.softmax(dim=1)
            if self.backbone == "gcn":
                inputs = torch.cat([convolve(z, edge_index), z], dim=1)
                outputs = torch.stack([inputs @ w for w in weight], dim=1)
            else:
                outputs = torch.stack(
                    [
                        self.attend(z @ w, edge_index, a)
                        for w, a in zip(weight, attention, strict=True)
                    ],
                    dim=1,
                )
            z = F.relu((e[:, :, None] * outputs).sum(dim=1) + z)
        return self.phi_out(F.dropout(z, dropout, self.training)), divergence / len(self.branches)

    def attend(self, h: Tensor, edge_index: Tensor, attention: Tensor) -> Tensor:
        n = h.shape[0]
        proper = edge_index[:, edge_index[0] != edge_index[1]]
        src, dst = torch.cat([proper, torch.arange(n).repeat(2, 1)], dim=1)
        scores = F.leaky_relu(torch.cat([h[dst], h[src]], dim=1) @ attention, 0.2).squeeze(1)
        exponents = (scores - scores.max()).exp()
        total = torch.zeros(n).index_add_(0, dst, exponents)
        messages = h[src] * (exponents / total[dst])[:, None]
        return torch.zeros_like(h).index_add_(0, dst, messages)
