# SPDX-License-Identifier: BSD-3-Clause
"""In which order a device group computes the passes of its micro-batches.

A group holds one chunk of layers, or several: then chunk c of group g is stage
g + c * groups of the pipeline.
"""

FORWARD, BACKWARD = "forward", "backward"
STEPS = {FORWARD: 1, BACKWARD: -1}  # to the stage that gets what a pass makes


def passes(schedule, group, groups, micro_batches, ahead=0, chunks=1):
    """A list of (FORWARD or BACKWARD, chunk, micro-batch).

    1F1B holds so many micro-batches as groups come after this one, and its
    own; with ahead, as many more for each group after it. Then a message may
    take as long as a stage computes and hold up nobody, at the cost of the
    memory of those micro-batches. GPipe holds all.

    Interleaved is Megatron-LM's 1F1B for groups of several chunks (Narayanan
    et al. 2021, section 2.2): a chunk computes as many micro-batches as there
    are groups, and then the next chunk does. The micro-batches are a multiple
    of the groups. With one chunk it is 1F1B.
    """
    if schedule == "interleaved" and chunks > 1:
        return _interleaved(group, groups, micro_batches, chunks)
    if schedule == "gpipe":
        depth = micro_batches
    elif schedule in ("1f1b", "interleaved"):
        after = groups - group - 1
        depth = min(micro_batches, 1 + after * (1 + ahead))
    else:
        raise ValueError(
            f"schedule {schedule!r}: wanted 1f1b, gpipe or interleaved")
    units = [(0, number) for number in range(micro_batches)]
    return _one_by_one(units, units, depth)


def _interleaved(group, groups, micro_batches, chunks):
    units = [(unit // groups % chunks,
              unit // (groups * chunks) * groups + unit % groups)
             for unit in range(micro_batches * chunks)]
    before = 2 * (groups - group - 1) + (chunks - 1) * groups
    if micro_batches == groups:
        before = len(units)
    # The unit before the first backward pass is the first of the pairs.
    return _one_by_one(
        units, [(chunks - 1 - chunk, number) for chunk, number in units],
        min(len(units), before + 1))


def _one_by_one(forward, backward, depth):
    """So many forward passes, and then a backward and a forward one in
    turns."""
    order = [(FORWARD, *unit) for unit in forward[:depth]]
    for at, unit in enumerate(backward):
        order.append((BACKWARD, *unit))
        if depth + at < len(forward):
            order.append((FORWARD, *forward[depth + at]))
    return order
