"""The binding to the C kernel: where it applies, what it is called with, and its threads.

`kernel.c` updates a whole group as one flat range of elements in one pass over memory. It applies to plain contiguous
floating-point tensors of the CPU; `aggmo.torch.update` computes the step of all others.
"""

import ctypes
import os
import threading
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib import resources
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from aggmo.torch.update import Options

# Fewer elements are done before a second thread has begun.
ELEMENTS_FOR_THREADS = 2**20

_TILE = 256  # as in kernel.c; threads share the range between tiles
_CODES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
_AT_RANDOM = 4
_PLAIN = {Tensor, torch.nn.Parameter}
_dtype, _is_cpu = attrgetter("dtype"), attrgetter("is_cpu")


class _Step(ctypes.Structure):
    """`struct aggmo_step` of kernel.c."""

    _fields_: ClassVar = [
        ("tensors", ctypes.c_int64),
        ("ends", ctypes.c_void_p),
        ("theta", ctypes.c_void_p),
        ("grad", ctypes.c_void_p),
        ("velocity", ctypes.c_void_p),
        ("k", ctypes.c_int64),
        ("stored", ctypes.c_int64),
        ("place", ctypes.c_void_p),
        ("betas", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("lr", ctypes.c_double),
        ("weight_decay", ctypes.c_double),
        ("inverse_scale", ctypes.c_double),
        ("decoupled", ctypes.c_int32),
        ("maximize", ctypes.c_int32),
        ("theta_dtype", ctypes.c_int32),
        ("velocity_dtype", ctypes.c_int32),
        ("key", ctypes.c_uint32),
    ]


def kernel_available() -> bool:
    """Whether this installation has the C kernel and the environment variable AGGMO_NO_KERNEL does not turn it off.

    >>> kernel_available() in (True, False)
    True
    """
    return os.environ.get("AGGMO_NO_KERNEL", "") in ("", "0") and _kernel() is not None


@cache
def _kernel() -> Callable[[int, int, int], None] | None:
    """The routine of kernel.c, or None where the installation had no compiler."""
    with resources.as_file(resources.files("aggmo.torch") / "libaggmo.so") as path:
        if not path.exists():
            return None
        routine = ctypes.CDLL(os.fspath(path)).aggmo_step
        routine.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
        routine.restype = None
        return routine


def step(params: Sequence[Tensor], grads: Sequence[Tensor], velocities: Sequence[Tensor], options: "Options") -> bool:
    """Update parameters and velocities in one pass over memory; False, and nothing done, if the kernel cannot.

    All that the kernel relies on is asked of the tensors at each step, and pointers are read afterwards from the same
    tensors: whatever `p.data = ...`, a resize or a change of dtype or strides did meanwhile, no pointer is stale.
    """
    if not (params and _apply(params, grads, velocities)):
        return False
    places = {i: place for place, i in enumerate(options.stored)}
    arrays: dict[str, array[int] | array[float]] = {
        "ends": array("q", accumulate(map(Tensor.numel, params))),
        "theta": array("Q", map(Tensor.data_ptr, params)),
        "grad": array("Q", map(Tensor.data_ptr, grads)),
        "velocity": array("Q", map(Tensor.data_ptr, velocities)),
        "place": array("q", (places.get(i, -1) for i in range(len(options.betas)))),
        "betas": array("d", options.betas),
        "weights": array("d", options.weights),
    }
    arguments = _Step(
        **{name: numbers.buffer_info()[0] for name, numbers in arrays.items()},
        tensors=len(params),
        k=len(options.betas),
        stored=len(options.stored),
        lr=float(options.lr),
        weight_decay=options.weight_decay,
        inverse_scale=options.inverse_scale,
        decoupled=options.decoupled_weight_decay,
        maximize=options.maximize,
        theta_dtype=_code(params[0].dtype, options),
        velocity_dtype=_code(velocities[0].dtype, options) if velocities else 0,
        key=options.rounding_key or 0,
    )
    _run(ctypes.addressof(arguments), int(arrays["ends"][-1]))
    torch.autograd.graph.increment_version(params)  # for autograd, which would not see that they were written to
    return True


def _code(dtype: torch.dtype, options: "Options") -> int:
    """What the kernel calls a dtype; bfloat16 that is rounded at random is one of its own."""
    return _AT_RANDOM if dtype == torch.bfloat16 and options.rounding_key is not None else _CODES[dtype]


def _apply(params: Sequence[Tensor], grads: Sequence[Tensor], velocities: Sequence[Tensor]) -> bool:
    """Whether these are plain contiguous tensors of the CPU, of the right sizes, and of one dtype each.

    Written with `map`, which costs a third of a loop: for small parameters, asking takes longer than calculating.
    """
    tensors = [*params, *grads, *velocities]
    try:
        plain = (
            _PLAIN.issuperset(map(type, tensors))
            and all(map(_is_cpu, tensors))
            and all(map(Tensor.is_contiguous, tensors))
            and not any(map(Tensor.is_neg, grads))
        )
    except RuntimeError:  # a sparse tensor has no memory layout
        return False
    dtypes, velocity_dtypes = set(map(_dtype, params)), set(map(_dtype, velocities))
    sizes = list(map(Tensor.numel, params))
    k = len(velocities) // len(params)
    return (
        plain
        and len(dtypes) == 1
        and dtypes <= _CODES.keys()
        and dtypes == set(map(_dtype, grads))
        and len(velocity_dtypes) <= 1
        and velocity_dtypes <= _CODES.keys()
        and sizes == list(map(Tensor.numel, grads))
        and all(sizes == list(map(Tensor.numel, velocities[place::k])) for place in range(k))
    )


def _run(arguments: int, elements: int) -> None:
    """Call the kernel on the whole range, in as many threads as torch would take."""
    kernel = _kernel()
    assert kernel is not None, "asked for where kernel_available() is False"
    threads = torch.get_num_threads() if elements >= ELEMENTS_FOR_THREADS else 1
    share = -(-elements // (threads * _TILE)) * _TILE
    begun: list[Future[None]] = []
    start = share
    try:
        while start < elements:
            begun.append(_threads(threads - 1).submit(kernel, arguments, start, min(start + share, elements)))
            start += share
    except RuntimeError:  # no new threads while the interpreter shuts down: the rest is done here
        kernel(arguments, start, elements)
    kernel(arguments, 0, min(share, elements))
    for future in begun:
        future.result()


_pool: ThreadPoolExecutor | None = None


def _threads(number: int) -> ThreadPoolExecutor:
    """The pool of all optimizers, with at least so many threads; the kernel runs without the interpreter lock."""
    global _pool
    with _pool_lock:
        if _pool is None or _pool._max_workers < number:
            _pool = ThreadPoolExecutor(number, thread_name_prefix="aggmo")
        return _pool


def _forget_threads() -> None:
    """A process after fork has none of its parent's threads, and perhaps its lock in the hands of one."""
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()


_pool_lock = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
