/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a rank says of itself when it comes: who it is, and everything in which
 * ranks of one communicator must be alike.
 */
#ifndef DICOMM_BOOT_HELLO_H
#define DICOMM_BOOT_HELLO_H

#include "src/boot/wire.h"

#define HELLO_HOST 64
#define HELLO_WHERE 96 /* "host pid 4711" */

struct hello {
	uint32_t rank, ranks;
	uint32_t abi, version, byte_order, pointer_bytes;
	char features[128]; /* formats that ranks exchange */
	uint64_t config_hash;
	char config[WIRE_TEXT];
	uint32_t pid;
	char host[HELLO_HOST];
};

void hello_self(struct hello *h, int rank, int ranks);
/* Tests change what a rank says; set while no other thread runs. */
extern void (*hello_test_hook)(struct hello *h);

void hello_put(struct wire_out *out, const struct hello *h);
/* in->bad if it is not one. */
void hello_get(struct wire_in *in, struct hello *h);
void hello_where(const struct hello *h, char text[HELLO_WHERE]);
/* False if these two cannot work together; why names both and both values. */
bool hello_agrees(const struct hello *a, const struct hello *b, char *why,
		  size_t len);

#endif
