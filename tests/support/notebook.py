"""Read and run the notebook of the examples."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "quickstart.ipynb"


def printed(run: bool) -> str:
    """The text that the cells print: as stored in the notebook, or after running it again."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    if run:
        with tempfile.TemporaryDirectory() as folder:
            resources = {"metadata": {"path": folder}}
            quiet = os.environ | {"PYTHONWARNINGS": "ignore:IProgress not found"}  # from tqdm
            NotebookClient(notebook, timeout=600, resources=resources).execute(env=quiet)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.text for output in outputs if output.output_type == "stream")
