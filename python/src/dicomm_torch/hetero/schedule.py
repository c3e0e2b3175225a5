# SPDX-License-Identifier: BSD-3-Clause
"""In which order a stage computes the passes of its micro-batches."""

FORWARD, BACKWARD = "forward", "backward"


def passes(schedule, stage, stages, micro_batches, ahead=0):
    """A list of (FORWARD or BACKWARD, micro-batch).

    1F1B holds so many micro-batches as stages come after this one, and its
    own; with ahead, as many more for each stage after it. Then a message may
    take as long as a stage computes and hold up nobody, at the cost of the
    memory of those micro-batches. GPipe holds all.
    """
    if schedule == "gpipe":
        depth = micro_batches
    elif schedule == "1f1b":
        after = stages - stage - 1
        depth = min(micro_batches, 1 + after * (1 + ahead))
    else:
        raise ValueError(f"schedule {schedule!r}: wanted 1f1b or gpipe")
    order = [(FORWARD, i) for i in range(depth)]
    for i in range(micro_batches):
        order.append((BACKWARD, i))
        if depth + i < micro_batches:
            order.append((FORWARD, depth + i))
    return order
