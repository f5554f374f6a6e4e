"""Conversion between Flower's records and vectors, messages, and what all strategies share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from offaxis.errors import InvalidDocument, OffaxisError
from offaxis.vectors import Vectors, check_finite

KEY: Final = "offaxis"
ENROL: Final = "query.offaxis_enrol"
AGREE: Final = "query.offaxis_agree"
SIGN: Final = "query.offaxis_sign"
OPEN: Final = "query.offaxis_open"
_UNKNOWN_ERROR: Final = 0
"""Flower's code for an error of unknown kind."""

log = logging.getLogger("offaxis.federated")

R = TypeVar("R")


class TrainingOnly(Strategy):  # type: ignore[misc]
    """A strategy whose clients train but are not evaluated.

    Their metrics would not be protected; evaluate on public data with ``evaluate_fn``.
    """

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send no evaluation requests."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return no metrics."""
        return None


# ---- Arrays


def as_vector(arrays: ArrayRecord) -> Vectors:
    """Return all numbers of a record as one float64 vector, in the record's order."""
    parts = [np.asarray(array.numpy(), dtype=np.float64).reshape(-1) for array in arrays.values()]
    return np.concatenate(parts)


def from_vector(vector: Vectors, like: ArrayRecord) -> ArrayRecord:
    """Return a record of the same names, shapes and dtypes that holds the vector's numbers."""
    filled, start = {}, 0
    for name, array in like.items():
        old = array.numpy()
        part = vector[start : start + old.size].reshape(old.shape).astype(old.dtype)
        filled[name] = Array(part)
        start += old.size
    return ArrayRecord(filled)


def model_of(message: Message) -> ArrayRecord:
    """Return the model that a server sent; raise if it holds a NaN or an infinity."""
    arrays = only_arrays(message.content)
    check_finite(as_vector(arrays), "the model's arrays")
    return arrays


def only_arrays(content: RecordDict) -> ArrayRecord:
    """Return the only record of arrays in a message."""
    records = list(content.array_records.values())
    if len(records) != 1:
        raise InvalidDocument(f"a training message holds one ArrayRecord, got {len(records)}")
    return records[0]


def train_or_zero(
    train: Callable[[], Message], read: Callable[[ArrayRecord], Vectors], shape: tuple[int, ...]
) -> Vectors:
    """Return what ``read`` makes of the trained arrays; zeros if training fails in any way.

    Errors stay in this client's log. A client must answer in every case: whether training fails
    can depend on its data, and a server can choose a model for which it does.
    """
    try:
        reply = train()
        if not reply.has_error():
            with np.errstate(all="ignore"):
                trained = read(only_arrays(reply.content))
            if trained.shape == shape:
                return trained
            log.warning(
                "training returned shape %s, expected %s; sending zeros", trained.shape, shape
            )
        else:
            log.warning("training failed; sending zeros: %s", reply.error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # an exit, a panic of another language, a task that was cancelled
        log.warning("training failed; sending zeros", exc_info=True)
    return np.zeros(shape)


# ---- Messages


def fields_of(message: Message, *names: str) -> tuple[Any, ...]:
    """Return entries of the record that offaxis put into a message."""
    record = message.content.config_records.get(KEY)
    missing = [name for name in names if record is None or name not in record]
    if record is None or missing:
        raise InvalidDocument(f"a message lacks {', '.join(missing)}; is offaxis on both sides?")
    return tuple(record[name] for name in names)


def parse_reply(reply: Message, parse: Callable[..., R], *names: str) -> R | None:
    """Call ``parse`` with a reply's entries; a client that sends invalid ones is left out."""
    try:
        return parse(*fields_of(reply, *names))
    except (OffaxisError, TypeError, ValueError) as error:
        log.warning("node %d is left out: %s", reply.metadata.src_node_id, error)
        return None


def make_request(node: int, kind: str, **entries: Any) -> Message:
    """Return a message of the server to one node."""
    content = RecordDict({KEY: ConfigRecord(entries)})
    return Message(content, dst_node_id=node, message_type=kind)


def make_reply(to: Message, **entries: Any) -> Message:
    """Return a reply that holds these entries and nothing else."""
    return Message(RecordDict({KEY: ConfigRecord(entries)}), reply_to=to)


def make_refusal(to: Message, reason: Exception) -> Message:
    """Return a reply that gives no reason; the reason stays in this client's log.

    The text of an error can reveal something about the update, and the server need not know it.
    """
    log.warning("refused %s: %s", to.metadata.message_type, reason)
    return Message(Error(_UNKNOWN_ERROR, "this client takes no part in this step"), reply_to=to)


def without_errors(replies: Iterable[Message]) -> list[Message]:
    """Return the replies that are not errors."""
    return [reply for reply in replies if not reply.has_error()]
