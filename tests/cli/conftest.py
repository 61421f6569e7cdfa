"""An empty folder to run commands in, few users, and no network."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from canet.data.benchmarks import synthetic
from tests.support.commands import NUM_USERS, QUICK, Canet, call


@pytest.fixture(scope="module", autouse=True)
def few_users() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "NUM_USERS", NUM_USERS)
        yield


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The empty folder that commands run in."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def canet(work: Path) -> Canet:
    return lambda *arguments: call(work, *arguments)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No network; the hosts that were asked for."""
    asked: list[str] = []

    def refuse(host: str, *_: Any, **__: Any) -> None:
        asked.append(host)
        raise socket.gaierror("Network is unreachable")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return asked


@pytest.fixture(scope="module")
def finished(
    few_users: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """A folder with two finished runs, and the summary that training them printed."""
    folder = tmp_path_factory.mktemp("finished")
    answer = call(folder, "train", "synthetic", "--seeds", 2, *QUICK, "--out", "runs", "--json")
    return folder / "runs", answer.content
