"""Imports, also those by a name in a string, never point to a higher layer and have no cycles."""

from __future__ import annotations

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import canet

ROOT = Path(canet.__file__).parent
LAYERS = [
    {"_version", "errors", "settings", "util"},
    {"scoring"},
    {"data"},
    {"nn"},
    {"methods"},
    {"store"},
    {"reading"},
    {"training"},
    {"models"},
    {"defaults"},
    {"estimator"},
    {"runs"},
    {"search"},
    {"diagnosis"},
    {"report"},
    {"paper"},
    {"cli"},
    {"__main__"},
]
"""From the lowest layer to the highest; members of one layer may import each other."""
MAX_LINES = 500
MAX_FILES_AT_THE_ROOT = 7
FILES = sorted(ROOT.rglob("*.py"))
NAME = re.compile(r"canet\.[\w.:]+")
PARTS = [path for path in FILES if path != ROOT / "__init__.py"]  # it imports all layers


def module_name(path: Path) -> str:
    parts = ("canet", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path) for path in FILES}


def imported(source: str) -> set[str]:
    """The modules of this package that a file imports anywhere, also for type checkers alone.

    A string such as "canet.data.task" or f"canet.methods.{name}" counts as an import: tables of
    lazy imports, `import_module`, `PackageLoader`, `resolve_name` and `find_spec` have such names.
    """
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            names |= {
                name if (name := f"{node.module}.{alias.name}") in MODULES else str(node.module)
                for alias in node.names
            }
        elif isinstance(node, ast.Constant) and NAME.fullmatch(str(node.value)):
            name = str(node.value).replace(":", ".")
            while name not in MODULES:  # "canet.data.task:ShiftTask" is in canet.data.task
                name = name.rpartition(".")[0]
            names |= {name} - {"canet"}
    return names & MODULES


def level(module: str) -> int:
    folder = module.split(".")[1]
    (found,) = [i for i, layer in enumerate(LAYERS) if folder in layer]
    return found


def upwards(module: str, source: str) -> set[str]:
    """The modules of higher layers that a module with this source imports."""
    return {n for n in imported(source) if n == "canet" or level(n) > level(module)}


def test_no_import_points_to_a_higher_layer() -> None:
    found = {
        module_name(path): names
        for path in PARTS
        if (names := upwards(module_name(path), path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "from canet.FOLDER import name",
        "if TYPE_CHECKING:\n    import canet.FOLDER",
        'PackageLoader("canet.FOLDER")',
        'import_module("canet.FOLDER")',
        'HOMES = {"Name": "canet.FOLDER.module:Name"}',
        'resolve_name(f"canet.FOLDER.{name}")',
    ],
)
def test_an_import_upwards_is_found(source: str) -> None:
    assert upwards("canet.data.task", source.replace("FOLDER", "report")) == {"canet.report"}
    assert upwards("canet.data.task", source.replace("FOLDER", "util")) == set()


def test_imports_have_no_cycle() -> None:
    sources = {module_name(path): path.read_text(encoding="utf-8") for path in FILES}
    graph = {name: imported(source) - {name} for name, source in sources.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_the_root_has_few_files_and_no_file_is_too_long() -> None:
    assert len(list(ROOT.glob("*.py"))) <= MAX_FILES_AT_THE_ROOT
    lines = {module_name(path): len(path.read_text().splitlines()) for path in FILES}
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}
