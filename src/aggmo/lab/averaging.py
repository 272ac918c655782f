"""NT-ASGD (Merity et al., 2017): SGD whose iterates are averaged once the validation score stops getting better.

After the switch, the model that is evaluated has the plain mean of the iterates after each step since,

    mean_n = mean_(n-1) + (theta_n - mean_(n-1)) / n

and SGD goes on from its own iterate. `torch.optim.ASGD` is no such SGD where the learning rate changes from step to
step: it takes each step with the rate that the group had at the step before, and its mean leaves out the first iterate.
So the steps are those of `torch.optim.SGD`, which reads the rate of its own step, and the mean is
`torch.optim.swa_utils.AveragedModel`.
"""

from collections.abc import Sequence

WINDOW = 5  # Merity et al.'s n


def stalled(scores: Sequence[float], window: int = WINDOW) -> bool:
    """Whether to begin averaging: the newest score is worse than the best of those before, the last `window` left out.

    Scores are lower for better. The newest is not one of those last, as in the published code of NT-ASGD, so that it
    takes window + 2 scores at least.

    >>> stalled([3, 2, 1, 1, 1, 1, 1]), stalled([3, 2, 1, 1, 1, 1, 4]), stalled([3, 2, 1, 1, 1, 4])
    (False, True, False)
    """
    *earlier, newest = scores
    return len(earlier) > window and newest > min(earlier[:-window])
