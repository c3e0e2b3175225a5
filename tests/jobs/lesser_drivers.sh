#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The order of streams with drivers that offer less: CUDA 11.6 and ROCm 6, CUDA
# 10.0 and ROCm 5.2. They are mocks of our tests, which says nothing about a GPU.
cd "${top_builddir:-.}" || exit 99
if [ ! -x tests/jobs/test_device_streams ]; then
	echo "the tests are not built"
	exit 77
fi
oldest=old
if [ ! -e src/accel/kernels/ptx_f32.ptx ]; then
	echo "no kernels in this build: without drivers that have no compiler"
	oldest=
fi
for drivers in between $oldest; do
	MOCK_DRIVERS=$drivers tests/jobs/test_device_streams || exit 1
done
