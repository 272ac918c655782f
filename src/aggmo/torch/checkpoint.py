"""State dicts on their way in: AggMo's own, and those that other implementations of AggMo wrote.

The authors' optimizer and its descendants keep `momentum_buffer`, a dict of buffers keyed by the float beta, and know
neither weights nor which velocities need no memory.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from aggmo.damping import Damping


class Kept:
    """A tensor that `Optimizer.load_state_dict` cannot see, and so does not cast to the parameter's dtype."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def adopt(
    state_dict: dict[str, Any],
    groups: Sequence[dict[str, Any]],
    options: Iterable[str],
    normalize: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """The state dict in AggMo's own format, checked against the optimizer's groups, its velocities `Kept`.

    Args:
        state_dict: what `load_state_dict` was given; left as it is.
        groups: the optimizer's parameter groups, in the same order.
        options: the names of the options; those that the state dict lacks stay as they are in `groups`.
        normalize: checks a group's options and gives them their usual form.

    Raises:
        ValueError: a state dict of another algorithm, or velocities that do not fit betas or parameters.
    """
    if not {"state", "param_groups"} <= state_dict.keys():
        raise ValueError(f"not a state dict of an optimizer: it holds {sorted(map(str, state_dict))}")
    saved_groups = state_dict["param_groups"]
    sizes = [len(group["params"]) for group in groups]
    if sizes != [len(saved["params"]) for saved in saved_groups]:
        return state_dict  # the base class says what differs
    state = dict(state_dict["state"])
    new_groups = []
    for group, saved in zip(groups, saved_groups, strict=True):
        foreign = "weights" not in saved
        new = _translated_group(group, saved) if foreign else dict(saved)
        for name in options:
            new.setdefault(name, group[name])
        if "stored" not in new:  # torch's full state dicts lose an empty tuple
            new["stored"] = tuple(i for i, beta in enumerate(new["betas"]) if beta)
        normalize(new)
        for index, param in zip(saved["params"], group["params"], strict=True):
            if state.get(index):
                own = _translated_state(state[index], new) if foreign else state[index]
                state[index] = _kept(own, param, index, new)
        new_groups.append(new)
    return {**state_dict, "state": state, "param_groups": new_groups}


def _kept(state: Mapping[str, Any], param: Tensor, index: Any, group: dict[str, Any]) -> dict[str, Any]:
    """The state of one parameter with its velocities checked and kept."""
    expected = {f"velocity_{i}" for i in group["stored"]}
    found = {key for key in state if key.startswith("velocity_")}
    if found != expected:
        raise ValueError(
            f"the state of parameter {index!r} holds {sorted(found) or 'no velocity'}, but betas={group['betas']} with "
            f"stored={group['stored']} needs {sorted(expected)}: is this the state dict of another optimizer?"
        )
    for key in expected:
        if not isinstance(state[key], Tensor):
            raise ValueError(f"{key} of parameter {index!r} is no tensor, but a {type(state[key]).__name__}")
        if state[key].shape != param.shape:
            raise ValueError(
                f"{key} of parameter {index!r} has shape {tuple(state[key].shape)}, "
                f"the parameter itself {tuple(param.shape)}"
            )
    return {key: Kept(value) if key in expected else value for key, value in state.items()}


def _translated_group(group: dict[str, Any], saved: dict[str, Any]) -> dict[str, Any]:
    """A group written by another AggMo, in this one's options; the rest stays as in the optimizer's own group."""
    other = {"momentum", "eps", "alpha", "rho"} & saved.keys()
    if other or "betas" not in saved:
        raise ValueError(
            f"not a state dict of AggMo: its groups have the options {sorted(saved.keys() - {'params'})}; "
            "to go on from torch.optim.SGD use AggMo.from_sgd"
        )
    betas = Damping(saved["betas"]).betas
    if len(betas) != len(group["betas"]):
        raise ValueError(
            f"the state dict has {len(betas)} velocities, betas={betas}, but this optimizer has {len(group['betas'])}, "
            f"betas={group['betas']}: make it with betas={betas} to load this state dict"
        )
    if saved.get("fixed_decay") and saved.get("weight_decouple") and saved["weight_decay"]:
        raise ValueError(
            "fixed_decay=True decays by weight_decay whatever the learning rate, which AggMo does not do: "
            "set fixed_decay to False and weight_decay to weight_decay / lr in the state dict"
        )
    dropped = {"betas", "weight_decouple", "fixed_decay", "foreach", "step"}
    return {
        **{key: value for key, value in saved.items() if key not in dropped},
        "betas": betas,
        "weights": Damping(betas).weights,
        "decoupled_weight_decay": bool(saved.get("weight_decouple", False)),
    }


def _translated_state(saved: Mapping[str, Any], group: dict[str, Any]) -> dict[str, Any]:
    """The buffers of one parameter, keyed by beta, as velocities keyed by position."""
    buffers = saved.get("momentum_buffer")
    if not isinstance(buffers, Mapping):
        raise ValueError(f"not the state of an AggMo: it holds {sorted(map(str, saved))}, not buffers keyed by beta")
    needed = [group["betas"][i] for i in group["stored"]]
    if len(set(needed)) < len(needed):
        raise ValueError(
            f"betas={group['betas']} has duplicates, which share one buffer where this state dict was written: "
            "a velocity that was updated twice a step cannot be continued"
        )
    if not set(needed) <= buffers.keys():
        raise ValueError(f"the state dict has buffers for {list(buffers)}, its groups have betas={group['betas']}")
    return {f"velocity_{i}": buffers[group["betas"][i]] for i in group["stored"]}
