"""A local server of files for tests of downloads."""

from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event


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
