"""ONNX: the public part of a release as a graph for devices, and the way from there to a report."""

from offaxis.errors import MissingExtra

try:
    import onnx  # noqa: F401
except ImportError as error:
    raise MissingExtra("offaxis.faces.onnx needs onnx: pip install 'offaxis[onnx]'") from error

from offaxis.faces.onnx.export import privatize_encoded, to_onnx

__all__ = ["privatize_encoded", "to_onnx"]
