from pathlib import Path

import pytest

from canet.paper.paper_report import write_report
from tests.support.reproduction import write_reproduction


@pytest.fixture(scope="session")
def reproduction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up reproduction with its report."""
    out = tmp_path_factory.mktemp("reproduction")
    write_reproduction(out)
    write_report(out, out / "report.html")
    return out
