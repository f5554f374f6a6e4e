"""The device's side: reports within a person's budget."""

from offaxis.client.reporter import Reporter

__all__ = ["Reporter"]
