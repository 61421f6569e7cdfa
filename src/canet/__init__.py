"""Graph neural networks that keep working after the world has shifted."""

import warnings
from importlib.metadata import version

__version__ = version("canet")

# torch says so of every sparse CSR tensor; the products used here are tested against dense ones.
warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
