"""What many reports teach together."""

from offaxis.learning.trends import Change, Trend, expected_error, trend

__all__ = ["Change", "Trend", "expected_error", "trend"]
