"""Fixtures for data sets: a local server, tasks from published files, and faster features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest
import torch

from canet.data import ShiftTask, file_status, load_task


class Server(ThreadingHTTPServer):
    """Serves `files`; can abort the next responses, or delay them until `resume` is set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.abort_after: list[int] = []
        self.delay_after: list[int] = []
        self.resume = Event()
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        content = self.server.files.get(self.path)
        if content is None:
            return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        end = self.server.abort_after.pop(0) if self.server.abort_after else len(content)
        pause = self.server.delay_after.pop(0) if self.server.delay_after else end
        self.wfile.write(content[:pause])
        if pause < end:
            self.server.resume.wait(60)
            with suppress(ConnectionError):
                self.wfile.write(content[pause:end])
        return None

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.resume.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def real_task(data_root: Path) -> Callable[..., ShiftTask]:
    """A function that loads a task from its published files; skips the test if one is missing."""

    def load(name: str, **options: object) -> ShiftTask:
        missing = [f.path for f in file_status(name, data_root) if f.state == "missing"]
        if missing:
            pytest.skip(f"'{missing[0]}' is not in CANET_DATA_ROOT")
        return load_task(name, data_root, **options)

    return load


@pytest.fixture
def no_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace structural features by zeros, because the singular vectors take long to compute."""
    monkeypatch.setattr(
        "canet.data.benchmarks.structural.structural_features",
        lambda edge_index, known: torch.zeros(known.numel(), 128),
    )
