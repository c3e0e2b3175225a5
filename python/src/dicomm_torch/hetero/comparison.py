# SPDX-License-Identifier: BSD-3-Clause
"""Does a module compute alike on two devices, on two ranks, in two types?

Each submodule is run alone, forward and backward, with the very inputs and
gradients of outputs that it had in the reference. So it answers for its own
difference, not for that of those before it. The tolerances are DiTorch's.
"""

import copy
import dataclasses

import torch
import torch.distributed as dist

TOLERANCES = {torch.float16: 1e-4, torch.bfloat16: 1e-3, torch.float32: 1e-5,
              torch.float64: 1e-8}
OTHER_TOLERANCE = 1e-3


@dataclasses.dataclass
class Difference:
    """Of one tensor of one submodule. excess is the largest difference over
    what is tolerated, atol + rtol |reference|: above 1 it is too much."""

    module: str  # its name, "" for the module itself; [n] for its nth call
    kind: str    # what class it is
    what: str    # "output 0", "gradient of input 0", "gradient of weight"
    excess: float
    largest: float
    relative: float
    cosine: float
    tolerance: float
    inherited: bool = False  # a module inside it failed, too

    @property
    def passed(self):
        return self.excess <= 1

    def __str__(self):
        return (f"{'ok  ' if self.passed else 'NOT '} {self.excess:10.3g}"
                f" {self.largest:10.3g} {self.relative:10.3g}"
                f" {self.cosine:10.7f}  {self.module or '(all)'}"
                f" ({self.kind}), {self.what}")


class Report(list):
    """Differences, worst first; those that a module inside explains come
    last."""

    @property
    def passed(self):
        return all(difference.passed for difference in self)

    def __str__(self):
        return "\n".join(
            ["       of limit    largest   relative     cosine  module, what"]
            + [str(difference) for difference in self])


def difference(module, kind, what, reference, tested, tolerance):
    """Compare two tensors; tested may be of another type or elsewhere."""
    if reference.shape != tested.shape:
        raise ValueError(
            f"{module} ({kind}), {what}: shapes {tuple(reference.shape)} and"
            f" {tuple(tested.shape)}")
    a = reference.detach().to("cpu", torch.float64).flatten()
    b = tested.detach().to("cpu", torch.float64).flatten()
    if not a.numel():
        return Difference(module, kind, what, 0.0, 0.0, 0.0, 1.0, tolerance)
    apart = (a - b).abs()
    # Equal infinities are equal; a NaN is equal to nothing else.
    apart = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, apart)
    apart = torch.where(apart.isnan(), float("inf"), apart)
    scale = a.abs().nan_to_num(0.0, 0.0, 0.0)
    norms = a.norm() * b.norm()
    cosine = (torch.dot(a, b) / norms).item() if norms else float(
        torch.equal(a, b))
    return Difference(
        module, kind, what,
        (apart / (tolerance + tolerance * scale)).max().item(),
        apart.max().item(), (apart / (scale + 1e-6)).max().item(), cosine,
        tolerance)


def _tensors(value):
    """The tensors of what a module takes or gives, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in _tensors(item)]
    return []


def _like(value, change):
    """The same structure, with changed tensors."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _like(item, change) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_like(item, change) for item in value])
    if isinstance(value, (list, tuple)):
        return type(value)(_like(item, change) for item in value)
    return value


class _Call:
    """One call of a submodule in the reference."""

    def __init__(self, module, kind, arguments, keywords):
        self.module = module
        self.kind = kind
        self.arguments = arguments
        self.keywords = keywords
        self.gradients = []  # of its outputs; None where there is none


def _record(module, inputs, keywords):
    """Run forward and backward; returns the calls of all submodules."""
    calls, counts, hooks = [], {}, []

    def keep(value):
        return _like(value, lambda t: t.detach().clone())

    def watch(name, submodule):
        def after(_, arguments, given, outputs):
            number = counts[name] = counts.get(name, -1) + 1
            call = _Call(f"{name}[{number}]" if number else name,
                         type(submodule).__name__, keep(arguments),
                         keep(given))
            for i, output in enumerate(_tensors(outputs)):
                call.gradients.append(None)
                if output.requires_grad:
                    output.register_hook(
                        lambda gradient, i=i, call=call:
                        call.gradients.__setitem__(
                            i, gradient.detach().clone()))
            calls.append(call)

        return submodule.register_forward_hook(after, with_kwargs=True)

    for name, submodule in module.named_modules():
        hooks.append(watch(name, submodule))
    try:
        outputs = [t for t in _tensors(module(*inputs, **keywords))
                   if t.requires_grad]
        if outputs:
            generator = torch.Generator().manual_seed(0)
            torch.autograd.backward(outputs, [
                torch.randn(t.shape, generator=generator,
                            dtype=torch.float64).to(t) for t in outputs])
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def _replay(module, calls, device, dtype):
    """Run each call alone; returns [{what: tensor}] in the order of calls."""
    submodules = dict(module.named_modules())

    def place(tensor):
        if not tensor.is_floating_point():
            return tensor.detach().to(device, copy=True)
        return tensor.detach().to(device, dtype, copy=True).requires_grad_()

    results = []
    for call in calls:
        submodule = submodules[call.module.partition("[")[0]]
        arguments, keywords = (
            _like(value, place) for value in (call.arguments, call.keywords))
        inputs = _tensors(arguments) + _tensors(keywords)
        outputs = _tensors(submodule(*arguments, **keywords))
        result = {f"output {i}": t.detach().cpu()
                  for i, t in enumerate(outputs) if t.is_floating_point()}
        wanted = {f"gradient of input {i}": t for i, t in enumerate(inputs)
                  if t.requires_grad}
        wanted.update({f"gradient of {name}": p
                       for name, p in submodule.named_parameters()
                       if p.requires_grad})
        pairs = [(t, g) for t, g in zip(outputs, call.gradients)
                 if g is not None and t.requires_grad]
        if pairs and wanted:
            gradients = torch.autograd.grad(
                [t for t, _ in pairs], list(wanted.values()),
                [g.to(t) for t, g in pairs], allow_unused=True)
            result.update({what: gradient.detach().cpu() for what, gradient
                           in zip(wanted, gradients) if gradient is not None})
        results.append(result)
    return results


