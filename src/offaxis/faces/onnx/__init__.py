"""ONNX: the public part of a release as a graph for devices, and the way from there to a report."""

from offaxis.errors import MissingExtra, installing

try:
    import onnx  # noqa: F401
except ImportError as error:
    raise MissingExtra(f"offaxis.faces.onnx needs onnx: {installing('onnx')}") from error

from offaxis.faces.onnx.export import privatize_encoded, to_onnx

__all__ = ["privatize_encoded", "to_onnx"]
