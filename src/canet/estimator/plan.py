"""The one decision of `fit` about size: whole graph, batches, or reading from the disk."""

import os
import sys
from collections.abc import Collection
from dataclasses import dataclass, replace

import torch

from canet.data.graph import Graph
from canet.methods import Settings
from canet.methods.base import ModelSettings
from canet.models import MethodClass, describe_method
from canet.util.devices import pick_device
from canet.util.memory import free_memory

STEP = 15  # memory of a training step on the whole graph, relative to the arrays of the graph
LOADED = 12  # memory of a graph store in memory with the columns of models, relative to its arrays
BATCH_SIZE = 1_024
FANOUT = (15, 10, 5)
"""Neighbours that a node reads in each layer, from the last one; further layers read the last."""
MIN_STEPS, MIN_EPOCHS = 2_000, 3  # training in batches has at least so many steps and epochs


@dataclass(frozen=True)
class Plan:
    """How to train on a graph."""

    settings: ModelSettings  # perhaps with batches
    loads: bool = True  # whether a graph store is read into memory
    reason: str = ""  # the decision in one line; empty if there is nothing to say
    limits_epochs: bool = False  # whether fewer epochs are enough, because each has many steps

    def settings_for(self, num_train: int) -> ModelSettings:
        """Return the settings for a number of training nodes."""
        settings = self.settings
        if not (self.limits_epochs and isinstance(settings, Settings)):
            return settings
        epochs = max(MIN_EPOCHS, -(-MIN_STEPS * BATCH_SIZE // num_train))
        return replace(settings, epochs=min(settings.epochs, epochs))


def plan_training(
    graph: Graph,
    method: str | MethodClass,
    settings: ModelSettings,
    named: Collection[str] = (),
    device: str | torch.device = "auto",
    processes: int = 1,
) -> Plan:
    """Decide from the size of a graph and the free memory how to train on it.

    The whole graph is trained in memory if a training step fits there. If not, networks train in
    batches with sampled neighbours. If the arrays do not fit either, a graph store stays on disk.
    `named` are the settings that the user has chosen, which do not change. `processes` is the
    number of processes that train at the same time; -1: one for each core.
    """
    is_store = graph.is_on_disk
    if {"batch_size", "fanout"} & set(named):
        return Plan(settings, loads=not (is_store and settings.in_batches))
    place, free = pick_device(device), free_memory() or sys.maxsize
    room = torch.cuda.mem_get_info(place)[0] if place.type == "cuda" else free
    shares = processes if processes > 0 else os.cpu_count() or 1
    needed = shares * STEP * _sizes(graph, settings.width)[1]
    fits, loads, how = needed <= room, True, []
    if describe_method(method).traits.trains_in_batches:
        stays = is_store and not fits_in_memory(graph, shares)
        loads = not (stays and settings.can_stay_on_disk)
        if isinstance(settings, Settings) and settings.can_be_in_batches and not (loads and fits):
            fanout = (FANOUT + FANOUT[-1:] * settings.num_layers)[: settings.num_layers]
            settings = replace(settings, batch_size=BATCH_SIZE, fanout=",".join(map(str, fanout)))
            how = [f"training in batches of {BATCH_SIZE:,}"]
    if is_store:
        how.insert(0, "reading it into memory" if loads else "reading it from the disk")
    sizes = f"about {_bytes(needed)}, and {_bytes(min(free, room))} is free"
    reason = f"training on the whole graph needs {sizes}: "
    limits_epochs = settings.in_batches and "epochs" not in named
    return Plan(settings, loads, reason + ", ".join(how) if how else "", limits_epochs)


def fits_in_memory(graph: Graph, processes: int = 1) -> bool:
    """Whether some processes can load the graph of a store at the same time."""
    return processes * LOADED * _sizes(graph)[0] <= (free_memory() or sys.maxsize)


def _sizes(graph: Graph, hidden: int = 0) -> tuple[int, int]:
    """Return the bytes of the arrays of a graph, also with states in place of narrower features."""
    x, edges = graph.x, 16 * graph.num_edges
    is_sparse = x.layout == torch.sparse_csr
    features = 12 * x.values().numel() if is_sparse else 4 * x.numel()
    return features + edges, max(features, 4 * int(x.shape[0]) * hidden) + edges


def _bytes(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e8 else f"{count / 1e6:,.1f} MB"
