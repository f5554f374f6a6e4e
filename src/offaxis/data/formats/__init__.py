"""File formats of the data sets, each read without anything but NumPy and nothing trusted."""
