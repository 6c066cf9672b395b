"""`make test` says how much of the catalogue of launch faults is caught."""

from __future__ import annotations

import pytest

from tests.faults.table import summary


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line below the results."""
    terminalreporter.write_line(summary())
