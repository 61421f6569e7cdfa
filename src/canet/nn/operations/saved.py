"""What the forward pass of an operation keeps for its backward pass."""

from typing import Protocol

from torch import Tensor

from canet.nn.sparse_matrix import Pattern, SparseMatrix


class Saved(Protocol):
    """The context that torch passes to a `Function`, with the attributes of all operations."""

    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]
    matrix: SparseMatrix
    pattern: Pattern
    slope: float
    scale: float

    def save_for_backward(self, *tensors: Tensor | None) -> None: ...

    def set_materialize_grads(self, value: bool) -> None: ...
