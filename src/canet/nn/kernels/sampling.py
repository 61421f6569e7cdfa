"""Random neighbours of nodes, hop by hop, without waiting for the device between two hops.

Sizes are known only on the device until the last hop, so arrays have the largest possible size and
programs beyond the true size do nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from canet.nn import sampling
from canet.nn.kernels.launch import launch

BLOCK = 256
GOLDEN, FIRST, SECOND = (tl.constexpr(number) for number in (sampling.GOLDEN, *sampling.FACTORS))


class Hop(NamedTuple):
    """Drawn neighbours of the nodes of one hop, in arrays that may be longer than needed.

    `rowptr` $[n + 1]$ is where the neighbours of each node begin; nodes beyond the true number have
    none. For each neighbour: `col` $[m]$ is its position among the `num_src` nodes of the next hop,
    `row` that of its node, `entry` its index in the graph and `node` its id. Unused entries at the
    end have `num_src` as `col`, n as `row`, and zeros.
    """

    fanout: int
    num_src: int
    rowptr: Tensor
    col: Tensor
    row: Tensor
    entry: Tensor
    node: Tensor

    def cut(self, before: Sequence[int], after: Sequence[int]) -> "Hop":
        """Remove unused places, given the numbers of nodes and neighbours before and after."""
        entries = (one[: after[1]] for one in self[3:])
        return Hop(self.fanout, after[0], self.rowptr[: before[0] + 1], *entries)


def draw_hops(
    rowptr: Tensor,
    neighbours: Tensor,
    nodes: Tensor,
    fanout: Sequence[int],
    seed: Tensor,
    position: Tensor,
    capacity: Sequence[int],
) -> tuple[Tensor, list[Hop], Tensor]:
    """Draw neighbours of `nodes` $[n]$, then of all nodes so far, once for each number in `fanout`.

    A node with more neighbours than the number draws with replacement. Nothing waits for the
    device.

    Args:
        rowptr: Where the neighbours of each node of the graph begin $[N + 1]$.
        neighbours: Their ids $[E]$.
        nodes: Different nodes.
        fanout: Numbers of neighbours, 1 or more.
        seed: Determines the neighbours; one integer.
        position: 32-bit array over all nodes of the graph that contains -1 (in no hop), and does
            so afterwards.
        capacity: Largest number of nodes after each hop. If a neighbour does not fit, the node that
            drew it reads itself instead.

    Returns:
        The nodes of the last hop, which begin with those of the earlier ones, the hops, and the
        number of nodes after each hop (as if the capacity was unlimited) and of neighbours
        $[h, 2]$.
    """
    device, n = nodes.device, nodes.numel()
    known = torch.zeros(capacity[-1], dtype=torch.long, device=device)
    known[:n] = nodes
    sizes = torch.empty(len(fanout) + 1, 2, dtype=torch.int32, device=device)
    sizes[0].fill_(n)
    launch(_number, (triton.cdiv(n, BLOCK),))(nodes, position, n, BLOCK=BLOCK)
    hops: list[Hop] = []
    for hop, (count, limit) in enumerate(zip(fanout, capacity, strict=True)):
        slots, size, following = n * count, sizes[hop], sizes[hop + 1]
        grid = (triton.cdiv(slots, BLOCK),)
        drawn = torch.empty(slots, dtype=torch.long, device=device)
        begin = torch.zeros(n + 1, dtype=torch.int32, device=device)
        launch(_draw, grid)(
            rowptr, neighbours, known, size, seed, hop, position, drawn, begin, slots,
            FANOUT=count, BLOCK=BLOCK,
        )  # fmt: skip
        begin = begin.cumsum(0, dtype=torch.int32)
        is_new = torch.empty(slots, dtype=torch.int32, device=device)
        launch(_find_new, grid)(neighbours, drawn, position, is_new, slots, BLOCK=BLOCK)
        rank = is_new.cumsum(0, dtype=torch.int32)
        launch(_add_new, grid)(
            neighbours, drawn, is_new, rank, begin, n, size, following, position, known, limit,
            slots, BLOCK=BLOCK,
        )  # fmt: skip
        col = torch.full((slots,), limit, dtype=torch.int32, device=device)
        row = torch.full((slots,), n, dtype=torch.int32, device=device)
        entry, node = torch.zeros(2, slots, dtype=torch.long, device=device)
        launch(_compact, grid)(
            neighbours, drawn, begin, position, entry, node, row, col, slots,
            FANOUT=count, BLOCK=BLOCK,
        )  # fmt: skip
        hops.append(Hop(count, limit, begin, col, row, entry, node))
        n = limit
    for seen in [nodes, *(found.node for found in hops)]:
        launch(_forget, (triton.cdiv(seen.numel(), BLOCK),))(
            seen, position, seen.numel(), BLOCK=BLOCK
        )
    return known, hops, sizes


@triton.jit
def _number(nodes, position, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    node = tl.load(nodes + i, mask=i < n, other=0)
    tl.store(position + node, i, mask=i < n)


@triton.jit
def _scramble(x):
    """As `canet.nn.sampling.scramble`."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * FIRST
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * SECOND
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


