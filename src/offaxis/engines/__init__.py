"""Bulk jobs on vectors in Parquet files: on one machine in constant memory, or on Apache Spark."""
