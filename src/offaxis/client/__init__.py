"""The device's side: reports within a person's budget, and a device that answers rounds."""

from offaxis.client.device import Device
from offaxis.client.outbox import Entry
from offaxis.client.reporter import Reporter
from offaxis.client.terms import Offer, Terms

__all__ = ["Device", "Entry", "Offer", "Reporter", "Terms"]
