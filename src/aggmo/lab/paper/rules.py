"""How a verdict is computed: from checks, each of which is that of one number of the paper or of one comparison.

A comparison of two settings over seeds holds if the difference of their means is larger than two standard errors, fails
if it is so in the other direction, and cannot be told in between. So a verdict is "not at this scale" exactly when
there are no numbers, or none that stand out of the noise.
"""

import math
from collections.abc import Sequence

from aggmo.lab.paper.result import Check as Check
from aggmo.lab.paper.result import Outcome, Verdict
from aggmo.lab.selection import Score

ERRORS = 2.0  # standard errors that a difference has to be larger than

HOW = (
    "Reproduced if all parts hold, partly if some do, not reproduced if none does; not at this scale if none can be"
    " told, for lack of numbers or because the differences are within two standard errors."
)
STANDING_IN = "On stand-ins for the paper's data, a part that does not hold counts as one that cannot be told."


def outcome(checks: Sequence[Check]) -> Outcome:
    """What a claim comes to whose parts these are.

    >>> yes, no, unknown = Check("a", True), Check("b", False), Check("c", None)
    >>> outcome([yes, yes]), outcome([yes, no]), outcome([no, unknown]), outcome([unknown])
    ('reproduced', 'partly', 'not reproduced', 'not at this scale')
    """
    holds = [check.holds for check in checks]
    if any(holds):
        return "reproduced" if all(holds) else "partly"
    return "not reproduced" if False in holds else "not at this scale"


def verdict(checks: Sequence[Check], conclusive: bool = True) -> Verdict:
    """The verdict with its rule, the parts that it is about, and how many of them hold.

    Args:
        checks: the parts.
        conclusive: False where a part that does not hold tells nothing, as on data that stand in for the paper's.

    >>> verdict([Check("K = 4 is stable", False, "loss nan"), Check("K = 5 is not", True)]).reason
    'Of 2 parts 1 holds, 1 does not, 0 cannot be told.'
    """
    if not conclusive:
        checks = [check._replace(holds=check.holds or None) for check in checks]
    yes, no, unknown = (sum(check.holds is answer for check in checks) for answer in (True, False, None))
    reason = (
        f"Of {len(checks)} parts {yes} hold{'s' * (yes == 1)}, {no} do{'es' * (no == 1)} not, {unknown} cannot be told."
    )
    how = HOW if conclusive else f"{HOW} {STANDING_IN}"
    return Verdict(outcome(checks), how, reason, tuple(checks))


def less(claim: str, one: Score | None, other: Score | None) -> Check:
    """That the first is less than the second; a setting of which a larger share diverged is never less.

    >>> a, b = Score({}, (1.0, 1.1), 0), Score({}, (2.0, 2.1), 0)
    >>> less("a < b", a, b).holds, less("b < a", b, a).holds, less("a < a", a, a).holds
    (True, False, None)
    """
    if one is None or other is None or not (one.n and other.n):
        return Check(claim, None, "no such trials")
    numbers = f"{shown(one)} and {shown(other)}"
    shares = one.diverged / one.n, other.diverged / other.n
    if shares[0] != shares[1]:
        return Check(claim, shares[0] < shares[1], numbers)
    error = math.hypot(
        *(score.sd / math.sqrt(len(score.values)) if score.values else math.nan for score in (one, other))
    )
    difference = other.mean - one.mean
    if not abs(difference) > ERRORS * error:  # nan, too
        return Check(claim, None, numbers)
    return Check(claim, bool(difference > 0.0), numbers)


def more(claim: str, one: Score | None, other: Score | None) -> Check:
    """That the first is more than the second; a setting of which a larger share diverged is never more.

    >>> more("b > a", Score({}, (2.0, 2.1), 0), Score({}, (1.0, 1.1), 0)).holds
    True
    """
    turned = [
        score and Score(score.settings, tuple(-x for x in score.values), score.diverged) for score in (one, other)
    ]
    check = less(claim, *turned)
    return check if one is None or other is None else check._replace(numbers=f"{shown(one)} and {shown(other)}")


def near(claim: str, found: Sequence[float], expected: Sequence[float], relative: float = 0.0) -> Check:
    """That numbers are the expected ones, all of them, to a relative tolerance; with a nan it cannot be told.

    >>> near("pi", [3.1, 3.14], [math.pi, math.pi], relative=0.02).holds
    True
    """
    numbers = f"{_row(found)}; expected {_row(expected)}"
    if any(map(math.isnan, found)):
        return Check(claim, None, numbers)
    pairs = list(zip(found, expected, strict=True))
    same = all(one == other or bool(abs(one - other) <= relative * abs(other)) for one, other in pairs)
    return Check(claim, same, numbers)


def below(claim: str, found: float, bound: float) -> Check:
    """That a number is at most a bound; nan cannot be told.

    >>> below("to rounding", 1e-14, 1e-12).holds, below("to rounding", 1e-3, 1e-12).holds
    (True, False)
    """
    return Check(claim, None if math.isnan(found) else bool(found <= bound), f"{found:.2g}, at most {bound:.2g}")


def shown(score: Score) -> str:
    """A score in a sentence.

    >>> shown(Score({}, (1.0, 3.0), 1))
    '2 ± 1.41 (1 of 3 diverged)'
    """
    text = f"{score.mean:.4g}" + ("" if math.isnan(score.sd) else f" ± {score.sd:.3g}")
    return text + (f" ({score.diverged} of {score.n} diverged)" if score.diverged else "")


def _row(values: Sequence[float]) -> str:
    """Numbers beside each other."""
    return " / ".join("never" if math.isinf(value) else f"{value:.4g}" for value in values)
