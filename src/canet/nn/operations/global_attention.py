"""Attention over whole graphs, at a cost linear in the number of nodes."""

import torch
from torch import Tensor

from canet.nn.membership import Graphs, GraphSums

ROWS_AT_ONCE = 1024  # nodes whose products with the sums of different graphs are computed at once


def attend_globally(
    graphs: Graphs | GraphSums, query: Tensor, key: Tensor, z: Tensor, own: Tensor
) -> Tensor:
    r"""Linear attention of each node over all N nodes of its graph,

    .. math:: G_u = \frac{N z_u + \sum_v (q_u^\top k_v)\,z_v}{N + \sum_v q_u^\top k_v}.

    A node that is alone in its graph attends to itself, $G_u = z_u$. For graphs with more than H
    nodes, $\sum_v k_v z_v^\top$ is computed first, so that no tensor is larger than nodes × H.

    Shapes:
        - query $[n_{dst}, H]$, key $[n_{src}, H]$, rows of unit norm, z $[n_{src}, H]$,
          own $[n_{dst}, H]$ → $[n_{dst}, H]$
    """
    if isinstance(graphs, GraphSums):
        return _attend_to_sums(graphs, query, own)
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


def _attend_to_sums(graphs: GraphSums, query: Tensor, own: Tensor) -> Tensor:
    """The same attention, given the sums over each graph."""
    if not len(graphs.size):
        return own
    number = graphs.dst.clamp(min=0)
    if len(graphs.size) == 1:
        product = query @ graphs.sums[0]
    else:
        rows = zip(query.split(ROWS_AT_ONCE), number.split(ROWS_AT_ONCE), strict=True)
        parts = [torch.einsum("nh,nhj->nj", q, graphs.sums[graph]) for q, graph in rows]
        product = torch.cat(parts)
    size = graphs.size[number].to(own).unsqueeze(1)
    whole = (size * own + product[:, :-1]) / (size + product[:, -1:])
    return torch.where((graphs.dst < 0).unsqueeze(1), own, whole)


def sum_graphs(key: Tensor, z: Tensor, number: Tensor, num_graphs: int) -> Tensor:
    r"""Return $\sum_v k_v [z_v \| 1]^\top$ over the nodes of each graph.

    Shapes:
        - key and z $[n, H]$, number $[n]$ of each node's graph, -1 for none → $[G, H, H + 1]$
    """
    chosen = number >= 0
    key, number = key[chosen], number[chosen]
    values = torch.nn.functional.pad(z[chosen], (0, 1), value=1.0)
    if num_graphs == 1:
        return (key.t() @ values).unsqueeze(0)
    total = key.new_zeros(num_graphs, key.shape[1], values.shape[1])
    parts = (one.split(ROWS_AT_ONCE) for one in (key, values, number))
    for k, v, graph in zip(*parts, strict=True):
        total.index_add_(0, graph, torch.einsum("nh,nj->nhj", k, v))
    return total
