"""The optimizer: parameter groups, state and checkpoints. The arithmetic is in `aggmo.torch.update`.

A parameter's state is one tensor of its shape for each stored velocity, under the keys `velocity_0`, `velocity_1`, …
by position in `betas`. A velocity is stored exactly when its beta was nonzero as the group was made.
"""

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Self, SupportsFloat, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT, StateDict, _default_to_fused_or_foreach

from aggmo.damping import Damping
from aggmo.torch import checkpoint, compiled, fused, rounding, update
from aggmo.torch.fused import Plan


class AggMo(Optimizer):
    r"""Aggregated momentum: K velocities with dampings of their own, and a step along their weighted sum.

    With the gradient g of the loss at theta, equations (4) and (5) of the paper read

        v_i   <- beta_i v_i + g              i = 1 ... K
        theta <- theta - lr * sum_i w_i v_i  w_i = 1/K unless weights are given

    Classical momentum is `Damping.classical(beta)`, Nesterov's `Damping.nesterov(beta)`, exactly as `torch.optim.SGD`
    computes them. Coming from `SGD(lr, momentum=m)`, the learning rate that keeps the terminal velocity is
    `lr / (1 - m) / damping.terminal_velocity`; `AggMo.from_sgd` does this in the middle of a run.

    Every option may differ between parameter groups and is read from the group at each step, so that schedulers can
    change it. Under `torch.compile` a learning rate that is a tensor is never compiled anew; one that is a number once,
    at its first change, and betas that change likewise.

    Args:
        params: parameters, named parameters or parameter groups, as for every `torch.optim.Optimizer`.
        lr: the learning rate, >= 0; a number, or a tensor with one element.
        betas: the damping coefficients, 0 <= beta < 1, or a whole `Damping`. A beta of 0 costs no memory.
        weights: the weight of each velocity, >= 0; 1/K each if None.
        weight_decay: the coefficient of theta added to the gradient, >= 0.
        decoupled_weight_decay: add weight_decay * theta to the step instead, beside the velocities, as AdamW does.
        maximize: step up the gradient.
        foreach: whether to batch the operations of a group's parameters; None batches on accelerators.
        fused: whether the C kernel takes what it can, which is contiguous floating-point tensors of the CPU; None lets
            it where it is there (`aggmo.torch.kernel_available`), True insists. A compiled step calls it as one
            operator; with False, Inductor compiles the step itself, which takes it longer the more parameters it has.
        differentiable: whether autograd may pass through the step; the default runs it without autograd.
        stochastic_rounding: whether every bfloat16 tensor that the step writes, parameter or velocity, is rounded up or
            down at random, so that the mean is exact and steps smaller than half a unit in the last place are not
            lost. The bits are a function of the integers `rounding_seed` (0 unless a group says otherwise) and
            `rounding_step` in the group, and of the element's index among the group's elements on this process: equal
            on all replicas, and whatever the number of threads.
        velocity_dtype: the floating-point dtype in which velocities are stored, None for their parameter's. Groups keep
            it by its name, because torch's full state dicts cannot carry a dtype.

    Raises:
        ValueError: an option out of range; the message names option, value and range.

    >>> theta = torch.tensor([1.0], requires_grad=True)
    >>> optimizer = AggMo([theta], lr=0.25, betas=(0, 0.5))
    >>> for _ in range(2):
    ...     optimizer.zero_grad()
    ...     (theta**2).sum().backward()  # the gradient is 2 theta
    ...     optimizer.step()
    >>> theta.item()  # 1 - 0.25 * (2 + 2) / 2 = 0.5, then 0.5 - 0.25 * (1 + (0.5 * 2 + 1)) / 2
    0.125
    >>> optimizer.state[theta]
    {'velocity_1': tensor([2.])}
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.1,
        betas: Iterable[SupportsFloat] | Damping = (0.0, 0.9, 0.99),
        weights: Iterable[SupportsFloat] | None = None,
        *,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        differentiable: bool = False,
        velocity_dtype: torch.dtype | None = None,
        stochastic_rounding: bool = False,
    ) -> None:
        damping = Damping.of(betas, weights)
        equal = damping.weights == (1.0 / len(damping),) * len(damping)
        defaults = {
            "lr": lr,
            "betas": damping.betas,
            "weights": None if equal else damping.weights,
            "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "fused": fused,
            "differentiable": differentiable,
            "velocity_dtype": velocity_dtype,
            "stochastic_rounding": stochastic_rounding,
        }
        _normalize_options(defaults)
        self._plans: dict[int, Plan] = {}  # what the kernel keeps from step to step, by group
        super().__init__(params, defaults)

    @classmethod
    def from_exp_form(
        cls, params: ParamsT, lr: float | Tensor = 0.1, a: float = 0.1, k: int = 3, **options: Any
    ) -> Self:
        """The optimizer with the paper's exponential damping vector, beta_i = 1 - a^(i-1), as in the authors' code.

        Args:
            params, lr: as for `AggMo`.
            a: the scale, 0 < a < 1.
            k: the number of velocities, >= 1.
            options: further keyword arguments of `AggMo`.

        Raises:
            ValueError: as `Damping.exponential` and `AggMo`.

        >>> AggMo.from_exp_form([torch.zeros(1)], lr=0.1, a=0.5, k=4).param_groups[0]["betas"]
        (0.0, 0.5, 0.75, 0.875)
        """
        return cls(params, lr, Damping.exponential(k=k, a=a), **options)

    @classmethod
    def from_sgd(
        cls,
        sgd: torch.optim.SGD,
        betas: Iterable[SupportsFloat] | Damping = (0.0, 0.9, 0.99),
        weights: Iterable[SupportsFloat] | None = None,
        *,
        foreach: bool | None = None,
        fused: bool | None = None,
        velocity_dtype: torch.dtype | None = None,
    ) -> Self:
        """Take over a running `torch.optim.SGD`: its parameters, groups, options and momentum.

        With SGD's learning rate lr, momentum m, dampening d and buffers b,

            lr'  = lr (1 - d) / (1 - m) / sum_i w_i / (1 - beta_i)
            v_i  = b (1 - m) / ((1 - d) (1 - beta_i))

        so that the terminal velocity stays what it was, and what momentum contributes to the step goes on unchanged (a
        beta of 0 remembers nothing that could). With `Damping.classical(m)`, or `Damping.nesterov(m)` for a Nesterov
        run, the SGD run is continued to rounding. `initial_lr` is scaled alike. A scheduler of the SGD goes on over the
        new optimizer after

            scheduler.optimizer = optimizer
            scheduler.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]

        if it has no other learning rates of its own; make a new one in place of OneCycleLR and CyclicLR, and for
        ReduceLROnPlateau assign `optimizer` alone. Do not step the SGD any more.

        Args:
            sgd: the optimizer to take over; it is left as it is. All options that it has come from it.
            betas, weights: as for `AggMo`, for all groups.
            foreach, fused, velocity_dtype: as for `AggMo`.

        Raises:
            ValueError: not an SGD, a momentum or dampening of 1 or more, or as `AggMo`.

        >>> theta = torch.zeros(1, requires_grad=True)
        >>> sgd = torch.optim.SGD([theta], lr=0.5, momentum=0.75)  # terminal velocity 0.5 / (1 - 0.75) = 2
        >>> AggMo.from_sgd(sgd, betas=(0, 0.5), weights=(1, 1.5)).param_groups[0]["lr"]  # 2 / (1 + 1.5 / 0.5)
        0.5
        """
        if not isinstance(sgd, torch.optim.SGD):
            raise ValueError(f"sgd is a {type(sgd).__name__}: must be a torch.optim.SGD")
        damping = Damping.of(betas, weights)
        optimizer = cls(
            [_taken_over(group, damping) for group in sgd.param_groups],
            betas=damping,
            foreach=foreach,
            fused=fused,
            velocity_dtype=velocity_dtype,
            **_taken_over(sgd.defaults, damping),
        )
        for source, group in zip(sgd.param_groups, optimizer.param_groups, strict=True):
            for p in group["params"]:
                buffer = sgd.state[p].get("momentum_buffer") if p in sgd.state else None
                if buffer is not None:
                    optimizer._start_velocities(p, group, buffer.to_dense().detach(), 1.0 / _build_up(source))
        return optimizer

    def _start_velocities(self, p: Tensor, group: dict[str, Any], buffer: Tensor, speed: float) -> None:
        """Share out a momentum buffer: velocity i starts at speed / (1 - beta_i) times the buffer."""
        keys = [f"velocity_{i}" for i in group["stored"]]
        _make_state(self.state[p], keys, p, group["velocity_dtype"])
        for i, key in zip(group["stored"], keys, strict=True):
            self.state[p][key].copy_(buffer).mul_(speed / (1.0 - group["betas"][i]))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group, in the middle of a run too; options it does not name are the optimizer's own.

        Raises:
            ValueError: as `AggMo`; also betas without weights in an optimizer whose own weights are not 1/K.

        >>> a, b = torch.zeros(1), torch.zeros(1)
        >>> optimizer = AggMo([a], lr=0.1)
        >>> optimizer.add_param_group({"params": [b], "lr": 0.5, "betas": Damping.nesterov(0.5)})
        >>> [(group["lr"], group["betas"], group["weights"][-1]) for group in optimizer.param_groups]
        [(0.1, (0.0, 0.9, 0.99), 0.3333333333333333), (0.5, (0.0, 0.5), 0.5)]
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        weights = param_group.get("weights")
        if "betas" not in param_group:
            weights = self.defaults["weights"] if weights is None else weights
        elif weights is None and self.defaults["weights"] and not isinstance(param_group["betas"], Damping):
            raise ValueError(
                f"a group with betas={param_group['betas']!r} but no weights, while the optimizer has "
                f"weights={self.defaults['weights']} for its own betas: give the group its weights"
            )
        damping = Damping.of(param_group.get("betas", self.defaults["betas"]), weights)
        group = {**self.defaults, **param_group, "betas": damping.betas, "weights": damping.weights}
        _normalize_options(group)
        _check_tensor_lr(group["lr"])
        group["stored"] = tuple(i for i, beta in enumerate(damping.betas) if beta)
        super().add_param_group(group)
        try:
            _check_params(group)
        except ValueError:
            self.param_groups.pop()
            raise

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take one step.

        Args:
            closure: evaluates the model anew and returns the loss.

        Returns:
            What the closure returned.

        Raises:
            ValueError: an option of a group is out of range by now, or a beta that was 0 as its group was made is not;
                no parameter has moved then.

        >>> theta = torch.tensor([4.0], requires_grad=True)
        >>> optimizer = AggMo([theta], lr=0.5, betas=(0,))
        >>> theta.grad = torch.tensor([2.0])
        >>> optimizer.step()
        >>> theta  # 4 - 0.5 * 2
        tensor([3.], requires_grad=True)
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        inverse_scale = 1.0 if torch.compiler.is_compiling() else self._inverse_scale()
        if inverse_scale == 0.0:
            return loss
        for i, group in enumerate(self.param_groups):
            params: list[Tensor] = []
            grads: list[Tensor] = []
            velocities: list[Tensor] = []
            self._init_group(group, params, grads, velocities)
            if not params:
                continue
            foreach, kernel = _back_end(group, params)
            options = update.Options(
                betas=group["betas"],
                weights=group["weights"],
                stored=group["stored"],
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                decoupled_weight_decay=group["decoupled_weight_decay"],
                maximize=group["maximize"],
                differentiable=group["differentiable"],
                inverse_scale=inverse_scale,
                rounding_key=_rounding_key(group) if group["stochastic_rounding"] else None,
            )
            if torch.compiler.is_compiling():
                if kernel and all(p.is_cpu for p in params):
                    compiled.step(params, grads, velocities, options)
                    continue
                plan = None
            else:
                plan = self._plans.setdefault(i, Plan()) if kernel else None
            with torch.set_grad_enabled(group["differentiable"]):
                update.step(params, grads, velocities, options, foreach=foreach, plan=plan)
        return loss

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Asked by torch.amp.GradScaler, which then leaves unscaling and the check for infinities to the step."""
        return all(group["fused"] for group in self.param_groups)

    def _inverse_scale(self) -> float:
        """What gradients are to be multiplied by: a GradScaler's inverse scale, or 0 where it has found infinities."""
        scale, found_inf = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        if found_inf is not None and found_inf.item():
            return 0.0
        return 1.0 if scale is None else scale.double().reciprocal().float().item()

    def _init_group(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], velocities: list[Tensor]
    ) -> None:
        """Check the group's options and collect its tensors, making state where there is none.

        torch.compile runs this method eagerly, whatever is compiled around it: that it is apart, under this name, keeps
        the making of state out of the graph, where Inductor would merge the equal first values into one buffer.
        """
        if group is self.param_groups[0]:
            for each in self.param_groups:  # all of them before the first parameter moves
                normalize(each)
        keys = [f"velocity_{i}" for i in group["stored"]]
        gradients = [p.grad for p in group["params"]]
        params += [p for p, g in zip(group["params"], gradients, strict=True) if g is not None]
        grads += [g for g in gradients if g is not None]
        if not keys:
            return
        states = list(map(self.state.__getitem__, params))
        try:
            velocities += [state[key] for state in states for key in keys]
        except KeyError:
            for p, state in zip(params, states, strict=True):
                if not all(map(state.__contains__, keys)):
                    _make_state(state, keys, p, group["velocity_dtype"])
            velocities += [state[key] for state in states for key in keys]

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load a state dict, of this class or of another implementation of AggMo, which is continued exactly.

        Velocities keep the dtype they were saved in. As with every optimizer of `torch.optim`, the options of the state
        dict replace those of the groups. Tensors are copied, so that the optimizer that was saved can go on as well.

        Raises:
            ValueError: a state dict of another algorithm, options out of range, or velocities of other betas or shapes;
                nothing has changed then.

        >>> a, b = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
        >>> first, second = AggMo([a], lr=0.5), AggMo([b])
        >>> second.load_state_dict(first.state_dict())
        >>> second.param_groups[0]["lr"]
        0.5
        """
        # The last hook to run, so that it sees what the user's own hooks made of the state dict.
        handle = self.register_load_state_dict_pre_hook(
            lambda _, loaded: checkpoint.adopt(loaded, self.param_groups, self.defaults, normalize)
        )
        try:
            super().load_state_dict(state_dict)
        finally:
            handle.remove()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._plans = {}
        for p, values in state["state"].items():
            for key, value in values.items():
                if isinstance(value, checkpoint.Kept):
                    values[key] = value.tensor.to(p.device, copy=True)
        super().__setstate__(state)


def _back_end(group: dict[str, Any], params: list[Tensor]) -> tuple[bool, bool]:
    """Whether to use foreach, and the kernel for what it applies to; by default what is fastest."""
    foreach, kernel = group["foreach"], group["fused"]
    if foreach is None:
        _, foreach = _default_to_fused_or_foreach(params, group["differentiable"], use_fused=False)
        foreach = foreach and not kernel and not group["stochastic_rounding"]
    if kernel is None:
        kernel = not (group["foreach"] or group["differentiable"]) and fused.kernel_available()
    return foreach, kernel


_SGD_OPTIONS = {"momentum", "dampening", "nesterov", "foreach", "fused"}


@torch.compiler.disable(  # type: ignore[no-untyped-call, untyped-decorator]
    reason="stochastic_rounding=True: each step has other random bits, and cannot be compiled"
)
def _rounding_key(group: dict[str, Any]) -> int:
    """The key of a step's random bits; the next step has another."""
    key = rounding.step_key(group["rounding_seed"], group["rounding_step"])
    group["rounding_step"] += 1
    return key


