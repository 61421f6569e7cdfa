"""Search for settings on validation data with Optuna."""

from canet.errors import CanetError

try:
    import optuna as _  # noqa: F401
except ModuleNotFoundError as error:
    raise CanetError(
        "canet search requires Optuna: run pip install -e '.[search]' in a clone of canet"
    ) from error
