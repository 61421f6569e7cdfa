"""EERM: editors change the training graph such that the risks of the model differ most."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from canet.methods.base import Batch, Method, Settings, TrainingView, descend
from canet.methods.traits import Traits
from canet.nn import Block, Features, NormalisedGraph
from canet.nn.model import rows_of
from canet.settings import setting
from canet.util.colour import Colour
from canet.util.sparse import components

NUM_CANDIDATES = 20


@dataclass(frozen=True)
class EERMSettings(Settings):
    """Settings of EERM: the defaults of the published code, except s, which is 5 there.

    In sparse graphs, five random edges per node would outnumber the original edges.
    """

    num_editors: int = setting(
        3, "K, number of graph editors", minimum=2, maximum=100, search=(3, 5)
    )
    edits_per_node: int = setting(
        1,
        "s, number of edges that an editor flips at each node",
        minimum=1,
        below=NUM_CANDIDATES,
        search=(1, 5, 10),
    )
    beta: float = setting(
        1.0,
        "β, weight of the mean risk relative to the variance of the risks",
        above=0,
        search=(0.5, 1, 2, 3),
    )
    inner_steps: int = setting(
        1,
        "T, number of editor steps before each step of the model",
        minimum=1,
        maximum=1000,
        search=(1, 5),
    )
    editor_learning_rate: float = setting(
        0.005, "learning rate of the editors", above=0, search=(0.001, 0.005, 0.01)
    )


class EERM(Method):
    r"""Explore-to-extrapolate risk minimisation (Wu et al., ICLR '22).

    Each of K editors changes the training graph into a graph $G_k$, drawn from $p_{w_k}$. With
    $R_k$ the risk on $G_k$, the objectives of the model and of the editors are

    .. math:: \min_\theta \mathrm{Var}_k[R_k] + \beta\,\mathrm{Mean}_k[R_k], \qquad
              \max_w E\left[\mathrm{Var}_k[R_k]\right].

    The editors take T steps of REINFORCE without a baseline, with the gradient
    $\mathrm{Var}_k[R_k] \sum_k \nabla_w \log p_{w_k}(G_k)$. Then the model takes one step on the
    graphs of the last of these steps. The policies of the editors are kept from epoch to epoch.
    Editors change the connected components with training nodes. A new edge may join two components,
    but attention over whole graphs still uses the original components. Predictions use the original
    graph.
    """

    name = "eerm"
    label = "EERM"
    colour = Colour("#8b8b8b", "#a8a8a8")
    summary = "mean and variance of the risks over edited graphs, without environment labels"
    paper = "Wu et al., Handling Distribution Shifts on Graphs, ICLR 2022"
    settings_type = EERMSettings
    traits = Traits(uses_edge_weights=False)

    x: Features  # features of the nodes of all K graphs
    copies: Tensor  # row of each node of each graph in x, [K, N]
    graph: Tensor  # component of each row of x, [K N], numbered over all K graphs
    uses_field: bool  # whether to cut the receptive field: it has less than half of the nodes
    editors: "Editors | None" = None

    def prepare(self, view: TrainingView) -> None:
        nodes, edge_index, component = training_components(view)
        count, num_edits = self.settings.num_editors, self.settings.edits_per_node
        device, edges = self.model.phi_in.weight.device, self._oriented(edge_index)
        self.editors = Editors(edges, nodes.numel(), count, num_edits, device)
        _, blocks = view.read(view.train)
        self.uses_field = blocks[0].num_src < nodes.numel() / 2
        copies = stacked_rows(nodes.numel(), view.train.numel(), count)
        node_ids, graph = torch.empty_like(copies.flatten()), torch.empty_like(copies.flatten())
        node_ids[copies.flatten()] = nodes.repeat(count)
        first = (int(component.max()) + 1) * torch.arange(count)
        graph[copies] = first[:, None] + component
        self.x, self.copies = rows_of(view.x, node_ids).to(device), copies.to(device)
        self.graph = graph.to(device)

    def update(self, batch: Batch, optimizer: torch.optim.Optimizer) -> Tensor:
        assert self.editors is not None
        for step in range(1, self.settings.inner_steps + 1):
            draw = self.editors.draw()
            with torch.set_grad_enabled(step == self.settings.inner_steps):
                risks = self.risks(batch.y, draw, batch.weight)
            score = risks.detach().var() * log_probability(self.editors.logits, draw)
            descend(-score, optimizer)
        return descend(self.objective(risks), optimizer)

    def objective(self, risks: Tensor) -> Tensor:
        """Return $\\mathrm{Var}_k[R_k] + \\beta\\,\\mathrm{Mean}_k[R_k]$ for risks $[K]$."""
        variance, mean = torch.var_mean(risks)
        return variance + self.settings.beta * mean

    def risks(self, y: Tensor, draw: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the mean training loss $[K]$ in each edited graph, for draws $[K, N, s]$."""
        assert self.editors is not None
        editor, *edges = self.editors.flip(draw)
        edge_index = self.copies[editor, self._oriented(torch.stack(edges))]
        num_editors = len(draw)
        x, blocks = self._read(edge_index, num_editors * y.numel())
        weight = None if weight is None else weight.repeat(num_editors)
        losses = self.node_losses(self.model(x, blocks).logits, y.repeat(num_editors), weight)
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
        """Return features and blocks of the training nodes in the edited graphs.

        If the receptive field contains most nodes, cutting it costs more time than it saves. Then
        every layer except the last computes all nodes.
        """
        graph = NormalisedGraph(edge_index, self.x.shape[0], self.model.operators, self.graph)
        train = torch.arange(num_train, device=edge_index.device)
        if self.uses_field:
            field = graph.receptive_field(train, self.model.num_layers)
            return rows_of(self.x, field.nodes), field.blocks
        last = graph.block.select_rows(train)
        return self.x, [graph.block] * (self.model.num_layers - 1) + [last]

    def _oriented(self, edge_index: Tensor) -> Tensor:
        """Edges in the direction of the messages; the function is its own inverse."""
        return edge_index if self.settings.direction == "along" else edge_index.flip(0)


class Editors:
    r"""K editors of a graph with N nodes. Each has a policy per node for its incoming edges.

    An editor flips entries of the adjacency matrix: it removes an existing edge with all its
    duplicates, or adds a missing edge. Edits are directed: flipping $(u, v)$ does not change
    $(v, u)$. In the paper, an editor chooses among all N entries of a node, which needs $K N^2$
    logits. Here it has $C = 20$ fixed candidates per node: up to $C / 2$ of its edges, and nodes
    drawn uniformly. A candidate that is the node itself has no effect, because every node uses its
    own state anyway.

    The logits are not parameters of a module: only training needs them, and their size depends on
    the task. The edges $[2, E]$ (source, destination) are on the CPU, where candidates are drawn.
    """

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        num_editors: int,
        edits_per_node: int,
        device: torch.device,
    ) -> None:
        source, destination = edge_index
        entries, entry = torch.unique(destination * num_nodes + source, return_inverse=True)
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
        """Draw the s candidates that each editor flips at each node, in order: $[K, N, s]$."""
        probability = self.logits.softmax(dim=-1).flatten(0, 1)
        drawn = torch.multinomial(probability, self.edits_per_node)
        return drawn.view(*self.logits.shape[:2], -1)

    def flip(self, draw: Tensor) -> Tensor:
        """Return the edges (editor, source, destination) of all graphs after flips $[K, N, s]$."""
        shape = draw.shape
        chosen = self.candidates.expand(shape[0], -1, -1).gather(2, draw)
        entry = self.candidate_entry.expand(shape[0], -1, -1).gather(2, draw)
        is_kept = torch.ones(shape[0], self.num_entries + 1, dtype=torch.bool, device=draw.device)
        is_kept.scatter_(1, entry.flatten(1), False)
        editor, edge = is_kept[:, self.entry].nonzero(as_tuple=True)
        kept = torch.stack([editor, *self.edge_index[:, edge]])
        node = torch.arange(shape[1], device=draw.device)[:, None]
        is_new = (entry == self.num_entries) & (chosen != node)
        editor, destination, slot = is_new.nonzero(as_tuple=True)
        source = chosen[editor, destination, slot]
        return torch.cat([kept, torch.stack([editor, source, destination])], dim=1)


