"""An OTLP receiver over HTTP with configurable failures: prints its address to standard error, then each span and metric received,
decoded by the OpenTelemetry library, as one line of JSON."""

import argparse
import gzip
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--failures", type=int, default=0, help="number of initial requests that get 503")
parser.add_argument("--reject", type=int, default=0, help="number of spans to reject per request")
options = parser.parse_args()


def say(text):
    print(text, file=sys.stderr, flush=True)


def value(any_value):
    return getattr(any_value, any_value.WhichOneof("value"))


def attributes(pairs):
    assert len({pair.key for pair in pairs}) == len(pairs), "an attribute twice"
    return {pair.key: value(pair.value) for pair in pairs}


def span(of_resource, found):
    return {
        "resource": attributes(of_resource.resource.attributes),
        "trace": found.trace_id.hex(),
        "id": found.span_id.hex(),
        "parent": found.parent_span_id.hex(),
        "state": found.trace_state,
        "name": found.name,
        "kind": found.kind,
        "start": found.start_time_unix_nano,
        "end": found.end_time_unix_nano,
        "attributes": attributes(found.attributes),
        "error": found.status.code == 2,
        "flags": found.flags,
    }


def points(metric):
    kind = metric.WhichOneof("data")
    data = getattr(metric, kind)
    for point in data.data_points:
        told = {"attributes": attributes(point.attributes), "start": point.start_time_unix_nano, "time": point.time_unix_nano}
        if kind == "histogram":
            assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
            assert sum(point.bucket_counts) == point.count
            told |= {"count": point.count, "sum": point.sum}
        else:
            told |= {"value": point.as_double}
        yield told


def metric(of_resource, found):
    kind = found.WhichOneof("data")
    data = getattr(found, kind)
    return {
        "resource": attributes(of_resource.resource.attributes),
        "name": found.name,
        "unit": found.unit,
        "kind": kind,
        "cumulative": kind == "gauge" or data.aggregation_temporality == 2,
        "monotonic": kind == "sum" and data.is_monotonic,
        "points": list(points(found)),
    }


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        say(f"asked {self.path} {self.headers['Content-Type']} {self.headers['Content-Encoding']} {self.headers['X-Key']}")
        if options.failures > 0:
            options.failures -= 1
            return self.answer(503, b"")
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        if self.path == "/v1/traces":
            request, reply = traces.ExportTraceServiceRequest(), traces.ExportTraceServiceResponse()
            request.ParseFromString(body)
            for of_resource in request.resource_spans:
                for of_scope in of_resource.scope_spans:
                    for found in of_scope.spans:
                        MessageToDict(found)
                        say(f"span {json.dumps(span(of_resource, found))}")
            if options.reject:
                reply.partial_success.rejected_spans = options.reject
                reply.partial_success.error_message = "enough"
        else:
            assert self.path == "/v1/metrics", self.path
            request, reply = metrics.ExportMetricsServiceRequest(), metrics.ExportMetricsServiceResponse()
            request.ParseFromString(body)
            for of_resource in request.resource_metrics:
                for of_scope in of_resource.scope_metrics:
                    for found in of_scope.metrics:
                        MessageToDict(found)
                        say(f"metric {json.dumps(metric(of_resource, found))}")
        return self.answer(200, reply.SerializeToString())

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", options.port), Receiver)
say(f"listening http://127.0.0.1:{server.server_port}")
server.serve_forever()
