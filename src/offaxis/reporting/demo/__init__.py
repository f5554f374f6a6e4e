"""The demo: what it measures, its figures and its page."""
