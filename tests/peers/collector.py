"""An HTTP collector of ALF with configurable failures: prints its address, then requests and saved documents, to standard error."""

import argparse
import gzip
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--failures", type=int, default=0, help="number of initial requests that get 500")
parser.add_argument("--most", type=int, default=1_000_000, help="maximum documents per request; 413 above")
parser.add_argument("--refuse", default=None, help="do not save documents with this word; respond 207")
options = parser.parse_args()


def say(text):
    print(text, file=sys.stderr, flush=True)


class Collector(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        documents = json.loads(body)
        documents = documents if isinstance(documents, list) else [documents]
        say(f"asked {self.path} {self.headers['Content-Encoding']} {len(documents)}")
        if options.failures > 0:
            options.failures -= 1
            return self.answer(500, {})
        if len(documents) > options.most:
            return self.answer(413, {})
        texts = [json.dumps(document) for document in documents]
        saved = [text for text in texts if options.refuse is None or options.refuse not in text]
        for text in saved:
            say(f"saved {text}")
        errors = ["ALF is refused"] * (len(texts) - len(saved))
        return self.answer(207 if errors else 200, {"errors": errors, "sent": len(texts), "saved": len(saved)})

    def answer(self, status, report):
        body = json.dumps(report).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", options.port), Collector)
say(f"listening http://127.0.0.1:{server.server_port}")
server.serve_forever()