def log_probability(logits: Tensor, draw: Tensor) -> Tensor:
    r"""Return the log probability of all draws, a scalar.

    Candidates $m_1, \dots, m_s$ are drawn without replacement,

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
    """Draw candidate sources $[N, C]$ for the edges of each node.

    No source occurs twice; duplicates are replaced by the node itself. The `entries` of the
    adjacency matrix are destination × N + source, without duplicates.
    """
    node = torch.arange(num_nodes)[:, None]
    candidates = torch.randint(num_nodes, (num_nodes, NUM_CANDIDATES))
    shuffled = entries[torch.randperm(entries.numel())]
    order = torch.argsort(shuffled // num_nodes, stable=True)
    destination, source = shuffled[order] // num_nodes, shuffled[order] % num_nodes
    rank = torch.arange(destination.numel()) - torch.searchsorted(destination, destination)
    is_candidate = rank < NUM_CANDIDATES // 2
    candidates[destination[is_candidate], rank[is_candidate]] = source[is_candidate]
    candidates, _ = candidates.sort(dim=1)
    is_duplicate = candidates[:, 1:] == candidates[:, :-1]
    candidates[:, 1:] = torch.where(is_duplicate, node, candidates[:, 1:])
    return candidates


def find_entries(entries: Tensor, candidates: Tensor) -> Tensor:
    """Return the index of each candidate $[N, C]$ in the sorted entries.

    The index is the number of entries if the candidate is not an entry, or is the node itself.
    """
    node = torch.arange(candidates.shape[0])[:, None]
    key = node * candidates.shape[0] + candidates
    index = torch.searchsorted(entries, key)
    is_entry = torch.cat([entries, entries.new_tensor([-1])])[index] == key
    return torch.where(is_entry & (candidates != node), index, entries.numel())


def stacked_rows(num_nodes: int, num_train: int, num_graphs: int) -> Tensor:
    """Return row numbers $[K, N]$ for the nodes of K graphs, those of all training nodes first."""
    train = torch.arange(num_graphs * num_train).view(num_graphs, -1)
    others = torch.arange(train.numel(), num_graphs * num_nodes).view(num_graphs, -1)
    return torch.cat([train, others], dim=1)


def training_components(view: TrainingView) -> tuple[Tensor, Tensor, Tensor]:
    """Return the graphs that contain a training node.

    Returns:
        Ids of their nodes, starting with the training nodes in their order; their edges $[2, E]$,
        as positions in these ids; and the graph number of each node.
    """
    num_nodes = view.x.shape[0]
    edge_index, train = view.edge_index, view.train
    component = components(edge_index, num_nodes) if view.graph is None else view.graph
    inside = torch.isin(component, component[train])
    others = inside.clone()
    others[train] = False
    nodes = torch.cat([train, others.nonzero().squeeze(1)])
    position = torch.full((num_nodes,), -1)
    position[nodes] = torch.arange(nodes.numel())
    return nodes, position[edge_index[:, inside[edge_index].all(dim=0)]], component[nodes].long()
