"""Real data that travel with the package: enough to see what a release does, without a download."""

from offaxis.data.cifar10 import CLASS_NAMES, DemoData, load_cifar10_features

__all__ = ["CLASS_NAMES", "DemoData", "load_cifar10_features"]
