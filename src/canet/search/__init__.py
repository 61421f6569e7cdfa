"""Search of settings on validation data, with Optuna."""

from canet.errors import CanetError

try:
    import optuna as _  # noqa: F401
except ModuleNotFoundError as error:
    raise CanetError(
        "canet search needs Optuna: pip install -e '.[search]' in the checkout of canet"
    ) from error