def _taken_over(options: dict[str, Any], damping: Damping) -> dict[str, Any]:
    """The options of an SGD, or of one of its groups, as AggMo's."""
    factor = _build_up(options) / damping.terminal_velocity
    taken = {key: value for key, value in options.items() if key not in _SGD_OPTIONS}
    taken.update((key, options[key] * factor) for key in ("lr", "initial_lr") if key in options)
    taken["weight_decay"] = float(options["weight_decay"])
    return taken


def _build_up(options: dict[str, Any]) -> float:
    """What SGD's buffer is under a constant gradient of 1, (1 - d) / (1 - m)."""
    momentum, dampening = float(options["momentum"]), float(options["dampening"])
    if not momentum < 1.0:
        raise ValueError(f"momentum={momentum} of the SGD: must be < 1, as its velocity would grow without bound")
    if momentum == 0.0:
        return 1.0  # SGD ignores its dampening then
    if not dampening < 1.0:
        raise ValueError(
            f"dampening={dampening} of the SGD: must be < 1, as its buffer leaves out every gradient but the first"
        )
    return (1.0 - dampening) / (1.0 - momentum)


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


def _make_state(state: dict[str, Tensor], keys: list[str], p: Tensor, velocity_dtype: str | None) -> None:
    """The velocities of a parameter before its first step."""
    if found := [key for key in keys if key in state]:
        raise ValueError(f"the state of a parameter of shape {tuple(p.shape)} has {found}, but needs {keys}")
    if velocity_dtype and p.is_complex():
        raise ValueError(f"velocity_dtype={velocity_dtype!r} cannot hold the velocities of a complex parameter")
    dtype = getattr(torch, velocity_dtype) if velocity_dtype else None
    for key in keys:
        state[key] = torch.zeros_like(p, dtype=dtype, memory_format=torch.preserve_format)


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
    _normalize_options(group)


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


def _normalize_options(options: dict[str, Any]) -> None:
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
    if name not in _VELOCITY_DTYPES:
        raise ValueError(f"velocity_dtype={dtype!r}: must be one of the floating-point dtypes {_VELOCITY_DTYPES}")
    options["velocity_dtype"] = name


def _number(name: str, value: Any, allowed: str) -> float:
    """The value as a float, if it is a finite number >= 0."""
    if type(value) is not float:
        try:
            if isinstance(value, bool | str | bytes):
                raise TypeError
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"{name}={value!r}: {allowed}") from None
    else:
        number = value
    if not 0.0 <= number < math.inf:
        raise ValueError(f"{name}={value!r}: {allowed}")
    return number


def _check_tensor_lr(lr: float | Tensor) -> None:
    """Raise ValueError for a learning rate out of range in a tensor; once, as looking into it may wait for a device."""
    if isinstance(lr, Tensor) and not lr.is_meta and not 0.0 <= lr.item() < math.inf:
        raise ValueError(f"lr={lr.item()!r} in a tensor: the learning rate must be finite and >= 0")


def _check_params(group: dict[str, Any]) -> None:
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
