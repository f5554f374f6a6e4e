"""The page and the figure of a study, ours beside the published numbers."""
