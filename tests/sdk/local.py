"""Evaluates flags locally, with definitions from a server.

    local.py URL PROJECT_KEY PERSONAL_KEY

Reads lines of JSON, {"distinct_id", "person"}; prints for each the values of the flags that the SDK
resolves and their payloads.
"""

import json
import logging
import sys

from posthog import Posthog

logging.disable(logging.CRITICAL)
url, project_key, personal_key = sys.argv[1:]
client = Posthog(
    project_key, host=url, secret_key=personal_key, enable_local_evaluation=False, send=False, sync_mode=True
)
client.load_feature_flags()
for line in sys.stdin:
    asked = json.loads(line)
    result, _, _ = client._get_all_flags_and_payloads_locally(
        asked["distinct_id"], groups={}, person_properties=asked["person"], group_properties={}
    )
    print(json.dumps({"flags": result["featureFlags"], "payloads": result["featureFlagPayloads"]}))
