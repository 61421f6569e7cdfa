"""The page docs/examples/quickstart.md, made from the notebook examples/quickstart.ipynb.

`python -m docs.extensions.notebook_page` writes the page and its images from the outputs that are
stored in the notebook. With `--execute` it runs the notebook first and stores its outputs.
"""

from __future__ import annotations

import argparse
import base64
import os
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"
PAGE = ROOT / "docs" / "examples" / "quickstart.md"
IMAGES = ROOT / "docs" / "images"
NOTE = (
    "This page shows the notebook `examples/quickstart.ipynb` with its output. "
    "`python -m docs.extensions.notebook_page --execute` runs it again.\n"
)


def read() -> nbformat.NotebookNode:
    """Return the notebook with its stored outputs."""
    return nbformat.read(NOTEBOOK, as_version=4)


def execute(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Run all cells in a temporary folder and return the notebook with its outputs."""
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        quiet = os.environ | {"PYTHONWARNINGS": "ignore:IProgress not found"}  # from tqdm
        NotebookClient(notebook, timeout=600, resources=resources).execute(env=quiet)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the times of execution
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_empty(output)]
    notebook.metadata.pop("language_info", None)
    return notebook


def _is_empty(output: nbformat.NotebookNode) -> bool:
    """Whether an output shows nothing, such as a progress bar that has been removed."""
    return output.output_type == "display_data" and not (
        "image/png" in output.data or output.data.get("text/plain", "").strip()
    )


def render(notebook: nbformat.NotebookNode) -> tuple[str, dict[str, bytes]]:
    """Return the notebook as Markdown, and its images by file name."""
    images: dict[str, bytes] = {}
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source + "\n")
            continue
        parts.append(f"```python\n{cell.source}\n```\n")
        for output in cell.outputs:
            if output.output_type == "stream":
                parts.append(f"```text\n{output.text.rstrip()}\n```\n")
            elif "image/png" in output.data:
                name = f"quickstart-{len(images) + 1}.png"
                images[name] = base64.b64decode(output.data["image/png"])
                parts.append(f"![Chart of the cell above](../images/{name})\n")
            else:
                parts.append(f"```text\n{output.data['text/plain']}\n```\n")
    title, *rest = parts
    heading, _, text = title.partition("\n")
    return "\n".join([f"{heading}\n\n{NOTE}{text}", *rest]), images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--execute", action="store_true", help="run the notebook first")
    notebook = read()
    if parser.parse_args().execute:
        nbformat.write(execute(notebook), NOTEBOOK)
    text, images = render(notebook)
    PAGE.write_text(text, encoding="utf-8")
    for name, content in images.items():
        (IMAGES / name).write_bytes(content)


if __name__ == "__main__":
    main()
