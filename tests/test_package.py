import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

import canet
from canet.methods import METHODS, Batch, Method
from canet.models import Trainer
from tests.support.tiny import QUICK, tiny_task

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("name", canet.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(canet, name) is not None
    assert name in dir(canet)


def test_modules_are_found_without_their_import(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("methods", "nn"):
        monkeypatch.delattr(canet, name, raising=False)
        assert getattr(canet, name).__name__ == f"canet.{name}"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Trainr"):
        canet.Trainr  # noqa: B018


def test_importing_the_package_does_not_import_torch() -> None:
    program = "import sys, canet; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_two_warnings_of_torch_that_no_user_can_avoid_are_not_shown() -> None:
    program = "import canet, torch, torch_geometric.data; torch.eye(2).to_sparse_csr()"
    command = [sys.executable, "-W", "always", "-c", program]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "torch.jit.script" not in shown
    assert "Sparse CSR" not in shown


def test_a_method_from_outside_the_package_is_trained_by_its_class() -> None:
    class Doubled(Method):
        name = "doubled"
        summary = paper = "twice the plain loss"

        def loss(self, batch: Batch) -> object:
            return 2 * self.node_losses(self.predict(batch), batch.y).mean()

    ours = Trainer(tiny_task(), Doubled, settings=QUICK, device="cpu").run()
    plain = Trainer(tiny_task(), "erm", settings=QUICK, device="cpu").run()
    assert ours.config.method == "doubled"
    assert "doubled" not in METHODS
    assert ours.history["loss"][0] == pytest.approx(2 * plain.history["loss"][0])


def test_the_citation_has_the_version_and_the_addresses_of_the_package() -> None:
    lines = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {PROJECT['version']}" in lines
    assert f'repository-code: "{PROJECT["urls"]["Source"]}"' in lines
    assert f'url: "{PROJECT["urls"]["Documentation"]}"' in lines


def test_the_wheel_contains_the_whole_package_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="needs hatchling to build the wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    source = ROOT / "src"
    expected = {
        path.relative_to(source).as_posix()
        for path in (source / "canet").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "canet/py.typed" in names
    assert names == expected
