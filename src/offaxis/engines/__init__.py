"""Bulk work on vectors in Parquet files: one machine in constant memory, or Apache Spark."""
