"""The collector: stores each report once and decodes means; it never receives a private vector."""
