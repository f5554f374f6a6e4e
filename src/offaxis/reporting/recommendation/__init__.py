"""The page of a recommendation and its figures."""
