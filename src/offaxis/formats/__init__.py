"""File and wire formats: release files, reports, and documents signed by a publisher."""
