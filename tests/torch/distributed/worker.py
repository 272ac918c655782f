"""One of two processes: `python worker.py RANK DIRECTORY CASE...` runs the named cases and leaves a file about each.

Every case has a process group of its own. One that fails closes it, which ends the other process's wait for it, and the
next case starts afresh.
"""

import sys
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

TIMEOUT = timedelta(seconds=30)


def main(rank: int, directory: Path, names: list[str]) -> None:
    _make_warnings_errors()
    import torch
    from cases import CASES  # beside this script

    torch.set_num_threads(1)
    for number, name in enumerate(names):
        outcome = _outcome(CASES[name], rank, directory / f"{number}")
        unfinished = directory / f"{name}.{rank}.unfinished"
        unfinished.write_text(outcome)
        unfinished.rename(directory / f"{name}.{rank}")


def _outcome(case: Callable[[Path], None], rank: int, directory: Path) -> str:
    """Nothing if the case passes on this rank and the other one arrives at its end too, else the traceback."""
    import torch.distributed as dist

    directory.mkdir(exist_ok=True)
    try:
        dist.init_process_group(
            "cpu:gloo", init_method=f"file://{directory}/rendezvous", rank=rank, world_size=2, timeout=TIMEOUT
        )
        case(directory)
        if dist.is_initialized():  # a case may go on alone
            dist.barrier()
    except BaseException:
        return traceback.format_exc()
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return ""


def _make_warnings_errors() -> None:
    """As in pytest, but for what torch says about its own code."""
    warnings.simplefilter("error")
    torch_says = [
        r"`torch\.jit\.\w+` is deprecated",  # importing torch.distributed.optim
        r"FSDP\.state_dict_type\(\) and FSDP\.set_state_dict_type\(\) are being deprecated",
        r"Please use DTensor instead and we are deprecating ShardedTensor",  # FSDP1
        r"torch\.distributed is disabled, unavailable or uninitialized",  # DCP with no_dist=True
        r"`_get_pg_default_device` will be deprecated",  # FSDP1
    ]
    for message in torch_says:
        warnings.filterwarnings("ignore", message)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
