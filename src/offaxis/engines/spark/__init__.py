"""Releases on Apache Spark: fit, privatize, decode, average, sum and evaluate on DataFrames.

A cluster that privatizes in bulk sees the raw vectors and must be trusted: the local guarantee then
holds towards anyone who sees only the reports, not towards the cluster. A job draws one key
(sampling/entropy.py), sends it with its tasks, and destroys it when the job ends. A task that is
lost, repeated or run twice gives the same reports.
"""

from offaxis.engines.spark.cluster import opened, session
from offaxis.engines.spark.data import SparkVectors, number_of, reader
from offaxis.engines.spark.jobs import (
    decode,
    evaluate,
    group_means,
    pair_sums,
    privatize,
    sweep,
)
from offaxis.engines.spark.populations import population

__all__ = [
    "SparkVectors",
    "decode",
    "evaluate",
    "group_means",
    "number_of",
    "opened",
    "pair_sums",
    "population",
    "privatize",
    "public_vectors",
    "reader",
    "session",
    "sweep",
]

public_vectors = SparkVectors
"""The common name of both engines for public vectors."""
