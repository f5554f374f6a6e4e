"""The dashboard, in a real browser on a real collector."""
