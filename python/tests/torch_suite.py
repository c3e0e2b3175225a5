#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's own tests of a backend, which its wheel brings along, by hand:

    torch_suite.py BACKEND [RANKS] [PART-OF-A-NAME...]

They ask for backends by name when they are read, so they are read as those of
gloo and then run on BACKEND: all that gloo does is asked of it. Prints a line
for each test, and counts. Tests that want GPUs skip themselves. It needs
expecttest of PyPI.
"""

import os
import sys
import tempfile
import time
import unittest
import warnings

warnings.simplefilter("ignore")
backend = sys.argv[1]
ranks = sys.argv[2] if len(sys.argv) > 2 else "2"
folder = tempfile.mkdtemp()
os.makedirs(os.path.join(folder, "barrier"))
os.makedirs(os.path.join(folder, "test_dir"))
os.environ.update(BACKEND="gloo", WORLD_SIZE=ranks, TEMP_DIR=folder,
                  INIT_METHOD="env://", MASTER_ADDR="127.0.0.1",
                  MASTER_PORT="29512", DISTRIBUTED_TESTS_DEFAULT_TIMEOUT="60")

import torch  # noqa: E402
import torch.testing._internal.distributed.distributed_test as suite  # noqa: E402

suite.BACKEND = os.environ["BACKEND"] = backend


class Suite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        # Forked, for importing torch takes each rank seconds.
        self._start_processes(
            torch.multiprocessing.get_context("fork").Process)


counts = {}
for name in unittest.TestLoader().getTestCaseNames(Suite):
    if not all(part in name for part in sys.argv[3:]):
        continue
    began = time.monotonic()
    result = unittest.TestResult()
    Suite(name).run(result)
    what, why = "passed", ""
    if result.skipped:
        what, why = "skipped", result.skipped[0][1]
    for _, text in result.failures + result.errors:
        what = "failed"
        lines = [line for line in text.splitlines() if "Error" in line]
        why = (lines or text.splitlines())[-1]
    counts[what] = counts.get(what, 0) + 1
    took = time.monotonic() - began
    print(f"{what} {name} ({took:.1f} s) {why[:200]}", flush=True)
print(backend, ranks, "ranks:", counts)
