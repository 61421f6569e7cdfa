"""What others must know about a method or learner: a record of facts that each one declares."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Traits:
    """What a method or learner needs and can do. Without a declaration, it has the defaults.

    Args:
        needs_environments: Whether it needs an environment label for every training node.
        uses_edge_weights: Whether it can be trained on a graph with edge weights.
        trains_in_batches: Whether a method can take a training step on some of the training nodes,
            and whether a learner can read a graph store from the disk. The graph is in memory
            otherwise.
        capturable: Whether a training step can be captured as a CUDA graph. It must not draw random
            numbers on the CPU or branch on values of tensors.
        compares_models: Whether it trains several models, as `auto` does: in other processes or on
            a cluster (`Options.pool`), and Ctrl-C can keep those that are finished.
        on_cpu: Whether it computes on the CPU, also if there is a GPU. `auto` then trains it in a
            process of its own, while networks use the GPU.
    """

    needs_environments: bool = False
    uses_edge_weights: bool = True
    trains_in_batches: bool = False
    capturable: bool = False
    compares_models: bool = False
    on_cpu: bool = False
