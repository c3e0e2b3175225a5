/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libucp, opened at the first use. If this library were linked to it, UCX would
 * put its own handlers on the signals of every program that uses us.
 */
#ifndef DICOMM_TRANSPORTS_UCX_LOAD_H
#define DICOMM_TRANSPORTS_UCX_LOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <ucp/api/ucp.h>

#include "src/base/library.h"

#define UCX_FUNCTIONS(X)                  \
	X(ucp_get_version)                \
	X(ucp_get_version_string)         \
	X(ucp_config_read)                \
	X(ucp_config_modify)              \
	X(ucp_config_release)             \
	X(ucp_init_version)               \
	X(ucp_cleanup)                    \
	X(ucp_context_query)              \
	X(ucp_mem_map)                    \
	X(ucp_mem_unmap)                  \
	X(ucp_worker_create)              \
	X(ucp_worker_destroy)             \
	X(ucp_worker_query)               \
	X(ucp_worker_release_address)     \
	X(ucp_worker_set_am_recv_handler) \
	X(ucp_worker_progress)            \
	X(ucp_worker_get_efd)             \
	X(ucp_worker_arm)                 \
	X(ucp_ep_create)                  \
	X(ucp_ep_close_nbx)               \
	X(ucp_am_send_nbx)                \
	X(ucp_am_recv_data_nbx)           \
	X(ucp_request_check_status)       \
	X(ucp_request_free)               \
	X(ucs_status_string)

struct ucx_api {
	UCX_FUNCTIONS(LIBRARY_POINTER)
	/* UCX copies memory of CUDA in threads without a current context, too:
	 * from 1.19 on. */
	bool needs_no_context;
};

extern struct ucx_api ucx;

/* Contexts that are open in this process. The child of a fork cannot use UCX
 * while its parent has any: the threads of UCX are not in the child. */
extern _Atomic int ucx_contexts;
/* Open the library. `why` becomes its version, or the reason if this returns
 * false. */
bool ucx_load(char *why, size_t len);

#endif
