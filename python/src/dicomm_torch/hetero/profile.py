# SPDX-License-Identifier: BSD-3-Clause
"""Measures layers, for dicomm-plan.

The file is a profile (docs/planner.md, "Files"): seconds of forward pass,
backward pass and update of each layer, by device type, micro-batch and
tensor-parallel degree, and what each layer holds.
"""

import json
import statistics
import time

import torch
import torch.distributed as dist

from .layers import ALONE, Team, build, split

_POINTS = 3  # forward, backward, update


class Profile:
    """Times of layers on the devices of a group, as a trainer runs them.

    layers, loss, group and seed are those of Trainer; optimizer(parameters)
    makes what updates them. micro_batches and degrees are what to measure,
    device is what a cluster file calls the device of this rank: ranks with
    unlike devices give unlike names. Degrees above one are measured in teams
    of neighbouring ranks, with their all-reduces; ranks that are left over
    wait. The last layer's times contain the loss.

    All ranks of the group (the default one, of the backend "dicomm") make it
    and call its methods together, from one thread. All of them compute at the
    same time, so that what they share, such as cores and memory, counts.
    """

    def __init__(self, layers, loss, optimizer, micro_batches=(1,),
                 degrees=(1,), device="host", group=None, seed=0):
        self._group = group = group or dist.group.WORLD
        self._home = getattr(group, "_communicator", None)
        if self._home is None:
            raise ValueError("hetero.Profile: wanted a group of the backend"
                             f" dicomm, not {dist.get_backend(group)}")
        for name, values, most in (("micro_batches", micro_batches, None),
                                   ("degrees", degrees, self._home.size)):
            for value in values:
                if value < 1 or (most and value > most):
                    raise ValueError(
                        f"{name}: {value}: wanted 1 or more" + (
                            f", at most the {most} ranks of the group"
                            if most else ""))
        self._loss, self._device = loss, device
        self._micro_batches = sorted(set(micro_batches))
        self._sequence = None
        self._samples = {}  # (micro-batch, degree, layer): [[f, b, u], ...]
        self._sizes = {}  # (degree, layer): parameters, activations, input
        self._held = {}  # degree: [(layer, its optimizer), ...]
        for degree in sorted(set(degrees)):
            team = self._team(degree)
            if team is not None:
                self._held[degree] = [
                    self._hold(factory, seed, number, team, optimizer)
                    for number, factory in enumerate(layers)]

    def _team(self, degree):
        if degree == 1:
            return ALONE
        if degree > self._home.size:
            return None
        if self._group is not dist.group.WORLD:
            raise NotImplementedError(
                f"degrees: {degree}: teams are of the default group only")
        mine = None
        # All ranks make all groups; see Trainer._make_teams().
        for first in range(0, self._home.size - degree + 1, degree):
            group = dist.new_group(list(range(first, first + degree)))
            if first <= self._home.rank < first + degree:
                mine = Team(degree, self._home.rank - first, group)
        return mine

    def _hold(self, factory, seed, number, team, optimizer):
        layer = split(build(factory, seed, number), team).to(self._home.place)
        parameters = list(layer.parameters())
        return layer, optimizer(parameters) if parameters else None

    # -- measuring -----------------------------------------------------------

    def measure(self, inputs, targets, repeats=5):
        """Run all layers so many times with micro-batches out of a batch, and
        once more before, which does not count. inputs and targets are like
        those of Trainer.step(), of at least the largest micro-batch. May be
        called again, between steps of a trainer, say: results add up."""
        most = self._micro_batches[-1]
        for what, tensor in ("inputs", inputs), ("targets", targets):
            if len(tensor) < most:
                raise ValueError(f"{what}: wanted {most} sequences, not"
                                 f" {len(tensor)}")
        self._sequence = inputs.shape[1]
        place = self._home.place
        for size in self._micro_batches:
            for degree in sorted(self._degrees()):
                for repeat in range(repeats + 1):
                    dist.barrier(group=self._group)
                    if degree in self._held:
                        self._run(degree, size, inputs[:size].to(place),
                                  targets[:size].to(place), repeat)

    def _degrees(self):
        """Of all ranks: a rank that is left over waits with the others."""
        every = [None] * self._home.size
        dist.all_gather_object(every, list(self._held), group=self._group)
        return {degree for held in every for degree in held}

    def _now(self):
        if not self._home.on_host:
            getattr(torch, self._home.kind).synchronize()
        return time.perf_counter()

    def _run(self, degree, size, x, targets, repeat):
        layers = self._held[degree]
        for number, (layer, optimizer) in enumerate(layers):
            last = number == len(layers) - 1
            x = x.detach()
            if x.is_floating_point():
                x.requires_grad_()
            saved = _Saved(layer)
            began = self._now()
            if repeat:
                y = layer(x)
                end = self._loss(y, targets) if last else y
            else:
                with saved:
                    y = layer(x)
                    end = self._loss(y, targets) if last else y
            middle = self._now()
            # Any gradient will do: what it costs does not depend on it.
            grad = torch.ones_like(end)
            before = self._now()
            end.backward(grad)
            after = self._now()
            if optimizer:
                optimizer.step()
            done = self._now()
            if repeat:
                self._samples.setdefault((size, degree, number), []).append(
                    [middle - began, after - before, done - after])
            else:
                self._sizes[degree, number] = [
                    sum(p.numel() for p in layer.parameters()),
                    saved.bytes / size,
                    x.nbytes / size if x.is_floating_point() else 0]
            if optimizer:
                optimizer.zero_grad(set_to_none=False)
            x = y

    # -- results -------------------------------------------------------------

    def table(self):
        """What dicomm-plan reads: medians of all repeats of all ranks with
        the same name of their device. The same at each rank."""
        if not self._samples and self._sequence is None:
            raise ValueError("hetero.Profile: nothing was measured yet")
        every = [None] * self._home.size
        dist.all_gather_object(
            every, (self._device, self._samples, self._sizes),
            group=self._group)
        devices, layers = {}, {}
        for name in sorted({device for device, _, _ in every}):
            pooled = {}
            for device, samples, _ in every:
                for key, values in samples.items():
                    if device == name:
                        pooled.setdefault(key, []).extend(values)
            for (size, degree, number), values in sorted(pooled.items()):
                devices.setdefault(name, {}).setdefault(
                    str(size), {}).setdefault(str(degree), {})[
                        str(number)] = [
                            statistics.median(value[i] for value in values)
                            for i in range(_POINTS)]
        for _, _, sizes in every:
            for (degree, number), (params, active, into) in sizes.items():
                known = layers.setdefault(str(degree), {}).setdefault(
                    str(number), {"params_floats": 0, "act_mem_bytes": 0,
                                  "act_input_bytes": 0})
                # Of a team with uneven parts, what the fullest one holds.
                for key, value in zip(known, (params, active, into)):
                    known[key] = max(known[key], value)
        return {"remark": f"measured by {self._home.size} ranks at once,"
                          f" torch {torch.__version__}",
                "sequence": self._sequence, "devices": devices,
                "layers": layers}

    def save(self, file):
        """Write table(); rank 0 does, all call it."""
        table = self.table()
        if self._home.rank == 0:
            with open(file, "w") as out:
                json.dump(table, out, indent=1)
                out.write("\n")


class _Saved:
    """Counts the bytes that a forward pass keeps for the backward pass, each
    memory once, and without parameters."""

    def __init__(self, layer):
        self.bytes = 0
        self._seen = {p.untyped_storage().data_ptr()
                      for p in layer.parameters()}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(
            self._keep, lambda tensor: tensor)

    def _keep(self, tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self.bytes += storage.nbytes()
        return tensor

    def __enter__(self):
        self._hooks.__enter__()

    def __exit__(self, *of):
        return self._hooks.__exit__(*of)
