"""The binding to the C kernel: where it applies, what it is called with, and its threads.

`kernel.c` updates a whole group as one flat range of elements in one pass over memory. It applies to plain contiguous
floating-point tensors of the CPU; `aggmo.torch.update` computes the step of all others.
"""

import ctypes
import os
import threading
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib import resources
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

try:
    from torch._C._dynamo import guards as _guards
except ImportError:
    _guards = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from aggmo.torch.update import Options

# Fewer elements are done before a second thread has begun.
ELEMENTS_FOR_THREADS = 2**20

_TILE = 256  # as in kernel.c; threads share the range between tiles
_CODES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
_AT_RANDOM = 4
_PLAIN = {Tensor, torch.nn.Parameter}
_numel, _data_ptr = Tensor.numel, Tensor.data_ptr


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


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
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


def step(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    velocities: Sequence[Tensor],
    options: "Options",
    plan: "Plan | None" = None,
    start: int = 0,
) -> bool:
    """Update parameters and velocities in one pass over memory; False, and nothing done, if the kernel cannot.

    With a plan, what it holds of an earlier step is used again as far as it is still true. `start` is the index of the
    first element, on which random bits depend; a plan begins with 0.
    """
    if not params or not (plan or Plan(start)).run(params, grads, velocities, options):
        return False
    torch.autograd.graph.increment_version(params)  # for autograd, which would not see that they were written to
    return True


