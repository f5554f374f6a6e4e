"""What contributors and releasers run from the repository; no part of the package."""
