"""Settings for all tests."""

from hypothesis import settings

# The same examples in every run, so that a failure can be repeated; no deadline, as the machine may be busy.
settings.register_profile("aggmo", derandomize=True, deadline=None, database=None)
settings.load_profile("aggmo")
