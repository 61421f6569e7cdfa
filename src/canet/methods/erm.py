"""Empirical risk minimisation: the plain supervised loss."""

from __future__ import annotations

from torch import Tensor

from canet.methods.base import Batch, Method


class ERM(Method):
    """Minimise the mean supervised loss over the training nodes (Vapnik, 1998)."""

    name = "erm"
    summary = "the plain supervised loss on a GCN or GAT"
    paper = "Vapnik, Statistical Learning Theory, 1998"

    def loss(self, batch: Batch) -> Tensor:
        return self.node_losses(self.predict(batch), batch.y).mean()
