"""Run a ServerApp and ClientApps in Flower's Simulation Runtime, on threads of this process.

Flower's simulation runs clients on Ray by default. Its runtime accepts any backend; this one calls
the ClientApp in a thread. Nodes, messages, the grid and each node's context are Flower's. Telemetry
is off, and nothing leaves the process.
"""

from __future__ import annotations

import os

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"

import logging
import threading
from collections.abc import Callable

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.task_pb2 import Task
from flwr.server.superlink.fleet.vce import vce_api
from flwr.server.superlink.fleet.vce.backend import Backend
from flwr.server.superlink.fleet.vce.metrics import VceMetrics
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.server.superlink.linkstate.in_memory_linkstate import RunRecord
from flwr.serverapp import ServerApp
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import InMemoryGrid

_RUN, _TASK = 1, 1


class ThreadBackend(Backend):
    """Calls the ClientApp in the thread that received the message."""

    num_workers = 4

    def build(self, app_fn: Callable[[], ClientApp]) -> None:
        """Load the app."""
        self._app = app_fn()

    def is_worker_idle(self) -> bool:
        """Return True: the runtime's threads do the work."""
        return True

    def terminate(self) -> None:
        """Do nothing: the backend holds no resources."""

    def process_message(self, message: Message, context: Context) -> tuple[Message, Context]:
        """Return the app's reply and the node's context after it."""
        return self._app(message, context), context


def simulate(server: ServerApp, client: ClientApp, nodes: int) -> None:
    """Run the server app with this many nodes; its errors are raised here."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    links = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory())
    run = Run.create_empty(run_id=_RUN)
    run.primary_task_id, run.federation_id = _TASK, NOOP_FEDERATION_ID
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = _TASK, _RUN, 1
    state = links.state()
    state.run_ids[_RUN] = RunRecord(run=run)
    state.task_store[_TASK] = Task(task_id=_TASK, run_id=_RUN)
    mapping = vce_api._register_nodes(num_nodes=nodes, state_factory=links)
    stores = vce_api._register_node_info_stores(nodes_mapping=mapping, run=run)
    grid = InMemoryGrid(state_factory=links, pull_interval=0.02)
    grid.set_run(run)
    stop, failed = threading.Event(), []

    def serve() -> None:
        try:
            context = Context(_RUN, 0, {}, state=RecordDict(), run_config={})
            server(grid=grid, context=context)
        except Exception as error:
            failed.append(error)
        finally:
            stop.set()

    thread = threading.Thread(target=serve)
    thread.start()
    vce_api.run_api(
        lambda: client, lambda: ThreadBackend({}), mapping, links, stores, stop, VceMetrics()
    )
    thread.join()
    if failed:
        raise failed[0]