@triton.jit
def _draw(
    rowptr, neighbours, known, size, seed, hop, position, drawn, count, slots,
    FANOUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Draw an entry for each slot, -1 if the node has too few neighbours.

    The unseen neighbour of several slots gets the number of the last slot as a negative position.
    """
    slot = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    i, j = slot // FANOUT, slot % FANOUT
    inside = (slot < slots) & (i < tl.load(size))
    node = tl.load(known + i, mask=inside, other=0)
    begin = tl.load(rowptr + node, mask=inside, other=0)
    degree = tl.load(rowptr + node + 1, mask=inside, other=0) - begin
    number = tl.minimum(degree, FANOUT)
    of_node = _scramble(node + (tl.load(seed) + hop) * GOLDEN)
    random = _scramble(of_node + j.to(tl.int64) * GOLDEN) & 0x7FFFFFFF
    entry = begin + tl.where(degree > FANOUT, (random * degree) >> 31, j)
    is_used = inside & (j < number)
    tl.store(drawn + slot, tl.where(is_used, entry, -1), mask=slot < slots)
    tl.store(count + i + 1, number.to(tl.int32), mask=inside & (j == 0))
    node = tl.load(neighbours + entry, mask=is_used, other=0)
    is_unseen = is_used & (tl.load(position + node, mask=is_used, other=0) < 0)
    tl.atomic_min(position + node, -2 - slot, mask=is_unseen)


@triton.jit
def _find_new(neighbours, drawn, position, is_new, slots, BLOCK: tl.constexpr):
    slot = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = slot < slots
    entry = tl.load(drawn + slot, mask=inside, other=-1)
    node = tl.load(neighbours + entry, mask=inside & (entry >= 0), other=0)
    found = tl.load(position + node, mask=inside & (entry >= 0), other=0)
    tl.store(is_new + slot, (found == -2 - slot).to(tl.int32), mask=inside)


@triton.jit
def _add_new(
    neighbours, drawn, is_new, rank, begin, n, size, following, position, known, limit,
    slots, BLOCK: tl.constexpr,
):  # fmt: skip
    """Number the new nodes after the known ones, and store the sizes of the next hop."""
    slot = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = slot < slots
    before = tl.minimum(tl.load(size), n)
    place = before + tl.load(rank + slot, mask=inside, other=0) - 1
    found = inside & (tl.load(is_new + slot, mask=inside, other=0) > 0) & (place < limit)
    entry = tl.load(drawn + slot, mask=found, other=0)
    node = tl.load(neighbours + entry, mask=found, other=0)
    tl.store(position + node, place, mask=found)
    tl.store(known + place, node.to(tl.int64), mask=found)
    if tl.program_id(0) == 0:
        tl.store(following, before + tl.load(rank + slots - 1))
        tl.store(following + 1, tl.load(begin + n))


@triton.jit
def _compact(
    neighbours, drawn, begin, position, entries, nodes, rows, col, slots,
    FANOUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store the drawn neighbours without gaps."""
    slot = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    i, j = slot // FANOUT, slot % FANOUT
    entry = tl.load(drawn + slot, mask=slot < slots, other=-1)
    is_used = entry >= 0
    node = tl.load(neighbours + entry, mask=is_used, other=0)
    place = tl.load(position + node, mask=is_used, other=0)
    at = tl.load(begin + i, mask=is_used, other=0) + j
    tl.store(entries + at, entry, mask=is_used)
    tl.store(nodes + at, node.to(tl.int64), mask=is_used)
    tl.store(rows + at, i, mask=is_used)
    tl.store(col + at, tl.where(place < 0, i, place), mask=is_used)


@triton.jit
def _forget(nodes, position, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(position + tl.load(nodes + i, mask=i < n, other=0), -1, mask=i < n)
