"""Bulk work on one machine: Parquet files and folders, a batch at a time, in constant memory.

The same batch functions as on a cluster (arrow.py). What is written is a folder of Parquet files,
which appears whole or not at all.
"""

from offaxis.engines.local.files import ParquetRecords, number_of, public_vectors
from offaxis.engines.local.measures import evaluate, group_means
from offaxis.engines.local.records import decode, privatize

__all__ = [
    "ParquetRecords",
    "decode",
    "evaluate",
    "group_means",
    "number_of",
    "privatize",
    "public_vectors",
]
