"""A page to draw on, a collector, a dashboard and a simulated crowd, all on one machine."""
