"""The plugins of this project's tests; pytest wants them named at the root."""

from hypothesis import HealthCheck, settings

pytest_plugins = [
    "pytester",
    "tests.plugins.endless",
    "tests.plugins.needs",
    "tests.plugins.parts",
    "tests.plugins.seeds",
]

# On a busy machine a slow example is no fault.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
