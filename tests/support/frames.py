"""A graph as two pandas tables."""

import numpy as np
import pandas as pd


def frames(seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    n = 40
    nodes = pd.DataFrame(
        {
            "id": [f"n{i}" for i in range(n)],
            "age": np.where(np.arange(n) % 7 == 3, np.nan, rng.normal(size=n)),
            "city": rng.choice(["Bonn", "Kiel"], n),
            "since": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(n), unit="D"),
            "label": rng.choice(["no", "yes"], n),
        }
    )
    ends = rng.integers(0, n, (2, 120))
    edges = pd.DataFrame(
        {"source": nodes.id[ends[0]].to_numpy(), "target": nodes.id[ends[1]].to_numpy()}
    )
    return nodes, edges
