"""Tools for contributors and releasers, run from the repository; not part of the package."""
