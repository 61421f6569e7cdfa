"""Random neighbours of nodes, for training in batches."""

import re
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from canet.errors import InputError

ALL = "all"  # the fanout that reads all neighbours
GOLDEN = 0x9E3779B97F4A7C15 - 2**64
FACTORS = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64
"""Constants of SplitMix64 (Steele et al., OOPSLA '14), as signed integers."""
SORTING_RATIO = 16
"""Sorting is faster than a mask over all N nodes for at most N divided by this many ids."""


class Draw(NamedTuple):
    """m drawn neighbours of n nodes, grouped by node.

    `rowptr` $[n + 1]$ is where the neighbours of each node begin, `row` $[m]$ the position of the
    node of each drawn neighbour, and `entry` $[m]$ the index of that neighbour in the graph. A sum
    over the drawn neighbours of a node times its `factor` $[n]$ estimates the sum over all of them;
    None: all neighbours were drawn. Entries may be unused: their row is n. `longest` is the largest
    possible number of neighbours of a node, if it is known.
    """

    rowptr: Tensor
    row: Tensor
    entry: Tensor
    factor: Tensor | None
    longest: int | None = None


def draw_neighbours(rowptr: Tensor, nodes: Tensor, fanout: int, seed: int = 0) -> Draw:
    """Draw at most `fanout` neighbours of each of `nodes` $[n]$; all of them if it is -1.

    A node with more neighbours draws with replacement, so that the cost does not depend on its
    degree. Its neighbours depend only on the seed and its id, not on the other nodes, the device or
    the process. The neighbours of each node of the graph begin at `rowptr` $[N + 1]$.
    """
    begin = rowptr[nodes]
    degree = rowptr[nodes + 1] - begin
    count = degree if fanout < 0 else degree.clamp(max=fanout)
    bounds = torch.cat([count.new_zeros(1), count.cumsum(0)])
    number = torch.arange(nodes.numel(), device=nodes.device)
    if fanout < 0:
        row = number.repeat_interleave(count)
        entry = torch.arange(row.numel(), device=row.device) + (begin - bounds[:-1])[row]
        return Draw(bounds, row, entry, None)
    slot = torch.arange(fanout, device=nodes.device)
    shape, degrees = (nodes.numel(), fanout), degree.unsqueeze(1)
    start = (seed * GOLDEN + 2**63) % 2**64 - 2**63  # as a signed integer
    random = scramble(scramble(nodes + start).unsqueeze(1) + slot * GOLDEN)
    offset = torch.where(degrees > fanout, (random & 2**31 - 1) * degrees >> 31, slot)
    is_used = slot < count.unsqueeze(1)
    entry = (begin.unsqueeze(1) + offset)[is_used]
    row = number.unsqueeze(1).expand(shape)[is_used]
    return Draw(bounds, row, entry, degree / count.clamp(min=1), fanout)


def scramble(x: Tensor) -> Tensor:
    """Map 64-bit integers to pseudo-random ones (the finaliser of SplitMix64)."""
    x = (x ^ x >> 30 & 2**34 - 1) * FACTORS[0]
    x = (x ^ x >> 27 & 2**37 - 1) * FACTORS[1]
    return x ^ x >> 31 & 2**33 - 1


def relabel(
    nodes: Tensor, read: Sequence[Tensor], position: Tensor, ascending: bool = False
) -> tuple[Tensor, list[Tensor]]:
    """Return `nodes` $[n]$, followed by the other nodes in `read`, and positions in this list.

    The work for few nodes does not depend on the size of the graph. `position` is an array over all
    nodes that contains -1, and does so afterwards.
    """
    n = nodes.numel()
    number_from = partial(torch.arange, dtype=position.dtype, device=position.device)
    position[nodes] = number_from(n)
    others = torch.cat([nodes[:0], *read])
    others = others[position[others] < 0]
    if ascending and others.numel() * SORTING_RATIO > position.numel():
        reached = torch.zeros(position.numel(), dtype=torch.bool, device=position.device)
        reached[others] = True
        others = reached.nonzero().squeeze(1)
    elif ascending:
        others = others.unique()
    else:
        number = number_from(others.numel())
        if position.device.type == "cpu":  # in their order, so that the last occurrence counts
            position.numpy()[others.numpy()] = number.numpy()
        else:
            position.scatter_reduce_(0, others, number, "amax")
        others = others[position[others] == number]
    position[others] = number_from(n, n + others.numel())
    sources = torch.cat([nodes, others])
    columns = [position[ids] for ids in read]
    position[sources] = -1
    return sources, columns


def most_nodes(num_nodes: int, fanout: Sequence[int], limit: int) -> list[int]:
    """Return the largest possible number of nodes after each hop, at most `limit`."""
    sizes = accumulate(fanout, lambda n, count: min(n * (1 + count), limit), initial=num_nodes)
    return list(sizes)[1:]


def parse_fanout(text: str, num_layers: int) -> tuple[int, ...]:
    """`"15,10"` → `(15, 10)`; `all`: all neighbours in every layer."""
    if text == ALL:
        return (-1,) * num_layers
    counts: tuple[int, ...] = ()
    if isinstance(text, str) and re.fullmatch(r"(-1|[1-9]\d{0,5})(,(-1|[1-9]\d{0,5}))*", text):
        counts = tuple(int(part) for part in text.split(","))
    if len(counts) != num_layers:
        raise InputError(
            f"fanout is {str(text)[:40]!r}: write 'all', or one number for each of the "
            f"{num_layers} layers, such as '{','.join(['15', '10', '5'][:num_layers])}'; -1 means "
            "all neighbours"
        )
    return counts
