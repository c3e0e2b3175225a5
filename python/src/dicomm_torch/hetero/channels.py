# SPDX-License-Identifier: BSD-3-Clause
"""Activations and their gradients, from stage to stage.

Between two device groups of a pipeline there are two channels: activations one
way, their gradients the other. If groups hold several stages, the last group
has such channels to the first one, too. Both sides hold the tensor whole on
each rank, whatever their degrees; the library's redistribution finds the way.
"""

import torch

from .redistribution import Moved, Redistribution
from .schedule import BACKWARD, FORWARD
from .streams import Lane


class Channel:
    """One side of a boundary in one direction, for the ranks of a group.

    A receiver takes what comes in the order in which it is sent; while it
    computes with one micro-batch the next one arrives. A sender goes on while
    its micro-batch leaves; it waits if the one before has not left. With
    asynchronous=False nothing is under way while anything is computed.
    """

    def __init__(self, lane, redistribution, pipeline, shape, dtype):
        self._lane = lane
        self._redistribution = redistribution
        self._pipeline = pipeline
        self._shape = shape
        self._dtype = dtype
        self._room = None

    def _title(self, message):
        sender, receiver, number = message
        return (f"pipeline {self._pipeline}, stage {sender} to {receiver},"
                f" micro-batch {number}")

    def put(self, message, tensor):
        """Begin to send a message: (stage that sends, stage that receives,
        micro-batch). Nobody may write the tensor until flush(), or the next
        put() has returned."""
        self._lane.run(self._title(message), self._redistribution,
                       [tensor.contiguous()], [None])

    def expect(self, message):
        """Begin to receive a message."""
        self._room = torch.empty(self._shape, dtype=self._dtype,
                                 device=self._lane.communicator.place)
        self._lane.run(self._title(message), self._redistribution,
                       [None], [self._room])

    def take(self):
        """Wait for what was expected, and return it."""
        self._lane.wait()
        room, self._room = self._room, None
        return room

    def flush(self):
        """Wait until what was put has left, or what was expected is here."""
        self._lane.wait()


class Boundaries:
    """All channels of a plan. Made by all ranks of a group together.

    communicator(name) makes a communicator of all ranks; shape is that of an
    activation of one sequence.
    """

    def __init__(self, plan, rank, communicator, shape, dtype, way):
        self._communicators = {}
        self._lanes = {}
        self._plans = []
        self._channels = {}  # by direction, and by whether it sends
        for p, pipeline in enumerate(plan.pipelines):
            whole = (pipeline.micro_batch, *shape)
            # The stages of all chunks that follow those of a group are those
            # of one group.
            for s in range(min(len(pipeline.stages) - 1, pipeline.groups)):
                # So a rank uses each communicator for one end of one boundary
                # alone. In a circle of an odd number the last is a third one.
                circle = s == pipeline.groups - 1
                which = 2 if circle and not s % 2 else s % 2
                for direction in FORWARD, BACKWARD:
                    ends = [s, s + 1]
                    if direction == BACKWARD:
                        ends.reverse()
                    name = f"{direction}{which}"
                    if name not in self._communicators:
                        self._communicators[name] = communicator(name)
                    title = f"pipeline {p}, stage {ends[0]} to {ends[1]}"
                    self._open(name, title, p, rank,
                               [pipeline.stages[end].ranks for end in ends],
                               direction, whole, dtype, way)

    def _open(self, name, title, pipeline, rank, ends, direction, shape,
              dtype, way):
        lo, hi = [0] * len(shape), list(shape)
        source, target = ([(r, 0, lo, hi) for r in ranks] for ranks in ends)
        made = Redistribution(
            self._communicators[name],
            [Moved(title, dtype, shape, source, target)], way)
        self._plans.append(made)
        for sends, ranks in zip((True, False), ends):
            if rank in ranks:
                lane = self._lanes[name] = Lane(self._communicators[name])
                self._channels[direction, sends] = Channel(
                    lane, made, pipeline, shape, dtype)

    def channel(self, direction, sends):
        """The channel of this rank, or None if its group has none."""
        return self._channels.get((direction, sends))

    @property
    def communicators(self):
        return list(self._communicators.values())

    def explain(self):
        return "".join(plan.explain() for plan in self._plans)

    def close(self):
        for lane in self._lanes.values():
            lane.close()
        for plan in self._plans:
            plan.close()
        for communicator in self._communicators.values():
            communicator.close()
