"""Do the reports of a round look as reports of the public vectors would? Profiles, and the verdict.

The publisher makes a *profile* of public vectors (making.py), the collector reads it strictly
(profile.py) and compares a round with it (judging.py).
"""

from offaxis.collector.drift.judging import FALSE_ALARM, FEWEST, drift_facts, p_value
from offaxis.collector.drift.making import profile_of
from offaxis.collector.drift.profile import Profile

__all__ = ["FALSE_ALARM", "FEWEST", "Profile", "drift_facts", "p_value", "profile_of"]
