"""Tensor operations of the layers, with the choice between fused kernels and plain PyTorch code.

An operation runs as a fused kernel of `canet.nn.kernels` if there is one for the device, data type
and size. Otherwise it runs as PyTorch code, which is also the reference in the kernels' tests.
Kernels are imported only when they run, so Triton is optional.
"""

from canet.nn.operations.attention import attend, mix_attention
from canet.nn.operations.global_attention import attend_globally, sum_graphs
from canet.nn.operations.mixtures import mix_each, mix_joined, mix_shared
from canet.nn.operations.posterior import infer, sample
from canet.nn.operations.products import Gathered, gather, multiply, select_rows

__all__ = [
    "Gathered",
    "attend",
    "attend_globally",
    "gather",
    "infer",
    "mix_attention",
    "mix_each",
    "mix_joined",
    "mix_shared",
    "multiply",
    "sample",
    "select_rows",
    "sum_graphs",
]
