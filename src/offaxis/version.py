"""The version of this package, stated here alone; the build reads it from this file."""

__version__ = "0.1.0"
