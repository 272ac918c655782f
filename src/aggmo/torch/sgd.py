"""What a running `torch.optim.SGD` hands over: its options as AggMo's, and how far its buffers build up."""

from typing import Any

from aggmo.damping import Damping

_ITS_OWN = {"momentum", "dampening", "nesterov", "foreach", "fused"}


def sgd_options(options: dict[str, Any], damping: Damping) -> dict[str, Any]:
    """The options of an SGD, or of one of its groups, as AggMo's."""
    factor = build_up(options) / damping.terminal_velocity
    taken = {key: value for key, value in options.items() if key not in _ITS_OWN}
    taken.update((key, options[key] * factor) for key in ("lr", "initial_lr") if key in options)
    taken["weight_decay"] = float(options["weight_decay"])
    return taken


def build_up(options: dict[str, Any]) -> float:
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
