"""Figures of studies as tables: texts for pages, Markdown for documents, CSV and parquet."""
