/* SPDX-License-Identifier: BSD-3-Clause */
/* The Level Zero backend on a mock driver, which says nothing about a GPU. */
#include "src/accel/launch/image.h"
#include "tests/mock/backend.h"

extern const struct accel accel_ze;

int main(void)
{
	const struct backend b = {
		.accel = &accel_ze,
		.mock = "tests/mock/libze.so",
		.old_mock = "tests/mock/libze_old.so",
		.images = image_find("spirv_f32"),
		.always_waits = true,
		.silent_when_old = true,
		.refuses = "not immediate",
	};

	return backend_main(&b);
}
