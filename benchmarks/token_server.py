"""A server that streams tokens by a known schedule, to see how well a client times them. Prints its port."""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.engines import FIRST_TOKEN_S, INTER_TOKEN_S, TOKENS


class Handler(BaseHTTPRequestHandler):
    """Streams as many tokens for every request, each at its time after the request came."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Send the tokens."""
        began_s = time.perf_counter()
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(TOKENS):
            time.sleep(max(0.0, began_s + FIRST_TOKEN_S + number * INTER_TOKEN_S - time.perf_counter()))
            self._event(json.dumps({"choices": [{"index": 0, "delta": {"content": f"tick{number} "}}]}))
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, data: str) -> None:
        event = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))

    def log_message(self, *_arguments: object) -> None:
        """Write no log."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
