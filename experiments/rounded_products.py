"""Validation scores of training in batches with rounded products (TF32), and in fp32.

`python -m experiments.rounded_products TASK [--device cuda]`. A GPU rounds by itself; on a CPU, the
factors of all products are rounded as a GPU does.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from statistics import mean, stdev
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from canet.data import load_task
from canet.methods import METHODS
from canet.models import Trainer
from canet.store.summary import OOD

MODELS = (("erm", "sage"), ("canet", "gcn"))
CUT_BITS = 13
"""Bits of a float32 that TF32 does not have."""
aten: Any = torch.ops.aten
FACTORS = {aten.mm.default: (0, 1), aten.bmm.default: (0, 1), aten.addmm.default: (1, 2)}
"""Product → its arguments that are factors."""


class Rounded(TorchDispatchMode):
    """Rounds the factors of all products, also in the backward pass."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        chosen = FACTORS.get(func, ())
        args = [round_to_tf32(a) if i in chosen else a for i, a in enumerate(args)]
        return func(*args, **(kwargs or {}))


def round_to_tf32(x: Tensor) -> Tensor:
    """Round to the nearest number with 11 significant bits; of two, to the even one."""
    bits = x.contiguous().view(torch.int32)
    half = (1 << CUT_BITS - 1) - 1 + (bits >> CUT_BITS & 1)
    return (bits + half & -(1 << CUT_BITS)).view(torch.float32)


def main(name: str, device: str = "cpu") -> None:
    task = load_task(name)
    for method, backbone in MODELS:
        how: dict[str, Any] = {"hidden": 128, "batch_size": 1024, "fanout": "10,5"}
        settings = METHODS[method].settings_type(epochs=30 if device == "cuda" else 15, **how)
        for kind in ("TF32", "fp32"):
            on_cpu = device == "cpu" and kind == "TF32"
            on_gpu = patch("canet.models.network.fast_products", lambda _: nullcontext())
            with Rounded() if on_cpu else on_gpu if kind == "fp32" else nullcontext():
                trainer = Trainer(task, method, backbone, settings, device)
                scores = [trainer.run(seed).result.scores for seed in range(5)]
            valid = [100 * own["valid"] for own in scores]
            shifted = [100 * mean(v for k, v in own.items() if k.startswith(OOD)) for own in scores]
            texts = (f"{mean(found):.2f} ± {stdev(found):.2f}" for found in (valid, shifted))
            print(f"| {task.name}, {method}-{backbone}, {kind} | {' | '.join(texts)} |", flush=True)


if __name__ == "__main__":
    main(*(argument for argument in sys.argv[1:] if argument != "--device"))
