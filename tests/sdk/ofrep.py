"""Asks a server for flags through OpenFeature's SDK and its released provider of remote evaluation.

    ofrep.py URL PROJECT_KEY

Reads lines of JSON, {"flag", "default", "key", "context"}; prints for each what the SDK answers. The type
of the default decides by which method it asks.
"""

import json
import logging
import sys

from openfeature import api
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext

logging.disable(logging.CRITICAL)
url, project_key = sys.argv[1:]
headers = {"Authorization": f"Bearer {project_key}"}
api.set_provider_and_wait(OFREPProvider(url, headers_factory=lambda: headers))
client = api.get_client()
for line in sys.stdin:
    asked = json.loads(line)
    is_boolean = isinstance(asked["default"], bool)
    ask = client.get_boolean_details if is_boolean else client.get_string_details
    context = EvaluationContext(asked["key"], asked["context"])
    details = ask(asked["flag"], asked["default"], context)
    error = details.error_code.value if details.error_code else None
    answer = {"value": details.value, "variant": details.variant, "reason": details.reason, "error": error}
    print(json.dumps(answer))
