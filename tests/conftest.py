"""What all tests share."""

import os


def pytest_configure() -> None:
    """A run that a test starts is a run of its own, not a worker's of the tests' own run."""
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
        del os.environ[name]
