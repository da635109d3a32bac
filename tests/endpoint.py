"""A real server on the loopback that answers well, badly, late or not at all, as its test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], bytes]
Step = Callable[[dict[str, Any]], Answer]


class Endpoint:
    """Answers each request by the next of `steps`, and well when there is none left; remembers what it was asked."""

    def __init__(self, well: Step) -> None:
        self.well = well
        self.steps: list[Step] = []
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.released = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.asked.append(body)
                endpoint.headers.append(dict(self.headers))
                endpoint.paths.append(self.path)
                code, headers, content = (endpoint.steps.pop(0) if endpoint.steps else endpoint.well)(body)
                self.send_response_only(code)
                for key, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that it overrides
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def hang(self, body: dict[str, Any]) -> Answer:
        self.released.wait(30)
        return self.well(body)

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
