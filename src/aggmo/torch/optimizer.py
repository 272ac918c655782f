"""The optimizer: parameter groups, state and checkpoints. The arithmetic is in `aggmo.torch.update`.

A parameter's state is one tensor of its shape for each stored velocity, under the keys `velocity_0`, `velocity_1`, …
by position in `betas`. A velocity is stored exactly when its beta was nonzero as the group was made.
"""

from collections.abc import Callable, Iterable
from typing import Any, Self, SupportsFloat, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT, StateDict

from aggmo.damping import Damping
from aggmo.torch import checkpoint, compiled, fused, rounding, update
from aggmo.torch.fused import Plan
from aggmo.torch.options import check_options, check_params, check_tensor_lr, normalize
from aggmo.torch.sgd import build_up, sgd_options


class AggMo(Optimizer):
    r"""Aggregated momentum: K velocities with dampings of their own, and a step along their weighted sum.

    With the gradient g of the loss at theta, equations (3) and (4) of the paper read

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
            `rounding_step` in the group, and of the element's index among those elements of the group on this process
            that have a gradient: equal on all replicas, and whatever the number of threads.
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

    grad_scale: Tensor | None  # while a GradScaler calls the step

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
        check_options(defaults)
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
            [sgd_options(group, damping) for group in sgd.param_groups],
            betas=damping,
            foreach=foreach,
            fused=fused,
            velocity_dtype=velocity_dtype,
            **sgd_options(sgd.defaults, damping),
        )
        for source, group in zip(sgd.param_groups, optimizer.param_groups, strict=True):
            for p in group["params"]:
                buffer = sgd.state[p].get("momentum_buffer") if p in sgd.state else None
                if buffer is not None:
                    optimizer._start_velocities(p, group, buffer.to_dense().detach(), 1.0 / build_up(source))
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
        check_options(group)
        check_tensor_lr(group["lr"])
        group["stored"] = tuple(i for i, beta in enumerate(damping.betas) if beta)
        super().add_param_group(group)
        try:
            check_params(group)
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
        if hasattr(self, "grad_scale"):
            self._step_scaled()
        else:
            self._step_groups(1.0)
        return loss

    @torch.compiler.disable(reason="a GradScaler's scale is read, and a step with infinities left out, on the host")  # type: ignore[no-untyped-call, untyped-decorator]
    def _step_scaled(self) -> None:
        """A step that a `torch.amp.GradScaler` has left its scale to, for as long as it is called by it."""
        scale, found_inf = self.grad_scale, getattr(self, "found_inf", None)
        if found_inf is None or not found_inf.item():
            self._step_groups(1.0 if scale is None else scale.double().reciprocal().float().item())

    def _step_groups(self, inverse_scale: float) -> None:
        """One group after the other, gradients multiplied by a number."""
        for i, group in enumerate(self.param_groups):
            params: list[Tensor] = []
            grads: list[Tensor] = []
            velocities: list[Tensor] = []
            self._init_group(group, params, grads, velocities)
            if not params:
                continue
            kernel = _takes_kernel(group)
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
                update.step(params, grads, velocities, options, foreach=group["foreach"], plan=plan)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Asked by torch.amp.GradScaler, which then leaves unscaling and the check for infinities to the step."""
        return all(group["fused"] for group in self.param_groups)

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


def _takes_kernel(group: dict[str, Any]) -> bool:
    """Whether the kernel steps on what it applies to; by default where it is."""
    if group["fused"] is None:
        return not (group["foreach"] or group["differentiable"]) and fused.kernel_available()
    return bool(group["fused"])


@torch.compiler.disable(  # type: ignore[no-untyped-call, untyped-decorator]
    reason="stochastic_rounding=True: each step has other random bits, and cannot be compiled"
)
def _rounding_key(group: dict[str, Any]) -> int:
    """The key of a step's random bits; the next step has another."""
    key = rounding.step_key(group["rounding_seed"], group["rounding_step"])
    group["rounding_step"] += 1
    return key


def _make_state(state: dict[str, Tensor], keys: list[str], p: Tensor, velocity_dtype: str | None) -> None:
    """The velocities of a parameter before its first step."""
    if found := [key for key in keys if key in state]:
        raise ValueError(f"the state of a parameter of shape {tuple(p.shape)} has {found}, but needs {keys}")
    if velocity_dtype and p.is_complex():
        raise ValueError(f"velocity_dtype={velocity_dtype!r} cannot hold the velocities of a complex parameter")
    dtype = getattr(torch, velocity_dtype) if velocity_dtype else None
    for key in keys:
        state[key] = torch.zeros_like(p, dtype=dtype, memory_format=torch.preserve_format)
