/* SPDX-License-Identifier: BSD-3-Clause */
/* The HIP backend on a mock runtime, which says nothing about a GPU. */
#include "src/accel/launch/image.h"
#include "tests/mock/backend.h"

extern const struct accel accel_hip;

int main(void)
{
	const struct backend b = {
		.accel = &accel_hip,
		.mock = "tests/mock/libhip.so",
		.between_mock = "tests/mock/libhip_between.so",
		.between_compiler = "tests/mock/libhiprtc_between.so",
		.old_mock = "tests/mock/libhip_old.so",
		.compiler = "tests/mock/libhiprtc.so",
		.refuses = "captured",
		.images = image_find("gfx90a"),
	};

	return backend_main(&b);
}
