"""Attention over whole graphs, linear in their nodes."""

from __future__ import annotations

import torch
from torch import Tensor

from canet.nn.graphs import Graphs


def attend_globally(graphs: Graphs, query: Tensor, key: Tensor, z: Tensor, own: Tensor) -> Tensor:
    r"""Linear attention of each node over its whole graph, with N nodes,

    .. math:: G_u = \frac{N z_u + \sum_v (q_u^\top k_v)\,z_v}{N + \sum_v q_u^\top k_v}.

    A node alone in its graph attends to itself, $G_u = z_u$. Where a graph has more nodes than H,
    $\sum_v k_v z_v^\top$ comes first; nothing is larger than nodes × H either way.

    Shapes:
        - query $[n_{dst}, H]$, key $[n_{src}, H]$, rows of unit norm, z $[n_{src}, H]$,
          own $[n_{dst}, H]$ → $[n_{dst}, H]$
    """
    parts = []
    for alike in graphs.by_size:
        states = own if alike.reader is None else own.index_select(0, alike.reader)
        if alike.largest == 1:
            parts.append(states)
            continue
        keys, values = alike.pad_read(key), alike.pad_read(z)
        queries = alike.pad_readers(query)
        if alike.largest <= key.shape[1]:
            scores = queries @ keys.transpose(1, 2)
            attended, total = scores @ values, scores.sum(dim=2, keepdim=True)
        else:
            attended = queries @ (keys.transpose(1, 2) @ values)
            total = queries @ keys.sum(dim=1).unsqueeze(2)
        attended, total = alike.take_readers(attended), alike.take_readers(total)
        parts.append((alike.size * states + attended) / (alike.size + total))
    if graphs.place is None:
        return parts[0] if parts else own
    return torch.cat(parts).index_select(0, graphs.place)
