"""Methods, backbones, learners and data sets of other packages, found through entry points."""

from functools import cache
from importlib.metadata import entry_points
from typing import Any

from canet.errors import first_line, warn_user

_all_entry_points = cache(entry_points)  # reading them takes a tenth of a second


def add_plugins(group: str, registry: dict[str, Any], kind: type) -> None:
    """Add the objects of an entry-point group to a registry, by their `name`.

    An object must be an instance or a subclass of `kind`. A package that cannot be imported, or
    whose object has the name of another, is left out with a warning.
    """
    for entry in _all_entry_points().select(group=group):
        try:
            found = entry.load()
            base = found if isinstance(found, type) else type(found)
            if not issubclass(base, kind):
                raise TypeError(f"it is not a {kind.__name__}")
            if found.name in registry:
                raise ValueError(f"the name '{found.name}' is already in use")
        except Exception as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
            warn_user(f"the entry point '{entry.value}' of group {group} is left out ({reason})")
        else:
            registry[found.name] = found
