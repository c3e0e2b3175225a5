/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collective library of a vendor, opened at run time: the functions of
 * NCCL that islands use, which RCCL has under the same names. Its own copies of
 * this library's libnccl.so.2 and librccl.so.1 are told from it.
 */
#ifndef DICOMM_ISLAND_LIBRARY_H
#define DICOMM_ISLAND_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

struct vendor_comm; /* ncclComm_t */

#define VENDOR_ID_BYTES 128
struct vendor_id {
	char bytes[VENDOR_ID_BYTES];
};

/* Values of ncclResult_t */
enum {
	VENDOR_SUCCESS = 0,
	VENDOR_DEVICE_ERROR = 1,
	VENDOR_SYSTEM_ERROR = 2,
	VENDOR_REMOTE_ERROR = 6,
	VENDOR_IN_PROGRESS = 7,
	VENDOR_TIMEOUT = 8
};

#define VENDOR_CONFIG_MAGIC 0xcafebeefu
/* The version that this struct is of; later ones are longer. */
#define VENDOR_CONFIG_VERSION 21400
struct vendor_config {
	size_t size;
	unsigned int magic;
	unsigned int version;
	int blocking;
};

/* Types, operators and results are int: enums of the vendor's. */
struct vendor_functions {
	int (*get_version)(int *version);
	int (*get_unique_id)(struct vendor_id *id);
	int (*init)(struct vendor_comm **comm, int ranks, struct vendor_id id,
		    int rank, struct vendor_config *config);
	int (*finalize)(struct vendor_comm *comm);
	int (*destroy)(struct vendor_comm *comm);
	int (*abort)(struct vendor_comm *comm);
	int (*async_error)(struct vendor_comm *comm, int *error);
	const char *(*error_string)(int result);
	int (*allreduce)(const void *send, void *recv, size_t count, int type,
			 int op, struct vendor_comm *comm, void *stream);
	int (*reduce)(const void *send, void *recv, size_t count, int type,
		      int op, int root, struct vendor_comm *comm, void *stream);
	int (*broadcast)(const void *send, void *recv, size_t count, int type,
			 int root, struct vendor_comm *comm, void *stream);
	int (*reduce_scatter)(const void *send, void *recv, size_t count,
			      int type, int op, struct vendor_comm *comm,
			      void *stream);
	int (*allgather)(const void *send, void *recv, size_t count, int type,
			 struct vendor_comm *comm, void *stream);
	int (*send)(const void *send, size_t count, int type, int peer,
		    struct vendor_comm *comm, void *stream);
	int (*recv)(void *recv, size_t count, int type, int peer,
		    struct vendor_comm *comm, void *stream);
	int (*group_start)(void);
	int (*group_end)(void);
	/* Only this library's own has it: makes its communicators without
	 * islands. */
	void (*islands_off)(void);
};

struct island_library {
	char path[256];
	bool own; /* it is a copy of this library's libnccl.so.2 */
	int version;
	struct vendor_functions f;
};

/*
 * Opens the library for ranks on devices of that kind ("cuda", "hip", "host"),
 * once for the process. `path` is that of the library, or "" for the loader to
 * find NCCL or RCCL; after "own:" it is to be this library's own, which
 * otherwise is refused. Returns NULL with the reason in why.
 */
const struct island_library *
island_library_open(const char *kind, const char *path, char *why, size_t len);

#endif
