/* SPDX-License-Identifier: BSD-3-Clause */
/* The CUDA backend on a mock driver, which says nothing about a GPU. */
#include "src/accel/launch/image.h"
#include "tests/mock/backend.h"

extern const struct accel accel_cuda;

int main(void)
{
	const struct backend b = {
		.accel = &accel_cuda,
		.mock = "tests/mock/libcuda.so",
		.between_mock = "tests/mock/libcuda_between.so",
		.old_mock = "tests/mock/libcuda_old.so",
		.compiler = "tests/mock/libnvrtc.so",
		.between_compiler = "tests/mock/libnvrtc_old.so",
		.unfit_compiler = "tests/mock/libnvrtc_new.so",
		.old_compiler = "tests/mock/libnvrtc_old.so",
		.syncs = true,
		.writes = true,
		.refuses = "captured",
		.images = image_find("ptx_f32"),
	};

	return backend_main(&b);
}