class Plan:
    """The kernel's arguments, kept from one step to the next.

    Nothing is taken on trust: at each step every tensor is asked for its address and for all that the kernel relies on,
    so that no pointer is ever stale, whatever `p.data = ...`, a resize or a change of dtype or strides did meanwhile.
    For small parameters asking takes longer than calculating. Torch's compiler asks the same before it runs a graph,
    and its guards do so in one call; where torch has none, each step asks one tensor after the other.
    """

    __slots__ = ("_arguments", "_arrays", "_counts", "_guards", "_options", "_pointers", "_start")

    def __init__(self, start: int = 0) -> None:
        self._start = start
        self._guards: Any = None
        self._counts = 0, 0
        self._pointers: list[int] = []
        self._options: tuple[Any, ...] = ()

    def run(
        self, params: Sequence[Tensor], grads: Sequence[Tensor], velocities: Sequence[Tensor], options: "Options"
    ) -> bool:
        """Run the kernel, if it applies."""
        tensors = [*params, *grads, *velocities]
        counts = len(params), len(tensors)
        if self._guards is None or counts != self._counts or not self._guards.check(*tensors):
            self._guards, self._counts = None, counts
            if not _apply(params, grads, velocities):
                return False
            # The first tensor stands for the elements before the start, which no call reaches.
            ends = array("q", accumulate(map(_numel, params), initial=self._start))
            self._arrays: dict[str, array[int] | array[float]] = {"ends": ends}
            self._arguments = _Step(tensors=len(ends), ends=_address(ends))
            self._pointers, self._options = [], ()
            if _guards is not None:
                self._guards = _guards.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        pointers = list(map(_data_ptr, tensors))
        if pointers != self._pointers and not self._point(pointers, tensors, len(params)):
            return False
        shape = (options.betas, options.weights, options.stored, options.rounding_key is None)
        if shape != self._options:
            self._describe(options, params[0].dtype, velocities[0].dtype if velocities else torch.float32)
            self._options = shape
        arguments = self._arguments
        arguments.lr = float(options.lr)
        arguments.weight_decay = options.weight_decay
        arguments.inverse_scale = options.inverse_scale
        arguments.decoupled = options.decoupled_weight_decay
        arguments.maximize = options.maximize
        arguments.key = options.rounding_key or 0
        _run(ctypes.addressof(arguments), self._start, int(self._arrays["ends"][-1]))
        return True

    def _point(self, pointers: list[int], tensors: list[Tensor], params: int) -> bool:
        """Take over the addresses, unless two tensors share memory, whose order of updates the kernel does not keep."""
        self._pointers = []
        if lost := [tuple(t.shape) for pointer, t in zip(pointers, tensors, strict=True) if t.nbytes and not pointer]:
            raise RuntimeError(f"the storage of tensors of shapes {lost} has been freed: there is nothing to step on")
        pieces = sorted((pointer, t.nbytes) for pointer, t in zip(pointers, tensors, strict=True) if t.nbytes)
        if any(start + size > following for (start, size), (following, _) in pairwise(pieces)):
            return False
        nowhere = [0] * (len(pointers) // params - 2)
        columns = [0, *pointers[:params], 0, *pointers[params : 2 * params], *nowhere, *pointers[2 * params :]]
        self._arrays["pointers"] = array("Q", columns)
        start = _address(self._arrays["pointers"])
        self._arguments.theta = start
        self._arguments.grad = start + 8 * (params + 1)
        self._arguments.velocity = start + 16 * (params + 1)
        self._pointers = pointers
        return True

    def _describe(self, options: "Options", dtype: torch.dtype, velocity_dtype: torch.dtype) -> None:
        """Take over damping and dtypes; bfloat16 that is rounded at random is a dtype of its own."""
        places = {i: place for place, i in enumerate(options.stored)}
        numbers: dict[str, array[int] | array[float]] = {
            "place": array("q", (places.get(i, -1) for i in range(len(options.betas)))),
            "betas": array("d", options.betas),
            "weights": array("d", options.weights),
        }
        self._arrays |= numbers
        for name, values in numbers.items():
            setattr(self._arguments, name, _address(values))
        self._arguments.k, self._arguments.stored = len(options.betas), len(options.stored)
        codes = _CODES if options.rounding_key is None else _CODES | {torch.bfloat16: _AT_RANDOM}
        self._arguments.theta_dtype, self._arguments.velocity_dtype = codes[dtype], codes[velocity_dtype]


def _address(numbers: "array[int] | array[float]") -> int:
    return numbers.buffer_info()[0]


def _apply(params: Sequence[Tensor], grads: Sequence[Tensor], velocities: Sequence[Tensor]) -> bool:
    """Whether these are plain contiguous tensors of the CPU, of the right sizes, and of one dtype each."""
    tensors = [*params, *grads, *velocities]
    if not all(
        type(t) in _PLAIN and t.is_cpu and t.layout == torch.strided and t.is_contiguous() and not t.is_neg()
        for t in tensors
    ):
        return False
    dtypes, velocity_dtypes = {t.dtype for t in params}, {t.dtype for t in velocities}
    sizes = list(map(_numel, params))
    k = len(velocities) // len(params)
    return (
        len(dtypes) == 1
        and dtypes <= _CODES.keys()
        and dtypes == {t.dtype for t in grads}
        and len(velocity_dtypes) <= 1
        and velocity_dtypes <= _CODES.keys()
        and sizes == list(map(_numel, grads))
        and all(sizes == list(map(_numel, velocities[place::k])) for place in range(k))
    )


def _run(arguments: int, begin: int, end: int) -> None:
    """Call the kernel on the whole range, in as many threads as torch would take."""
    kernel = _kernel()
    assert kernel is not None, "asked for where kernel_available() is False"
    threads = torch.get_num_threads() if end - begin >= ELEMENTS_FOR_THREADS else 1
    share = -(-(end - begin) // (threads * _TILE)) * _TILE
    if end - begin <= share:
        kernel(arguments, begin, end)
        return
    left = deque((start, min(start + share, end)) for start in range(begin, end, share))
    number, done = len(left), threading.Semaphore(0)

    def work() -> None:
        with suppress(IndexError):  # nothing is left
            while True:
                kernel(arguments, *left.popleft())
                done.release()

    # Where no thread can be started, the call may be queued nonetheless: in a later step, it finds nothing left to do.
    with suppress(RuntimeError):
        for _ in range(number - 1):
            _threads(number - 1).submit(work)
    work()
    for _ in range(number):
        done.acquire()


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
