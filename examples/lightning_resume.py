"""AggMo in Lightning: `configure_optimizers` with a schedule, a checkpoint, and the run resumed from it."""

import tempfile
from pathlib import Path

import torch
from lightning import LightningModule, Trainer, seed_everything
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler
from torch.utils.data import DataLoader, TensorDataset

from aggmo import AggMo

EPOCHS = 6


class Classifier(LightningModule):
    """A small network."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 10))

    def training_step(self, batch: list[Tensor]) -> Tensor:
        x, labels = batch
        loss = cross_entropy(self.layers(x), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> tuple[list[Optimizer], list[LRScheduler]]:
        optimizer = AggMo(self.parameters(), lr=0.05, betas=(0, 0.9, 0.99), weight_decay=1e-4)
        return [optimizer], [CosineAnnealingLR(optimizer, EPOCHS)]


def data() -> DataLoader[tuple[Tensor, ...]]:
    """Ten classes, each a cloud around a point."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (512,), generator=generator)
    points = torch.randn(10, 20, generator=generator)
    return DataLoader(TensorDataset(points[labels] + torch.randn(512, 20, generator=generator), labels), batch_size=64)


def train(directory: Path, epochs: int, checkpoint: Path | None = None) -> Trainer:
    """Train to the end of that epoch, from the checkpoint if there is one, and leave another."""
    seed_everything(0, verbose=False)
    trainer = Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), data(), ckpt_path=checkpoint, weights_only=True)
    trainer.save_checkpoint(directory / f"{epochs}.ckpt", weights_only=False)
    return trainer


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        for epochs, checkpoint in ((EPOCHS // 2, None), (EPOCHS, Path(temporary, f"{EPOCHS // 2}.ckpt"))):
            trainer = train(Path(temporary), epochs, checkpoint)
            print(f"epochs {trainer.current_epoch}  loss {trainer.callback_metrics['loss']:.6f}")
