"""A small real server of one ONNX model: JSON in, JSON out, and its own times under /times.

Usage: ENGINE_SUBJECT=model.onnx python -m benchmarks.engine_server   (prints its port)
"""

import base64
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from benchmarks.engine_subjects import decode, session

MODEL = session(1)
DECLARED = MODEL.get_inputs()
TIMES: dict[int, list[tuple[float, float]]] = {}
"""Times of the model and of everything else in the server, by batch size [s]."""


class Handler(BaseHTTPRequestHandler):
    """Answers POST with the first output of the model, and GET with the mean times so far, which begin anew then."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Run the model on the items of the request."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        began = time.perf_counter()
        items = json.loads(body)["instances"]
        feeds = decode(items, DECLARED)
        called = time.perf_counter()
        output = np.asarray(MODEL.run(None, feeds)[0])
        answered = time.perf_counter()
        self._reply({"predictions": [base64.b64encode(row.tobytes()).decode() for row in output]})
        ended = time.perf_counter()
        own_s = (called - began) + (ended - answered)
        TIMES.setdefault(len(items), []).append((answered - called, own_s))

    def do_GET(self) -> None:
        """Tell the mean times of the model and of everything else by batch size, and begin anew."""
        told = {size: np.mean(pairs, axis=0).tolist() for size, pairs in TIMES.items()}
        TIMES.clear()
        self._reply(told)

    def _reply(self, content: object) -> None:
        text = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_arguments: object) -> None:
        """Write no log."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
