"""Statistics of inferred environments: how many are used, and do they match the true ones."""

import torch
from torch import Tensor

from canet.methods import Method
from canet.store.result import InferredEnvironments
from canet.training.fields import TaskFields


@torch.no_grad()
def inferred_environments(method: Method, fields: TaskFields) -> InferredEnvironments | None:
    """Return statistics of the environments that a method infers; None if it infers none.

    Also None for a large graph, of which no split has a receptive field that fits into memory.
    """
    method.eval()
    by_split: dict[str, list[Tensor]] = {}
    for batch, splits in fields.by_pass:
        layers = method.posteriors(batch)
        if not layers:
            return None
        by_split |= {split: [layer[rows] for layer in layers] for split, rows in splits.items()}
    if not by_split:
        return None
    true = fields.batch("train").environment
    return InferredEnvironments(
        posterior={
            split: [posterior.mean(dim=0).tolist() for posterior in layers]
            for split, layers in by_split.items()
        },
        effective=[effective_number(posterior) for posterior in by_split["train"]],
        alignment=None if true is None else [alignment(p, true) for p in by_split["train"]],
    )


def effective_number(posterior: Tensor) -> float:
    """Return the exponential of the entropy of the mean posterior, for posteriors $[n, K]$.

    It is 1 if all nodes are in one environment, and K if all K are used equally.
    """
    mean = posterior.double().mean(dim=0)
    return float(torch.special.entr(mean).sum().exp())


def alignment(posterior: Tensor, true: Tensor) -> float:
    """Return the adjusted mutual information of inferred and true environments; 0 by chance.

    Shapes:
        - posterior $[n, K]$, whose mode is compared; true $[n]$
    """
    from sklearn.metrics import adjusted_mutual_info_score

    return float(adjusted_mutual_info_score(true.cpu(), posterior.argmax(dim=1).cpu()))
