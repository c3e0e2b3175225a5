# SPDX-License-Identifier: BSD-3-Clause
"""Weights that several layers have together, such as those of an embedding
and of the head."""

from .plan import PlanError


class Tied:
    """Groups of parameters that are one each, by their names."""

    def __init__(self, groups, layers):
        self._group = {}
        for group in groups:
            group = tuple(group)
            if len(group) < 2:
                raise ValueError(f"tied: {group}: wanted two names or more")
            for name in group:
                number = name.partition(".")[0]
                if not number.isdigit() or int(number) >= layers:
                    raise ValueError(
                        f"tied: {name!r}: wanted the number of one of the"
                        f" {layers} layers, a dot, and a parameter of it")
                if name in self._group:
                    raise ValueError(f"tied: {name!r} is there twice")
                self._group[name] = group

    def group(self, name):
        """All that are one with a parameter, itself included."""
        return self._group.get(name, (name,))

    def first(self, name):
        """By which all of a group are known in checkpoints."""
        return self.group(name)[0]

    def join(self, layers):
        """Make one of those that are in a ModuleDict of layers."""
        mine = dict(layers.named_parameters(remove_duplicate=False))
        for group in dict.fromkeys(self._group.values()):
            here = [name for name in group if name in mine]
            for name in here[1:]:
                path, _, last = name.rpartition(".")
                setattr(layers.get_submodule(path), last, mine[here[0]])

    def check(self, names):
        """Are all of them parameters that train? names: of all layers."""
        for name in self._group:
            if name not in names:
                raise ValueError(f"tied: {name!r}: no such parameter trains")

    def check_group(self, plan, pipeline, group, held):
        """Can a device group hold what is tied and all there? held: Held of
        its layers by name. Its ranks have one box of it each."""
        for name, of in held.items():
            first = held.get(next((n for n in self.group(name) if n in held),
                                  name))
            if of.shape != first.shape:
                raise ValueError(f"tied: {name!r}: {of.shape}: wanted"
                                 f" {first.shape}, as of {first.name!r}")
            places = range(plan.pipelines[pipeline].stages[group].degree)
            if any(of.box((place, 0)) != first.box((place, 0))
                   for place in places):
                raise PlanError(
                    f"{plan.file}: pipelines[{pipeline}].stages[{group}].tp:"
                    f" {len(places)}: wanted 1, or {name!r} and"
                    f" {first.name!r} on other ranks: they are tied, and split"
                    " in another way")


def refuse_shared(layers):
    """Are there layers that share a parameter of which nobody said so? They
    would be trained apart. layers: as their factories make them."""
    seen = {}
    for number, layer in enumerate(layers):
        for name, parameter in layer.named_parameters():
            name = f"{number}.{name}"
            other = seen.setdefault(id(parameter), (name, parameter))[0]
            if other != name:
                raise ValueError(
                    f"layers: {other!r} and {name!r} are one parameter:"
                    " wanted one of its own in each layer, and"
                    f" tied=[({other!r}, {name!r})]")


def tie(model, *groups):
    """The same in one process: a model of build_all()."""
    Tied(groups, len(model)).join(model)
    return model
