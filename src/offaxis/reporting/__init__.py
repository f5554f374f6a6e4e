"""What a person looks at: the demo and its page. Needs the extra ``report``."""

from offaxis.reporting.demo.result import DemoResult
from offaxis.reporting.demo.run import run_demo

__all__ = ["DemoResult", "run_demo"]
