"""Tables of orders, of which a share has a signal, and another one a time."""

import numpy as np
import pandas as pd

from canet import NodeClassifier


def orders(
    seed: int = 0, num_nodes: int = 300, on: float = 0.8, filled: float = 0.4
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """An order is late if the time is known and positive, or else if the amount is positive."""
    random = np.random.default_rng(seed)

    def some(share: float) -> np.ndarray:
        return random.permutation(num_nodes) < round(share * num_nodes)

    late, amount = random.normal(size=(2, num_nodes))
    late[~some(filled)] = np.nan
    nodes = pd.DataFrame({"amount": amount, "signal": np.where(some(on), "on", "off")})
    nodes["late"], nodes["is_late"] = late, np.where(np.isnan(late), amount, 4 * late) > 0
    ends = random.integers(num_nodes, size=(2, num_nodes))
    return nodes, pd.DataFrame({"source": ends[0], "target": ends[1]})


def fitted_to_orders() -> NodeClassifier:
    return NodeClassifier("linear", undirected=True).fit(orders(), label="is_late")
