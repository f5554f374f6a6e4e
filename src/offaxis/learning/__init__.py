"""What many reports teach together."""

from offaxis.learning.trends import Change, Trend, trend

__all__ = ["Change", "Trend", "trend"]
