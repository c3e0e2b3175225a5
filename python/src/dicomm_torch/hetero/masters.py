# SPDX-License-Identifier: BSD-3-Clause
"""Weights of 32 bits beside layers that compute in 16."""

import torch
from torch import nn


class Masters:
    """What an optimizer updates in place of the parameters of some layers.

    The layers get the type `compute`; their parameters that train have a
    master each, of the type that they had, whose gradient adds up in that
    type, too. refresh() gives the layers what the masters are now.
    """

    def __init__(self, layers, compute):
        self._pairs = []
        self.named = {}
        for name, parameter in layers.named_parameters():
            if not parameter.is_floating_point():
                continue
            whole = parameter.detach()
            parameter.data = whole.to(compute)
            if not parameter.requires_grad:
                continue
            master = nn.Parameter(whole.clone())
            splits = getattr(parameter, "dicomm_splits", ())
            if splits:
                master.dicomm_splits = splits
            self.named[name] = master
            self._pairs.append((master, parameter))
            parameter.register_post_accumulate_grad_hook(
                lambda parameter, master=master: self._take(
                    parameter, master))

    @staticmethod
    def _take(parameter, master):
        master.grad.add_(parameter.grad)
        parameter.grad = None

    @torch.no_grad()
    def refresh(self):
        for master, parameter in self._pairs:
            parameter.copy_(master)
