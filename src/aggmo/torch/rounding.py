"""Rounding to bfloat16 at random, up with the probability of what is cut off, so that the mean is exact.

The random bits are those of `kernel.c`: halves of the hashes (Murmur's finalizer) of a counter, which starts for every
run of 256 elements where a hash of the step's key, the tensor's role and the run says.
"""

from typing import TypeVar

import torch
from torch import Tensor

Hash = TypeVar("Hash", int, Tensor)

_MASK = 0xFFFFFFFF
_GOLDEN = 0x9E3779B1
_RUN = 256


def step_key(seed: int, step: int) -> int:
    """The 32 bits that a step's random bits depend on."""
    return _mixed(_mixed(_mixed(seed & _MASK) ^ (seed >> 32) & _MASK ^ _GOLDEN) ^ step & _MASK) ^ step >> 32 & _MASK


def to_bfloat16(x: Tensor, key: int, role: int, start: int) -> Tensor:
    """The elements of a float tensor rounded at random.

    Args:
        x: the tensor.
        key: the step's key.
        role: 0 for a parameter, 1 ... for its stored velocities.
        start: the index of the first element in the group's flat range.
    """
    bits = x.float().contiguous().view(torch.int32).long() & _MASK
    infinite_or_nan = bits & 0x7F800000 == 0x7F800000
    nan = infinite_or_nan & (bits & 0x007FFFFF != 0)
    index = torch.arange(start, start + x.numel(), device=x.device).view(x.shape)
    up_or_down = bits + _random16(key, role, index) >> 16
    half = torch.where(infinite_or_nan, bits >> 16 | nan.long() << 6, up_or_down)
    return (half - (half >> 15 << 16)).to(torch.int16).view(torch.bfloat16)  # as a signed number, with its bits kept


def _random16(key: int, role: int, index: Tensor) -> Tensor:
    """Sixteen bits for every index."""
    run, place = index // _RUN, index % _RUN
    start = _mixed(_mixed(_mixed(key ^ role * _GOLDEN & _MASK) ^ run & _MASK) ^ run >> 32)
    word = _mixed(start + place % (_RUN // 2) * _GOLDEN & _MASK)
    return torch.where(place < _RUN // 2, word & 0xFFFF, word >> 16)


def _mixed(h: Hash) -> Hash:
    """Murmur's finalizer on 32 bits, held in 64."""
    h = h ^ h >> 16
    h = h * 0x85EBCA6B & _MASK
    h = h ^ h >> 13
    h = h * 0xC2B2AE35 & _MASK
    return h ^ h >> 16
