"""An object store in memory for tests and benchmarks: moto on a port of this machine. Usage: object_store.py PORT

Not called `moto`, which it would import then. One request at a time: on several threads its conditional puts are not atomic.
"""

import sys

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.server import MotoRequestHandler
from werkzeug.serving import run_simple

app = DomainDispatcherApplication(create_backend_app)
run_simple("127.0.0.1", int(sys.argv[1]), app, request_handler=MotoRequestHandler)
