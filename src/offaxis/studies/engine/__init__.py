"""The engine of all studies: rows of mechanisms, over budgets and seeds, on every core."""

from offaxis.studies.engine.running import Outcome as Outcome
from offaxis.studies.engine.running import Row as Row
from offaxis.studies.engine.running import measure_row as measure_row
from offaxis.studies.engine.running import run as run
