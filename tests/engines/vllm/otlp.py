"""A small OTLP receiver: keeps the spans that are exported to it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Listens on a free loopback port; ``spans`` are (name, attributes)."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, dict[str, Any]]] = []
        self._server = grpc.server(ThreadPoolExecutor(1))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def Export(self, request: Any, context: Any) -> Any:
        """OTLP's one method."""
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    attributes = {a.key: _value(a.value) for a in span.attributes}
                    self.spans.append((span.name, attributes))
        return trace_service_pb2.ExportTraceServiceResponse()

    def close(self) -> None:
        """Stop listening."""
        self._server.stop(None).wait()


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))
