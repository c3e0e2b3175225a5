/* SPDX-License-Identifier: BSD-3-Clause */
/* What every backend for GPUs must do, tried on a mock of its driver. */
#ifndef DICOMM_TESTS_MOCK_BACKEND_H
#define DICOMM_TESTS_MOCK_BACKEND_H

#include <stdbool.h>

#include "src/accel/accel.h"

struct backend {
	const struct accel *accel;
	/* Mocks of the driver in the folder of the build, and of an old one,
	 * which has neither waits for memory nor dma-bufs */
	const char *mock, *old_mock;
	/* And one of a driver between these: without dma-bufs; or NULL */
	const char *between_mock;
	const char *compiler; /* a mock of that of the runtime; or NULL */
	const char *between_compiler; /* of the one between, if another */
	/* Of two, one that is found first and does not know the device, and one
	 * that is asked then; or NULL */
	const char *unfit_compiler, *old_compiler;
	bool images; /* that the mock takes are in this build */
	/* Streams wait for the host though the driver be old. */
	bool always_waits;
	/* Copies seem done to the host before they are, unless it is asked. */
	bool syncs;
	/* Streams write to memory how far they are, but of an old driver. */
	bool writes;
	/* An old driver does not say whose a stream is, and what it does. */
	bool silent_when_old;
	const char
		*refuses; /* what it says of a stream that it does not take */
};

/* Run it all; the status for main(). */
int backend_main(const struct backend *b);

#endif
