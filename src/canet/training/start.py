"""How a run starts: its initial weights, and whether it trains in batches."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from canet.errors import InputError
from canet.methods import Method, Settings
from canet.nn.sampling import parse_fanout


def fanout_of(
    method_type: type[Method], settings: Settings, num_train: int
) -> tuple[int, ...] | None:
    """Return the numbers of neighbours to draw in each layer; None to train without batches.

    Raises:
        InputError: The method needs all training nodes at once.
    """
    fanout = parse_fanout(settings.fanout, settings.num_layers)
    draws = any(count > 0 for count in fanout)
    if not draws and not 0 < settings.batch_size < num_train:
        return None
    if not method_type.trains_in_batches:
        raise InputError(
            f"method '{method_type.name}' needs all training nodes at once: leave out batch_size "
            "and fanout, or choose another method"
        )
    if getattr(settings, "interventions", "none") != "none":
        raise InputError(
            "interventions need all training nodes at once: leave out batch_size and fanout"
        )
    return fanout


def load_initial(method: Method, weights: Mapping[str, Tensor]) -> None:
    """Load the weights of an earlier model into a new method."""
    try:
        method.load_state_dict(dict(weights))
    except RuntimeError as error:
        raise InputError(
            "the earlier model has other settings or another number of features or environments: "
            "continue it with the same ones, or fit without warm_start"
        ) from error
