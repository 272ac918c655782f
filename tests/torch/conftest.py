"""The ways in which a step can be computed; every test of the step runs over all of them."""

import pytest
import torch

from aggmo.torch import kernel_available, update

BACKENDS = {
    "loop": {"foreach": False, "fused": False},
    "blocks": {"foreach": False, "fused": False},  # the loop, with blocks so small that every parameter has several
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
if not kernel_available():
    del BACKENDS["fused"]


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Two OpenMP threads on a busy machine are slower than one."""
    torch.set_num_threads(1)


@pytest.fixture(params=BACKENDS, scope="session")
def backend(request):
    """Keyword arguments of AggMo that choose a way of computing the step."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "blocks":
            patch.setattr(update, "BLOCK", 3)
        yield BACKENDS[request.param]
