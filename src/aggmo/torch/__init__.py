"""AggMo for PyTorch: an optimizer that does all that the optimizers of `torch.optim` do."""

from aggmo.torch.fused import kernel_available
from aggmo.torch.optimizer import AggMo

__all__ = ["AggMo", "kernel_available"]
