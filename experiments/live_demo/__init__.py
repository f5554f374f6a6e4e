"""The live demo: a page to draw on, a collector, a dashboard and a simulated crowd."""
