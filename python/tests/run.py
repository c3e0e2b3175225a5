#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Test the backend: run.py [operations] [clients] [failures] [hetero] [ends]
[trial] [comms] [transports], all by default.

Prints a line for each case and, last, how many passed. The status is 0 if all
did. LIBDICOMM_FILE says which libdicomm is tested.
"""

import os
import sys
import time
import warnings

warnings.simplefilter("ignore")

import torch  # noqa: E402
import torch._dynamo  # noqa: E402, F401  DDP does, a second in each rank
import torch.distributed  # noqa: E402, F401
import torch.utils.data  # noqa: E402, F401

import ranks  # noqa: E402

if torch.__version__.split(".")[:2] < ["2", "14"]:
    import dicomm_torch  # noqa: F401  from then on torch finds it itself

torch.set_num_threads(1)
passed, failed = 0, []


def tell(name, failure, seconds=None):
    global passed
    if failure is None:
        passed += 1
        took = "" if seconds is None else f" ({seconds:.1f} s)"
        print(f"ok {name}{took}", flush=True)
    else:
        failed.append(name)
        text = str(failure).replace("\n", "\n# ")
        print(f"not ok {name}\n# {text}", flush=True)


def operations():
    import operations

    for n in (2, 4):
        # Two ranks by torch's dispatcher, as if somebody looked, four without.
        os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
        if n == 4:
            del os.environ["TORCH_FR_BUFFER_SIZE"]
        try:
            every = ranks.values(ranks.run(n, operations.run, seconds=300))
        except AssertionError as error:
            tell(f"operations, {n} ranks", error)
            continue
        for name, _ in operations.CASES:
            told = [f"rank {rank}: {results[name]}"
                    for rank, results in enumerate(every) if results[name]]
            tell(f"{name}, {n} ranks", "\n".join(told) or None)


def each(module, label):
    """Run the functions of a module's CASES, in this process, which forks."""
    for name, function in module.CASES:
        began = time.monotonic()
        try:
            function()
            tell(f"{label} {name}", None, time.monotonic() - began)
        except Exception as error:
            tell(f"{label} {name}", f"{type(error).__name__}: {error}")


def clients():
    import clients

    clients.run(tell)


def failures():
    import failures

    each(failures, "failure")


def hetero():
    import hetero

    each(hetero, "hetero")


def ends():
    import ends

    each(ends, "end")


def trial():
    import trial

    each(trial, "trial")


def comms():
    import comms

    comms.run(tell)


def transports():
    import transports

    transports.run(tell)


PARTS = {"operations": operations, "clients": clients, "failures": failures,
         "hetero": hetero, "ends": ends, "trial": trial, "comms": comms,
         "transports": transports}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
    print(f"{passed} passed, {len(failed)} failed")
    sys.exit(bool(failed))
