"""The optimizer in two processes: each case of `cases.py` is a test, and its docstring names the oracle."""

from collections.abc import Callable

import pytest
from cases import CASES


@pytest.mark.parametrize("case", CASES)
def test_in_two_processes(case: str, distributed_report: Callable[[str], str]) -> None:
    if problems := distributed_report(case):
        pytest.fail(problems, pytrace=False)
