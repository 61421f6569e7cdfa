"""EERM: editors of the training graph look for contexts in which the model's risks differ most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from canet.methods.base import Batch, Method, Settings, TrainingView
from canet.nn import Block, Features, Graph
from canet.nn.model import rows_of
from canet.settings import setting
from canet.util.colour import Colour
from canet.util.sparse import components

NUM_CANDIDATES = 20


@dataclass(frozen=True)
class EERMSettings(Settings):
    """Settings of EERM: the published code's defaults, but for s, which is 5 there.

    Five random edges at each node outnumber the few that sparse graphs have.
    """

    num_editors: int = setting(3, "K, editors of the graph", minimum=2, maximum=100, search=(3, 5))
    edits_per_node: int = setting(
        1,
        "s, edges that an editor flips at each node",
        minimum=1,
        below=NUM_CANDIDATES,
        search=(1, 5, 10),
    )
    beta: float = setting(
        1.0, "β, weight of the risks' mean beside their variance", above=0, search=(0.5, 1, 2, 3)
    )
    inner_steps: int = setting(
        1,
        "T, steps of the editors before one of the model",
        minimum=1,
        maximum=1000,
        search=(1, 5),
    )
    editor_learning_rate: float = setting(
        0.005, "Adam's learning rate of the editors", above=0, search=(0.001, 0.005, 0.01)
    )


class EERM(Method):
    r"""Explore-to-extrapolate risk minimisation (Wu et al., ICLR '22).

    K editors each turn the training graph into another context $G_k$, drawn from $p_{w_k}$; with
    $R_k$ the risk there, the model and the editors play

    .. math:: \min_\theta \mathrm{Var}_k[R_k] + \beta\,\mathrm{Mean}_k[R_k], \qquad
              \max_w E\left[\mathrm{Var}_k[R_k]\right].

    The editors climb by REINFORCE without a baseline, $\mathrm{Var}_k[R_k] \sum_k \nabla_w
    \log p_{w_k}(G_k)$, for T steps; then the model takes one, on the graphs of the last of them.
    Editors keep what they learned from epoch to epoch. What they edit are the connected components
    that hold training nodes; a new edge may join two of them, but a backbone that reads whole
    graphs reads each component as it was. Predictions read the graph as it is.
    """

    name = "eerm"
    label = "EERM"
    colour = Colour("#8b8b8b", "#a8a8a8")
    summary = "least variance of the risks over graphs that editors make, no environment labels"
    paper = "Wu et al., Handling Distribution Shifts on Graphs, ICLR 2022"
    settings_type = EERMSettings

    x: Features  # of the nodes of all K graphs
    copies: Tensor  # [K, N], the row of each graph's nodes in x
    graph: Tensor  # [K N], the component of each row of x, numbered over all K graphs
    far: bool  # whether most nodes are out of the training nodes' reach
    editors: Editors | None = None

    def prepare(self, view: TrainingView) -> None:
        nodes, edge_index, component = training_components(view)
        device = self.model.phi_in.weight.device
        self.editors = Editors(
            self._from_source_to_reader(edge_index),
            nodes.numel(),
            self.settings.num_editors,
            self.settings.edits_per_node,
            device,
        )
        _, blocks = view.read(view.train)
        self.far = blocks[0].num_src < nodes.numel() / 2
        copies = side_by_side(nodes.numel(), view.train.numel(), self.settings.num_editors)
        read, graph = torch.empty_like(copies.flatten()), torch.empty_like(copies.flatten())
        read[copies.flatten()] = nodes.repeat(self.settings.num_editors)
        first = (int(component.max()) + 1) * torch.arange(self.settings.num_editors)
        graph[copies] = first[:, None] + component
        self.x, self.copies = rows_of(view.x, read).to(device), copies.to(device)
        self.graph = graph.to(device)

    def update(self, batch: Batch, optimizer: torch.optim.Optimizer) -> Tensor:
        assert self.editors is not None
        for step in range(1, self.settings.inner_steps + 1):
            draw = self.editors.draw()
            with torch.set_grad_enabled(step == self.settings.inner_steps):
                risks = self.risks(batch.y, draw)
            score = risks.detach().var() * log_probability(self.editors.logits, draw)
            descend(-score, optimizer)
        return descend(self.objective(risks), optimizer)

    def objective(self, risks: Tensor) -> Tensor:
        """$\\mathrm{Var}_k[R_k] + \\beta\\,\\mathrm{Mean}_k[R_k]$ of risks $[K]$."""
        variance, mean = torch.var_mean(risks)
        return variance + self.settings.beta * mean

    def risks(self, y: Tensor, draw: Tensor) -> Tensor:
        """Mean loss of the training nodes in each edited graph, $[K]$, for draws $[K, N, s]$."""
        assert self.editors is not None
        editor, *edges = self.editors.flip(draw)
        edge_index = self.copies[editor, self._from_source_to_reader(torch.stack(edges))]
        num_editors = len(draw)
        x, blocks = self._read(edge_index, num_editors * y.numel())
        losses = self.node_losses(self.model(x, blocks).logits, y.repeat(num_editors))
        return losses.view(num_editors, -1).mean(dim=1)

    def parameter_groups(self) -> list[dict[str, Any]]:
        groups = super().parameter_groups()
        if self.editors is not None:
            rate = self.settings.editor_learning_rate
            groups.append({"params": [self.editors.logits], "lr": rate, "weight_decay": 0.0})
        return groups

    def training_state(self) -> dict[str, Tensor]:
        return {} if self.editors is None else {"editors.logits": self.editors.logits}

    def _read(self, edge_index: Tensor, num_train: int) -> tuple[Features, Sequence[Block]]:
        """Features and blocks of the training nodes in the edited graphs.

        Where most nodes are within reach, finding those that are not costs more than it saves:
        then every layer but the last has all.
        """
        graph = Graph(edge_index, self.x.shape[0], self.model.operators, self.graph)
        train = torch.arange(num_train, device=edge_index.device)
        if self.far:
            field = graph.receptive_field(train, self.model.num_layers)
            return rows_of(self.x, field.nodes), field.blocks
        last = graph.block.select_rows(train)
        return self.x, [graph.block] * (self.model.num_layers - 1) + [last]

    def _from_source_to_reader(self, edge_index: Tensor) -> Tensor:
        """Edges turned so that the second node reads the first, or turned back."""
        return edge_index if self.settings.direction == "along" else edge_index.flip(0)


class Editors:
    r"""K editors of a graph of N nodes, each with a policy per node for what the node reads.

    An editor flips entries of the adjacency matrix: an edge that is there goes, with all its
    copies, one that is missing comes. Edits are directed: flipping $(u, v)$ changes what v reads
    and leaves $(v, u)$ alone. Where the paper chooses among all N entries of a node, which needs
    $K N^2$ logits, an editor here has $C = 20$ fixed candidates per node: up to $C / 2$ of
    its edges, the rest nodes drawn uniformly. A candidate that is the node itself edits nothing: a
    node reads itself whatever its edges are.

    The logits are part of no module: they are for training alone, and their size is the task's.

    Args:
        edge_index: Edges $[2, E]$ (source, reader) on the CPU, where every choice is drawn.
        num_nodes: $N$.
        num_editors: $K$.
        edits_per_node: $s$.
        device: Where the editors work.
    """

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        num_editors: int,
        edits_per_node: int,
        device: torch.device,
    ) -> None:
        source, reader = edge_index
        entries, entry = torch.unique(reader * num_nodes + source, return_inverse=True)
        candidates = draw_candidates(entries, num_nodes)
        self.edits_per_node = edits_per_node
        self.num_entries = entries.numel()
        self.edge_index = edge_index.to(device)
        self.entry = entry.to(device)
        self.candidates = candidates.to(device)
        self.candidate_entry = find_entries(entries, candidates).to(device)
        self.logits = torch.rand(num_editors, num_nodes, NUM_CANDIDATES).to(device).requires_grad_()

    @torch.no_grad()
    def draw(self) -> Tensor:
        """Which s candidates each editor flips at each node, in the order drawn: $[K, N, s]$."""
        probability = self.logits.softmax(dim=-1).flatten(0, 1)
        drawn = torch.multinomial(probability, self.edits_per_node)
        return drawn.view(*self.logits.shape[:2], -1)

    def flip(self, draw: Tensor) -> Tensor:
        """Edges of all edited graphs, (editor, source, reader), after flips $[K, N, s]$."""
        shape = draw.shape
        chosen = self.candidates.expand(shape[0], -1, -1).gather(2, draw)
        entry = self.candidate_entry.expand(shape[0], -1, -1).gather(2, draw)
        kept = torch.ones(shape[0], self.num_entries + 1, dtype=torch.bool, device=draw.device)
        kept.scatter_(1, entry.flatten(1), False)
        editor, edge = kept[:, self.entry].nonzero(as_tuple=True)
        own = torch.arange(shape[1], device=draw.device)[:, None]
        adder, reader, slot = ((entry == self.num_entries) & (chosen != own)).nonzero(as_tuple=True)
        left = torch.stack([editor, *self.edge_index[:, edge]])
        return torch.cat([left, torch.stack([adder, chosen[adder, reader, slot], reader])], dim=1)


def descend(loss: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
    """One step of the parameters that the loss reaches, and no others; the loss, detached."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.detach()


def log_probability(logits: Tensor, draw: Tensor) -> Tensor:
    r"""Log-probability of all draws together, a scalar.

    A draw without replacement takes $m_1, \dots, m_s$ one after the other,

    .. math:: \log p = \sum_{t=1}^s \left[ b_{m_t} -
              \log \sum_{m \notin \{m_1, \dots, m_{t-1}\}} \exp b_m \right].

    Shapes:
        - logits $b$ $[*, C]$, draw $[*, s]$ with $s < C$ → $[]$
    """
    rest = logits.scatter(-1, draw, -torch.inf).logsumexp(dim=-1, keepdim=True)
    last_first = logits.gather(-1, draw).flip(-1)
    totals = torch.cat([rest, last_first], dim=-1).logcumsumexp(dim=-1)[..., 1:]
    return (last_first - totals).sum()


def draw_candidates(entries: Tensor, num_nodes: int) -> Tensor:
    """Sources $[N, C]$ that each node may begin or cease to read: no other node stands twice.

    Args:
        entries: Entries of the adjacency matrix, reader × N + source, each once.
        num_nodes: $N$.
    """
    own = torch.arange(num_nodes)[:, None]
    candidates = torch.randint(num_nodes, (num_nodes, NUM_CANDIDATES))
    shuffled = entries[torch.randperm(entries.numel())]
    order = torch.argsort(shuffled // num_nodes, stable=True)
    reader, source = shuffled[order] // num_nodes, shuffled[order] % num_nodes
    rank = torch.arange(reader.numel()) - torch.searchsorted(reader, reader)
    few = rank < NUM_CANDIDATES // 2
    candidates[reader[few], rank[few]] = source[few]
    candidates, _ = candidates.sort(dim=1)
    again = candidates[:, 1:] == candidates[:, :-1]
    candidates[:, 1:] = torch.where(again, own, candidates[:, 1:])
    return candidates


def find_entries(entries: Tensor, candidates: Tensor) -> Tensor:
    """Place of each candidate $[N, C]$ in the sorted entries; past their end if it edits none."""
    own = torch.arange(candidates.shape[0])[:, None]
    key = own * candidates.shape[0] + candidates
    place = torch.searchsorted(entries, key)
    found = torch.cat([entries, entries.new_tensor([-1])])[place] == key
    return torch.where(found & (candidates != own), place, entries.numel())


def side_by_side(num_nodes: int, num_train: int, num_graphs: int) -> Tensor:
    """Rows $[K, N]$ for the nodes of K graphs, the training nodes of all before the others."""
    train = torch.arange(num_graphs * num_train).view(num_graphs, -1)
    others = torch.arange(train.numel(), num_graphs * num_nodes).view(num_graphs, -1)
    return torch.cat([train, others], dim=1)


def training_components(view: TrainingView) -> tuple[Tensor, Tensor, Tensor]:
    """The graphs that hold a training node: their nodes, and edges between them.

    Returns:
        Node ids, the training nodes first in their order, edges $[2, E]$ between their places, and
        the graph of each node.
    """
    num_nodes = view.x.shape[0]
    edge_index, train = view.edge_index, view.train
    component = components(edge_index, num_nodes) if view.graph is None else view.graph
    inside = torch.isin(component, component[train])
    others = inside.clone()
    others[train] = False
    nodes = torch.cat([train, others.nonzero().squeeze(1)])
    place = torch.full((num_nodes,), -1)
    place[nodes] = torch.arange(nodes.numel())
    return nodes, place[edge_index[:, inside[edge_index].all(dim=0)]], component[nodes].long()