def _report(calls, reference, tested, tolerance):
    report = Report()
    for call, a, b in zip(calls, reference, tested):
        if a.keys() != b.keys():
            raise ValueError(f"{call.module} ({call.kind}): one has"
                             f" {sorted(a)}, the other {sorted(b)}")
        for what in a:
            report.append(difference(call.module, call.kind, what, a[what],
                                     b[what], tolerance))
    wrong = {d.module.partition("[")[0] for d in report if not d.passed}
    for d in report:
        name = d.module.partition("[")[0]
        d.inherited = not d.passed and any(
            other.startswith(f"{name}." if name else "") and other != name
            for other in wrong)
    report.sort(key=lambda d: (d.inherited, -d.excess))
    return report


def _tolerance(dtype, tolerance):
    if tolerance is not None:
        return tolerance
    return TOLERANCES.get(dtype, OTHER_TOLERANCE)


def _type_of(module, inputs, keywords):
    for tensor in [*module.parameters(), *_tensors(inputs),
                   *_tensors(keywords)]:
        if tensor.is_floating_point():
            return tensor.dtype
    return torch.float32


def compare(module, *inputs, device="cpu", dtype=None, tolerance=None,
            against=None, **keywords):
    """Compare a module on a device, in a type (None: its own), with what the
    host computes in float64 from the same parameters and inputs.

    against is another module to test, of the same submodules; None tests
    the module itself. tolerance replaces DiTorch's of the type. The modules
    stay as they are; what they do at random has to be off. Returns a Report
    of outputs and gradients of every submodule, worst first.
    """
    dtype = dtype or _type_of(module, inputs, keywords)
    exact = copy.deepcopy(module).to("cpu").double()
    tested = copy.deepcopy(against or module).to(device, dtype)
    # The reference starts from what the tested one has: rounded values.
    exact.load_state_dict({
        name: value.to("cpu") for name, value in
        copy.deepcopy(module).to(dtype).state_dict().items()})

    def exactly(tensor):
        if not tensor.is_floating_point():
            return tensor.detach().cpu()
        return tensor.detach().to("cpu", dtype).double().requires_grad_()

    calls = _record(exact, _like(inputs, exactly), _like(keywords, exactly))
    _round(calls, dtype)
    return _report(calls, _replay(exact, calls, "cpu", torch.float64),
                   _replay(tested, calls, device, dtype),
                   _tolerance(dtype, tolerance))


def _round(calls, dtype):
    """Make inputs and gradients exact in a type: rounding them is no fault of
    the device."""
    def rounded(tensor):
        return tensor.to(dtype).double() if tensor.is_floating_point() else (
            tensor)

    for call in calls:
        call.arguments = _like(call.arguments, rounded)
        call.keywords = _like(call.keywords, rounded)
        call.gradients = [g if g is None else rounded(g)
                          for g in call.gradients]


def compare_ranks(module, *inputs, device="cpu", reference=0, group=None,
                  tolerance=None, **keywords):
    """Compare the ranks of a group, each with its own device, with rank
    `reference`, whose parameters and inputs all take.

    A collective call; each passes its own copy of the module. Returns a
    dictionary of a Report for each other rank, equal on all ranks.
    """
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    if not 0 <= reference < ranks:
        raise ValueError(f"reference {reference}: wanted a rank of {ranks}")
    dtype = _type_of(module, inputs, keywords)
    module = copy.deepcopy(module).to(device)
    given = [None]
    if rank == reference:
        def there(tensor):
            tensor = tensor.detach().to(device, copy=True)
            return (tensor.requires_grad_() if tensor.is_floating_point()
                    else tensor)

        calls = _record(module, _like(inputs, there), _like(keywords, there))
        for call in calls:
            for name in "arguments", "keywords", "gradients":
                setattr(call, name, _like(getattr(call, name),
                                          lambda t: t.cpu()))
        state = {name: value.cpu()
                 for name, value in module.state_dict().items()}
        given = [(calls, state)]
    source = reference if group is None else dist.get_global_rank(
        group, reference)
    dist.broadcast_object_list(given, source, group=group)
    calls, state = given[0]
    module.load_state_dict(state)
    every = [None] * ranks
    dist.all_gather_object(every, _replay(module, calls, device, dtype),
                           group=group)
    return {other: _report(calls, every[reference], every[other],
                           _tolerance(dtype, tolerance))
            for other in range(ranks) if other != reference}
