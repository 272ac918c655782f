"""Runs an example as a user does, then compares what it trained with an oracle: `python checks.py NAME`.

Each check is for a process of its own, and takes what the example imports from it.
"""

import runpy
import sys
import warnings
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from aggmo import AggMo, Damping

THIRD_PARTIES_SAY = [
    r"`torch\.jit\.script_method` is deprecated",  # importing Inductor
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # Lightning of what it calls in torch
]
EXAMPLES = Path(__file__).parents[2] / "examples"


def huggingface(example):
    """Oracle: a plain loop over the same batches, with the cosine schedule and the Trainer's two groups written out."""
    model, rows = example["make_model"](), example["data"]()
    named = list(model.named_parameters())
    plain = [p for name, p in named if name.endswith("bias") or "layernorm" in name]
    decayed = [p for name, p in named if not any(p is other for other in plain)]
    groups = [{"params": decayed, "weight_decay": 0.001}, {"params": plain, "weight_decay": 0.0}]
    optimizer = AggMo(groups, **example["OPTIONS"])
    batches = [rows[i : i + example["BATCH"]] for i in range(0, len(rows), example["BATCH"])] * example["EPOCHS"]
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(batches))
    losses = []
    for batch in batches:
        loss = model(**{key: torch.stack([row[key] for row in batch]) for key in ("pixel_values", "labels")}).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    same(example["trainer"].model.parameters(), model.parameters(), tolerance=1e-4)
    assert isinstance(example["trainer"].optimizer.optimizer, AggMo)
    assert sum(losses[-20:]) / 20 < 1.0 < losses[0]


def accelerated(example):
    """Oracle: a plain loop over batches as large as those that are accumulated."""
    model = example["make_model"]()
    optimizer = AggMo(model.parameters(), lr=0.05, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, example["EPOCHS"] * 8)
    for _ in range(example["EPOCHS"]):
        for x, labels in torch.utils.data.DataLoader(example["data"](), batch_size=16 * example["ACCUMULATE"]):
            optimizer.zero_grad()
            cross_entropy(model(x), labels).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
    same(example["model"].parameters(), model.parameters(), tolerance=1e-5)


def lightning_resume(example):
    """Oracle: the run that is not interrupted, bit for bit, its velocities and the schedule too."""
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        trainer = example["train"](Path(directory), example["EPOCHS"])
    assert trainer.global_step == example["trainer"].global_step == 6 * 8
    same(example["trainer"].model.parameters(), trainer.model.parameters())
    one, other = (t.optimizers[0].state_dict() for t in (example["trainer"], trainer))
    assert one["param_groups"] == other["param_groups"]
    for key, state in other["state"].items():
        same(one["state"][key].values(), state.values())


def ddp(example):
    """Oracle: one process that has the whole batches."""
    model = example["make_model"]()
    example["train"](model)
    assert example["processes"] == 2
    same(example["model"].parameters(), model.parameters(), tolerance=1e-5)


def fsdp2(example):
    """Oracle: one process that has the whole batches; each of two holds a half of two velocities."""
    model = example["make_model"]()
    optimizer = example["train"](model)
    assert example["processes"] == 2
    assert example["held"] == sum(p.numel() for p in model.parameters())
    if example["rank"]:
        return  # the whole tensors are on the first process
    same(example["weights"].values(), model.state_dict().values(), tolerance=1e-5)
    velocities = [v for state in optimizer.state.values() for v in state.values()]
    same([v for state in example["state"]["state"].values() for v in state.values()], velocities, tolerance=1e-5)


def compiled(example):
    """Oracle: the same without torch.compile; one graph for the model, one for the step, whatever the learning rate."""
    model, loss = example["train"](compiled=False)
    assert example["graphs"] == 2
    assert abs(example["loss"] - loss) < 1e-4
    same(example["model"].parameters(), model.parameters(), tolerance=1e-4)


def from_sgd(example):
    """Oracle: the momentum buffer itself; under its own momentum AggMo is the SGD that goes on."""
    optimizer, sgd, model = example["optimizer"], example["sgd"], example["model"]
    assert optimizer.param_groups[0]["lr"] == 0.0 == example["scheduler"].get_last_lr()[0]
    for take_over in (example["take_over"], lambda sgd, _: AggMo.from_sgd(sgd, Damping.classical(0.9))):
        before = [p.detach().clone() for p in model.parameters()]
        scheduler = torch.optim.lr_scheduler.ConstantLR(sgd, 1.0)
        optimizer = take_over(sgd, scheduler)
        for p in model.parameters():
            p.grad = 0.1 * sgd.state[p]["momentum_buffer"]  # what has made such a buffer, were it always the same
        optimizer.step()
        steps = [p.detach() - start for p, start in zip(model.parameters(), before, strict=True)]
        lr = sgd.param_groups[0]["lr"]
        same(steps, [-lr * sgd.state[p]["momentum_buffer"] for p in model.parameters()], tolerance=1e-6)


def same(tensors, others, tolerance=0.0):
    """Equality, bit for bit unless there is a tolerance."""
    for tensor, other in zip(tensors, others, strict=True):
        torch.testing.assert_close(tensor, other, rtol=tolerance, atol=tolerance)


if __name__ == "__main__":
    warnings.simplefilter("error")
    for message in THIRD_PARTIES_SAY:
        warnings.filterwarnings("ignore", message)
    name = sys.argv[1]
    globals()[name](runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__"))
