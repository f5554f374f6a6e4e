"""The page and the figure of a study, with the published numbers."""
