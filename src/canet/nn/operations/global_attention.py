"""Attention over whole graphs, at a cost linear in the number of nodes."""

from __future__ import annotations

import torch
from torch import Tensor

from canet.nn.graphs import Graphs


def attend_globally(graphs: Graphs, query: Tensor, key: Tensor, z: Tensor, own: Tensor) -> Tensor:
    r"""Linear attention of each node over all N nodes of its graph,

    .. math:: G_u = \frac{N z_u + \sum_v (q_u^\top k_v)\,z_v}{N + \sum_v q_u^\top k_v}.

    A node that is alone in its graph attends to itself, $G_u = z_u$. For graphs with more than H
    nodes, $\sum_v k_v z_v^\top$ is computed first, so that no tensor is larger than nodes × H.

    Shapes:
        - query $[n_{dst}, H]$, key $[n_{src}, H]$, rows of unit norm, z $[n_{src}, H]$,
          own $[n_{dst}, H]$ → $[n_{dst}, H]$
    """
    parts = []
    for batch in graphs.batches:
        states = own if batch.dst is None else own.index_select(0, batch.dst)
        if batch.max_src == 1:
            parts.append(states)
            continue
        keys, values = batch.pad_src(key), batch.pad_src(z)
        queries = batch.pad_dst(query)
        if batch.max_src <= key.shape[1]:
            scores = queries @ keys.transpose(1, 2)
            attended, total = scores @ values, scores.sum(dim=2, keepdim=True)
        else:
            attended = queries @ (keys.transpose(1, 2) @ values)
            total = queries @ keys.sum(dim=1).unsqueeze(2)
        attended, total = batch.unpad_dst(attended), batch.unpad_dst(total)
        parts.append((batch.size * states + attended) / (batch.size + total))
    if graphs.position is None:
        return parts[0] if parts else own
    return torch.cat(parts).index_select(0, graphs.position)
