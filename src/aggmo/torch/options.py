"""The options of a parameter group: what may stand there, and the form that the step counts on.

Schedulers, checkpoints and users write into groups, so they are checked at each step. Betas and weights are checked by
`Damping`, the only place that knows what they may be.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aggmo.damping import Damping
from aggmo.torch import fused

_FLAGS = ("decoupled_weight_decay", "maximize", "differentiable", "stochastic_rounding")
_CHOICES = ("foreach", "fused")
_EXCLUSIVE = (
    ("fused", "foreach"),
    ("fused", "differentiable"),
    ("foreach", "differentiable"),
    ("stochastic_rounding", "foreach"),
    ("stochastic_rounding", "differentiable"),
)
_VELOCITY_DTYPES = (None, "float32", "float64", "bfloat16", "float16")


def normalize(group: dict[str, Any]) -> None:
    """Check what schedulers, checkpoints and users may have written into a group, and give it its usual form.

    Numbers become floats and sequences tuples of them; a `Damping` among the options becomes its betas and weights.

    Raises:
        ValueError: as `AggMo`, or a beta that is not 0 although its velocity is not stored.
    """
    betas, weights = group["betas"], group["weights"]
    usual = isinstance(betas, tuple) and isinstance(weights, tuple)
    if not (usual and all(type(x) is float for x in (*betas, *weights))):
        damping = Damping.of(betas, None if isinstance(betas, Damping) else weights)
        group["betas"], group["weights"] = betas, weights = damping.betas, damping.weights
    group["stored"] = tuple(group["stored"])
    _check_damping(betas, weights, group["stored"])
    check_options(group)


@lru_cache(maxsize=256)
def _check_damping(betas: tuple[float, ...], weights: tuple[float, ...], stored: tuple[int, ...]) -> None:
    """Raise unless betas and weights are valid and every velocity they need is stored."""
    damping = Damping(betas, weights)
    if stored and stored[-1] >= len(damping):
        raise ValueError(f"betas={betas} has {len(damping)} entries, but velocities are stored at positions {stored}")
    for i, beta in enumerate(damping):
        if beta and i not in stored:
            raise ValueError(
                f"betas[{i}] is {beta}, but was 0 when the parameter group was made, so its velocity is not stored. "
                "OneCycleLR and CyclicLR write betas[0] unless they are made with cycle_momentum=False; to change "
                "this beta yourself, make the group with a nonzero one"
            )


def check_options(options: dict[str, Any]) -> None:
    """Numbers as floats, dtypes by name; ValueError for one out of its range. Betas and weights are `Damping`'s."""
    lr = options["lr"]
    if not isinstance(lr, Tensor):
        options["lr"] = _number(
            "lr", lr, "the learning rate must be a finite number >= 0, or a tensor with one element"
        )
    elif lr.numel() != 1 or not lr.is_floating_point():
        raise ValueError(f"lr is a tensor of shape {tuple(lr.shape)} and {lr.dtype}: it must have one real element")
    options["weight_decay"] = _number("weight_decay", options["weight_decay"], "must be a finite number >= 0")
    for name in _FLAGS:
        if not isinstance(options[name], bool):
            raise ValueError(f"{name}={options[name]!r}: must be True or False")
    for name in _CHOICES:
        if options[name] is not None and not isinstance(options[name], bool):
            raise ValueError(f"{name}={options[name]!r}: must be True, False or None")
    if options["fused"] and not fused.kernel_available():
        raise ValueError(
            "fused=True, but there is no kernel: it was installed without a compiler, or AGGMO_NO_KERNEL is set; "
            "leave fused at None"
        )
    for one, other in _EXCLUSIVE:
        if options[one] and options[other]:
            raise ValueError(f"{one}=True with {other}=True: choose one of them")
    if options["stochastic_rounding"]:
        for name in ("rounding_seed", "rounding_step"):
            value = options.setdefault(name, 0)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"{name}={value!r}: must be a whole number >= 0")
    dtype = options["velocity_dtype"]
    name = str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else dtype
    if name is not None and not (isinstance(name, str) and name in _VELOCITY_DTYPES):
        raise ValueError(f"velocity_dtype={dtype!r}: must be one of the floating-point dtypes {_VELOCITY_DTYPES}")
    options["velocity_dtype"] = name


def _number(name: str, value: Any, allowed: str) -> float:
    """The value as a float, if it is a finite number >= 0."""
    if type(value) is not float:
        try:
            if isinstance(value, bool | str | bytes | np.complexfloating):  # of which NumPy would drop a part
                raise TypeError
            number = float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):  # the last from a tensor, complex or on meta
            raise ValueError(f"{name}={value!r}: {allowed}") from None
    else:
        number = value
    if not 0.0 <= number < math.inf:
        raise ValueError(f"{name}={value!r}: {allowed}")
    return number


def check_tensor_lr(lr: float | Tensor) -> None:
    """Raise ValueError for a learning rate out of range in a tensor; once, as looking into it may wait for a device."""
    if isinstance(lr, Tensor) and not lr.is_meta and not 0.0 <= lr.item() < math.inf:
        raise ValueError(f"lr={lr.item()!r} in a tensor: the learning rate must be finite and >= 0")


def check_params(group: dict[str, Any]) -> None:
    """Raise ValueError where options do not fit the parameters."""
    for p in group["params"]:
        if group["velocity_dtype"] is not None and p.is_complex():
            raise ValueError(
                f"velocity_dtype={group['velocity_dtype']!r} cannot hold the velocities of a complex parameter: "
                "leave it None"
            )
        if group["fused"] and not (p.is_cpu and p.is_floating_point()):
            raise ValueError(
                "`fused=True` requires all the params to be floating point Tensors of supported devices: ['cpu'], "
                f"but one is {p.dtype} on {p.device.type}"
            )
