"""The learning rate over time: a linear warm-up, then half a cosine down to the smallest rate.

At the first steps Adam's running means are built on a few gradients only, so steps start small;
towards the end a small rate lets the parameters settle. The rate is a function of the step alone,
so that a resumed run needs nothing to remember.

Source: Loshchilov and Hutter 2017 (cosine); Goyal et al. 2017, section 2.2 (warm-up).
"""

import math


def cosine_schedule(
    step: int, total_steps: int, peak_lr: float, warmup_steps: int = 0, min_lr: float = 0.0
) -> float:
    """Return the learning rate of one step.

    Warm-up:    peak_lr * (step + 1) / (warmup_steps + 1)                    for step < warmup_steps
    Afterwards: min_lr + (peak_lr - min_lr) * (1 + cos(pi * progress)) / 2,
    where progress runs from 0 at the end of the warm-up to 1 at total_steps - 1, and stays there.

    Args:
        step: the step, counted from 0.
        total_steps: steps of the whole run, at least 1.
        peak_lr: the highest rate, reached at step `warmup_steps`.
        warmup_steps: steps of the rise, from 0 to total_steps - 1.
        min_lr: the rate of the last step, from 0 to peak_lr.

    Returns:
        The rate to use in this step; never 0 during the warm-up, so that no step is wasted.

    Raises:
        ValueError: if a number is out of the range given above.
    """
    if step < 0 or total_steps < 1:
        raise ValueError(
            f"step {step} of {total_steps}: steps count from 0, and a run has at least 1"
        )
    if not 0 <= warmup_steps < total_steps:
        raise ValueError(
            f"warmup_steps is {warmup_steps}: give a number from 0 to {total_steps - 1} "
            f"for a run of {total_steps} steps"
        )
    if not 0 <= min_lr <= peak_lr:
        raise ValueError(f"min_lr is {min_lr}: give a rate from 0 to peak_lr, {peak_lr}")
    if step < warmup_steps:
        return peak_lr * (step + 1) / (warmup_steps + 1)
    steps_down = total_steps - 1 - warmup_steps
    progress = min(1.0, (step - warmup_steps) / steps_down) if steps_down else 0.0
    return min_lr + (peak_lr - min_lr) * 0.5 * (1 + math.cos(math.pi * progress))
