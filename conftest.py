"""The plugins of this project's tests; pytest wants them named at the root."""

pytest_plugins = [
    "pytester",
    "tests.plugins.endless",
    "tests.plugins.needs",
    "tests.plugins.parts",
    "tests.plugins.seeds",
]
