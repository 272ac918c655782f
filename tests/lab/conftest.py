"""Settings for the tests of the lab."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Two OpenMP threads on a busy machine are slower than one."""
    torch.set_num_threads(1)
