"""What a person looks at: the demo and its page. Needs the extra ``report``."""

from offaxis.reporting.demo import run_demo
from offaxis.reporting.result import DemoResult

__all__ = ["DemoResult", "run_demo"]
