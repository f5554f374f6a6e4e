"""The paper's experiments, one file a study, as configurations of the code that everybody runs."""

from __future__ import annotations
