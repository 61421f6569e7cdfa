"""The operations that layers are made of; for each it is decided here what runs.

That is a fused kernel of `canet.nn.kernels` where there is one for the device, the type and the
size, else composed tensor code, which is also the oracle of the kernel's tests. Kernels are
imported when one is to run: Triton is not needed before.
"""

from canet.nn.operations.attention import attend, mix_attention
from canet.nn.operations.global_attention import attend_globally
from canet.nn.operations.mixtures import mix_each, mix_joined, mix_shared
from canet.nn.operations.posterior import infer, sample
from canet.nn.operations.products import Gathered, gather, multiply

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
]
