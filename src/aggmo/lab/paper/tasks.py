"""The six tasks of section 5: `aggmo.lab.data`, `aggmo.lab.models` and the numbers of `aggmo.lab.paper.settings`."""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from aggmo.lab.data import cifar10, cifar100, mnist, ptb
from aggmo.lab.data.description import Description
from aggmo.lab.data.store import Store
from aggmo.lab.data.text import TextBatches, Window
from aggmo.lab.models.autoencoder import Autoencoder
from aggmo.lab.models.awd_lstm import (
    AWDLSTM,
    Reader,
    activation_regularisation,
    temporal_activation_regularisation,
)
from aggmo.lab.models.cnn5 import CNN5
from aggmo.lab.models.resnet import ResNet
from aggmo.lab.paper.settings import PATIENCE, SCALES, SETTINGS, ImageSettings, TextSettings
from aggmo.lab.schedule import Constant, Milestones, Plateau
from aggmo.lab.task import Metric, Task

IMAGES = {"mnist": mnist.load, "cifar10": cifar10.load, "cifar100": cifar100.load}
MODELS: dict[str, type[nn.Module]] = {"autoencoder": Autoencoder, "cnn5": CNN5, "resnet": ResNet}

Batch = tuple[Tensor, Tensor]  # images and labels


def paper_task(name: str, scale: str, store: Store) -> Task:
    """One of the paper's tasks.

    Args:
        name: a key of `aggmo.lab.paper.settings.SETTINGS`.
        scale: "paper", which insists on the whole data set, "small" or "quick".
        store: where the data come from.

    Raises:
        ValueError: no such task or scale, or data that are too few for the scale.
        DataError: the data cannot be had or used, or are not the whole data set that scale "paper" needs.

    >>> task = paper_task("autoencoder", "quick", Store(embedded=True))
    >>> task.name, task.select.name
    ('autoencoder (quick)', 'mse')
    """
    if name not in SETTINGS:
        raise ValueError(f"name={name!r}: must be one of {', '.join(SETTINGS)}")
    if scale not in SCALES:
        raise ValueError(f"scale={scale!r}: must be one of {', '.join(SCALES)}")
    settings = SETTINGS[name][scale]
    if isinstance(settings, TextSettings):
        return _language(name, scale, settings, store)
    return _images(name, scale, settings, store)


def cross_entropy_of_pixels(logits: Tensor, batch: Batch) -> Tensor:
    """The loss of the autoencoder: the mean over images and pixels, as the paper's learning rates suppose.

    >>> cross_entropy_of_pixels(torch.zeros(2, 3), (torch.ones(2, 1, 1, 3), torch.zeros(2)))  # ln 2
    tensor(0.6931)
    """
    return functional.binary_cross_entropy_with_logits(logits, batch[0].flatten(1))


def squared_error(logits: Tensor, batch: Batch) -> Tensor:
    """What the paper's tables call MSE: the sum over pixels of the mean over images of the squared difference.

    >>> squared_error(torch.zeros(2, 3), (torch.ones(2, 1, 1, 3), torch.zeros(2)))  # 3 pixels, each off by 1/2
    tensor(0.7500)
    """
    difference = torch.sigmoid(logits).sub_(batch[0].flatten(1)).flatten()
    return torch.dot(difference, difference) / len(logits)


def cross_entropy(logits: Tensor, batch: Batch) -> Tensor:
    """The loss of the classification tasks.

    >>> cross_entropy(torch.zeros(5, 2), (torch.zeros(5), torch.ones(5, dtype=torch.long)))  # ln 2
    tensor(0.6931)
    """
    return functional.cross_entropy(logits, batch[1])


def accuracy(logits: Tensor, batch: Batch) -> Tensor:
    """Correct classifications in percent.

    >>> accuracy(torch.eye(4), (torch.zeros(4), torch.tensor([0, 0, 2, 0])))
    tensor(50.)
    """
    return 100.0 * (logits.argmax(1) == batch[1]).float().mean()


class Reading(NamedTuple):
    """What the loss and the metric of the language model are made of.

    Attributes:
        nll: the negative log-likelihood of a word.
        penalty: both activation regularisers; 0 in evaluation.
    """

    nll: Tensor
    penalty: Tensor


def _images(name: str, scale: str, settings: ImageSettings, store: Store) -> Task:
    """A task on images: the autoencoder, or a classification."""
    images = IMAGES[settings.data](store)
    reconstruct = settings.model == "autoencoder"
    return Task(
        name=f"{name} ({scale})",
        description=_checked(images.description, scale),
        data=images.divide(
            validation=settings.validation,
            examples=settings.examples,
            tested=settings.tested,
            padding=settings.padding,
        ),
        model=partial(MODELS[settings.model], **settings.sizes),
        loss=cross_entropy_of_pixels if reconstruct else cross_entropy,
        metrics=(Metric("mse", squared_error) if reconstruct else Metric("accuracy", accuracy, "max"),),
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        schedule=Milestones(settings.milestones, 0.1),
        weight_decay=settings.weight_decay,
        patience=PATIENCE,
    )


def _language(name: str, scale: str, settings: TextSettings, store: Store) -> Task:
    """The language model."""
    text = ptb.load(store)
    corpus = text.encode(vocabulary=settings.vocabulary, trained=settings.trained, evaluated=settings.evaluated)
    reader = Reader()

    def read(model: nn.Module, window: Window) -> Reading:
        outputs = reader(model, window)
        nll = functional.cross_entropy(outputs.logits.flatten(0, 1), window.targets.flatten())
        if not model.training:
            return Reading(nll, torch.zeros(()))
        ar = activation_regularisation(outputs.dropped, settings.activation)
        return Reading(nll, ar + temporal_activation_regularisation(outputs.raw, settings.temporal))

    by_optimizer: dict[str, dict[str, Any]] = {optimizer: {"schedule": Constant()} for optimizer in settings.constant}
    for optimizer, clip in settings.clip.items():
        by_optimizer.setdefault(optimizer, {})["clip"] = clip
    return Task(
        name=f"{name} ({scale})",
        description=_checked(text.description, scale),
        data=TextBatches(corpus, settings.length, settings.columns),
        model=partial(AWDLSTM, vocabulary=len(corpus.words), **settings.sizes),
        forward=read,
        loss=lambda reading, _: reading.nll + reading.penalty,
        metrics=(Metric("perplexity", lambda reading, _: reading.nll, transform=torch.exp),),
        size=lambda window: window.words.numel(),
        lr_factor=lambda window: window.factor,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        schedule=Plateau(settings.plateau, settings.decay),
        weight_decay=settings.weight_decay,
        patience=PATIENCE,
        by_optimizer=by_optimizer,
    )


def _checked(description: Description, scale: str) -> str:
    """The description of the data, which have to be complete at scale paper."""
    if scale == "paper":
        description.require_complete("scale paper")
    return str(description)
