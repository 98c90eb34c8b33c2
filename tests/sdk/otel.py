"""Traces calls to models with OpenTelemetry's SDK, and exports them to a server in three ways.

    otel.py URL PROJECT_KEY

With PostHog's exporter, with its span processor, and with OpenTelemetry's own exporter under gzip. Prints for each
span, one JSON object a line, what it was called, its ids in hexadecimal digits, and which way it went. Fails if
anything is logged above the level INFO.
"""

import json
import logging
import sys

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import StatusCode

import posthog
from posthog.ai.otel import PostHogSpanProcessor, PostHogTraceExporter

url, key = sys.argv[1:]
complaints = []


class Complaints(logging.Handler):
    def emit(self, record):
        complaints.append(record.getMessage())


logging.getLogger().addHandler(Complaints(logging.WARNING))
posthog.api_key, posthog.host, posthog.send = key, url, False
own = OTLPSpanExporter(
    endpoint=f"{url}/i/v0/ai/otel",
    headers={"Authorization": f"Bearer {key}"},
    compression=Compression.Gzip,
)
for way, processor in [
    ("exporter", BatchSpanProcessor(PostHogTraceExporter(key, host=url))),
    ("processor", PostHogSpanProcessor(key, host=url)),
    ("gzip", BatchSpanProcessor(own)),
]:
    provider = TracerProvider(resource=Resource({"service.name": "shop", "user.id": f"{way}-user"}))
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("shop", "1.2.3")

    def say(span, parent=None):
        context = span.get_span_context()
        ids = {"trace": f"{context.trace_id:032x}", "span": f"{context.span_id:016x}"}
        above = parent and f"{parent.get_span_context().span_id:016x}"
        print(json.dumps({"way": way, "name": span.name, "parent": above, **ids}))

    with tracer.start_as_current_span("agent") as agent:
        agent.set_attribute("gen_ai.operation.name", "invoke_agent")
        with posthog.new_context():
            posthog.identify_context(f"{way}-context")
            with tracer.start_as_current_span("chat gpt-5") as chat:
                messages = [{"role": "user", "content": "Hi, Zoë"}]
                chat.set_attributes(
                    {
                        "gen_ai.operation.name": "chat",
                        "gen_ai.system": "openai",
                        "gen_ai.request.model": "gpt-5",
                        "gen_ai.usage.input_tokens": 12,
                        "gen_ai.usage.output_tokens": 3,
                        "gen_ai.request.temperature": 0.5,
                        "gen_ai.response.finish_reasons": ["stop"],
                        "gen_ai.input.messages": json.dumps(messages),
                    }
                )
        with tracer.start_as_current_span("embed") as embed:
            embed.set_attribute("gen_ai.operation.name", "embeddings")
        with tracer.start_as_current_span("tool") as tool:
            tool.set_attribute("gen_ai.operation.name", "execute_tool")
            tool.record_exception(ValueError("out of stock"))
            tool.set_status(StatusCode.ERROR)
        # Not about AI.
        with tracer.start_as_current_span("GET /"):
            pass
    say(agent)
    for span in [chat, embed, tool]:
        say(span, agent)
    if not provider.force_flush() or complaints:
        sys.exit(f"{way}: {complaints}")
    provider.shutdown()
if complaints:
    sys.exit(str(complaints))
