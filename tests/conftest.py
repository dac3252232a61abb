"""For all tiers: properties are tried for as long as it takes.

An example that takes 200 ms fails by Hypothesis's default, and so does drawing examples for a second. On a machine that
does other things meanwhile both say nothing about the program. Everything else stays as it is, what CI has included.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
