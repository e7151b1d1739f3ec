"""An HTTP server on loopback, which answers as a test says."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Response:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Server:
    """Serves until it is closed; a subclass answers."""

    def __init__(self) -> None:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(server.respond(self.path.strip("/"), dict(self.headers)))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self._answer(server.change(self.command, self.path.strip("/"), body))

            do_DELETE = do_POST  # noqa: N815  (the name that http.server looks for)

            def _answer(self, response: Response) -> None:
                self.send_response(response.status)
                for name, value in response.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(response.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(response.body)

            def do_HEAD(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def respond(self, path: str, headers: Mapping[str, str]) -> Response:
        """The answer to a request for a path, which has no slash at its ends."""
        raise NotImplementedError

    def change(self, method: str, path: str, body: bytes) -> Response:  # noqa: ARG002
        """The answer to a POST or DELETE."""
        return Response(405)

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
