"""AggMo in the Trainer of Hugging Face transformers, by `optimizer_cls_and_kwargs`; the Trainer makes the groups.

A vision transformer of one layer, made from a configuration, learns handwritten digits of 8 x 8.
"""

import tempfile

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

from aggmo import AggMo

OPTIONS = {"lr": 0.03, "betas": (0, 0.9, 0.99)}  # this learning rate counts, not that of the TrainingArguments
EPOCHS = 8
BATCH = 32


def data() -> list[dict[str, Tensor]]:
    """The first of the digits."""
    digits = load_digits()
    images, labels = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None], torch.tensor(digits.target)
    return [{"pixel_values": x, "labels": y} for x, y in zip(images[:640], labels[:640], strict=True)]


def make_model() -> ViTForImageClassification:
    """The same at every call."""
    torch.manual_seed(0)
    config = ViTConfig(  # type: ignore[call-arg]  # which takes more than it declares
        image_size=8,
        patch_size=2,
        num_channels=1,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=10,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,
    )
    return ViTForImageClassification(config)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            directory,
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=BATCH,
            weight_decay=0.001,
            lr_scheduler_type="cosine",
            train_sampling_strategy="sequential",
            logging_strategy="epoch",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(make_model(), arguments, train_dataset=data(), optimizer_cls_and_kwargs=(AggMo, OPTIONS))
        print(f"mean training loss {trainer.train().training_loss:.4f}")
