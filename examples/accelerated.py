"""AggMo under Hugging Face Accelerate: clipping, a schedule, and gradients accumulated over several batches.

It runs as it is, or on many devices with `accelerate launch`.
"""

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset

from aggmo import AggMo

EPOCHS = 5
ACCUMULATE = 4


def data() -> TensorDataset:
    """Ten classes, each a cloud around a point."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (512,), generator=generator)
    points = torch.randn(10, 20, generator=generator)
    return TensorDataset(points[labels] + torch.randn(512, 20, generator=generator), labels)


def make_model() -> nn.Module:
    """The same at every call."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 10))


if __name__ == "__main__":
    accelerator = Accelerator(gradient_accumulation_steps=ACCUMULATE, cpu=True)
    model = make_model()
    optimizer = AggMo(model.parameters(), lr=0.05, weight_decay=1e-4)
    scheduler = CosineAnnealingLR(optimizer, EPOCHS * 8)
    model, optimizer, scheduler, loader = accelerator.prepare(
        model, optimizer, scheduler, DataLoader(data(), batch_size=16)
    )
    for epoch in range(EPOCHS):
        losses = []
        for x, labels in loader:
            with accelerator.accumulate(model):
                loss = cross_entropy(model(x), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append(loss.item())
        accelerator.print(f"epoch {epoch}  lr {scheduler.get_last_lr()[0]:.4f}  loss {sum(losses) / len(losses):.4f}")
