"""A server in a process of its own whose paths say how it behaves, well or badly.

`/seen` gives all requests so far with the connection that each came on, and `/sent` when the parts of streams went out.
"""

import http.server
import json
import sys
import threading
import time

TENSORS = {
    "images": [{"name": "image", "datatype": "FP32", "shape": [-1, 3, 2, 2]}],
    "tokens": [
        {"name": "input_ids", "datatype": "INT64", "shape": [-1, -1]},
        {"name": "attention_mask", "datatype": "INT64", "shape": [-1, -1]},
    ],
    "whole": [{"name": "x", "datatype": "FP64", "shape": [4]}],
    "signal": [{"name": "wave", "datatype": "FP32", "shape": [-1, -1]}],
    "text": [{"name": "prompt", "datatype": "BYTES", "shape": [-1]}],
}
SEEN, SENT_NS = [], []


def chunk(*, text=None, **fields):
    """One event of a stream of chat."""
    choice = {"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": None}
    return {"choices": [choice], **fields}


class Handler(http.server.BaseHTTPRequestHandler):
    """Behaves as the first part of the path says."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        """Say nothing."""

    def reply(self, body, *, status=200, **headers):
        """Send an answer that comes as a whole."""
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": len(data), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(data)

    def send_event(self, event):
        """Send one event of a stream as a chunk."""
        text = event if isinstance(event, str) else json.dumps(event)
        data = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def start_stream(self):
        """Send the head of a stream and the event that names the role, which is no token."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"b\r\n: comment\n\n\r\n")
        self.send_event(chunk(text=""))

    def end_stream(self):
        """Send the end of a stream."""
        self.send_event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def do_GET(self):
        """Tell what was seen, or the metadata of a model."""
        kind = self.path.split("/")[1]
        if kind in ("seen", "sent"):
            return self.reply(SEEN if kind == "seen" else SENT_NS)
        SEEN.append(["GET", self.path, dict(self.headers), None, id(self.connection)])
        name = self.path.split("/v2/models/")[-1]
        if name not in TENSORS:
            return self.reply({"name": name} if name == "untyped" else "no model here")
        return self.reply({"name": name, "platform": "test", "inputs": TENSORS[name], "outputs": []})

    def do_POST(self):
        """Answer as the path says."""
        got_ns = time.perf_counter_ns()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        SEEN.append(["POST", self.path, dict(self.headers), body, id(self.connection)])
        _, kind, *rest = self.path.partition("?")[0].split("/")
        getattr(self, f"answer_{kind.replace('-', '_')}")(rest, body, got_ns)

    def answer_echo(self, rest, body, _):
        """Repeat the request after some milliseconds."""
        time.sleep(float(rest[0]) / 1e3)
        self.reply(body)

    def answer_v2(self, _, body, __):
        """Answer as a KServe server, which gives no infinite sum back as a number."""
        self.reply({"outputs": [{"name": "y", "data": [len(tensor["data"]) for tensor in body["inputs"]]}]})

    def answer_plain(self, rest, *_):
        """Answer with words."""
        self.reply("no JSON. Really" if rest[0] == "words" else '{"score": NaN}' if rest[0] == "nan" else "{}")

    def answer_status(self, rest, *_):
        """Answer with a status and repeat the headers, as careless servers do."""
        said = {"oom": "CUDA out of memory. Tried", "batch": "batch-size must be <= 8 for 'm'"}.get(rest[1], rest[1])
        self.reply(f"{said}. {self.headers['Authorization']} {self.path}", status=int(rest[0]), Location="/other?a=b")

    def answer_cut(self, *_):
        """Close in the middle of an answer."""
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b"only this")
        self.close_connection = True

    def answer_gone(self, *_):
        """Close before an answer."""
        self.close_connection = True

    def answer_fickle(self, rest, body, _):
        """Close after each answer without a word, at once or some milliseconds later."""
        self.reply(body)
        time.sleep(float(rest[0]) / 1e3)
        self.close_connection = True

    def answer_junk(self, *_):
        """Send what is no HTTP."""
        self.wfile.write(b"SSH-2.0-server\r\n")
        self.close_connection = True

    def answer_stream(self, rest, body, got_ns):
        """Send tokens on a schedule that its own delays do not shift: /stream/TTFT_MS/ITL_MS/COUNT."""
        first_s, gap_s, count = float(rest[0]) / 1e3, float(rest[1]) / 1e3, int(rest[2])
        self.start_stream()
        sent_ns = [got_ns]
        for token in range(count):
            time.sleep(max(0.0, got_ns / 1e9 + first_s + token * gap_s - time.perf_counter()))
            sent_ns.append(time.perf_counter_ns())
            self.send_event(chunk(text=f" {token}"))
        self.send_event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
        if body.get("stream_options", {}).get("include_usage"):
            self.send_event({"choices": [], "usage": {"completion_tokens": 2 * count}})
        self.end_stream()
        SENT_NS.append(sent_ns)

    def answer_badstream(self, rest, *_):
        """Send a token and then what the path says."""
        self.start_stream()
        if rest[0] == "empty":
            return self.end_stream()
        self.send_event(chunk(text="Hi"))
        if rest[0] == "error":
            self.send_event({"error": {"message": f"it broke. {self.headers['Authorization']}", "code": 500}})
        if rest[0] == "garbage":
            self.send_event("{no JSON")
        if rest[0] == "cut":
            self.close_connection = True
            return None
        if rest[0] == "unfinished":
            self.wfile.write(b"0\r\n\r\n")
            return None
        return self.end_stream()


class Server(http.server.ThreadingHTTPServer):
    """Says nothing of clients that leave."""

    daemon_threads = True

    def handle_error(self, request, client_address):
        """Say nothing."""


if __name__ == "__main__":
    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_port, flush=True)  # noqa: T201 - the port is what whoever started it waits for
        sys.stdin.read()
