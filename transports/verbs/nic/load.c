/* SPDX-License-Identifier: BSD-3-Clause */
/* Open libibverbs and librdmacm, and define what is called of them. */
#include "transports/verbs/nic/load.h"

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>

#include "src/base/library.h"

#define VERBS_LIBRARY "libibverbs.so.1"
#define CM_LIBRARY "librdmacm.so.1"

/* In the header these names are macros, which call inline functions, which
 * call the function of that name. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

/* X(type, name, parameters, arguments), as their headers declare them. */
#define VERBS_FUNCTIONS(X)                                                     \
	X(ssize_t, _ibv_query_gid_table,                                       \
	  (struct ibv_context * context, struct ibv_gid_entry * entries,       \
	   size_t max, uint32_t flags, size_t entry_size),                     \
	  (context, entries, max, flags, entry_size))                          \
	X(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context * context),       \
	  (context))                                                           \
	X(int, ibv_close_device, (struct ibv_context * context), (context))    \
	X(struct ibv_comp_channel *, ibv_create_comp_channel,                  \
	  (struct ibv_context * context), (context))                           \
	X(struct ibv_cq *, ibv_create_cq,                                      \
	  (struct ibv_context * context, int cqe, void *cq_context,            \
	   struct ibv_comp_channel *channel, int vector),                      \
	  (context, cqe, cq_context, channel, vector))                         \
	X(struct ibv_qp *, ibv_create_qp,                                      \
	  (struct ibv_pd * pd, struct ibv_qp_init_attr * attr), (pd, attr))    \
	X(struct ibv_srq *, ibv_create_srq,                                    \
	  (struct ibv_pd * pd, struct ibv_srq_init_attr * attr), (pd, attr))   \
	X(int, ibv_dealloc_pd, (struct ibv_pd * pd), (pd))                     \
	X(int, ibv_dereg_mr, (struct ibv_mr * mr), (mr))                       \
	X(int, ibv_destroy_comp_channel, (struct ibv_comp_channel * channel),  \
	  (channel))                                                           \
	X(int, ibv_destroy_cq, (struct ibv_cq * cq), (cq))                     \
	X(int, ibv_destroy_qp, (struct ibv_qp * qp), (qp))                     \
	X(int, ibv_destroy_srq, (struct ibv_srq * srq), (srq))                 \
	X(const char *, ibv_event_type_str, (enum ibv_event_type event),       \
	  (event))                                                             \
	X(int, ibv_fork_init, (void), ())                                      \
	X(int, ibv_get_async_event,                                            \
	  (struct ibv_context * context, struct ibv_async_event * event),      \
	  (context, event))                                                    \
	X(int, ibv_get_cq_event,                                               \
	  (struct ibv_comp_channel * channel, struct ibv_cq * *cq,             \
	   void **cq_context),                                                 \
	  (channel, cq, cq_context))                                           \
	X(struct ibv_device **, ibv_get_device_list, (int *n), (n))            \
	X(const char *, ibv_get_device_name, (struct ibv_device * device),     \
	  (device))                                                            \
	X(enum ibv_fork_status, ibv_is_fork_initialized, (void), ())           \
	X(int, ibv_modify_qp,                                                  \
	  (struct ibv_qp * qp, struct ibv_qp_attr * attr, int mask),           \
	  (qp, attr, mask))                                                    \
	X(struct ibv_context *, ibv_open_device, (struct ibv_device * device), \
	  (device))                                                            \
	X(int, ibv_query_device,                                               \
	  (struct ibv_context * context, struct ibv_device_attr * attr),       \
	  (context, attr))                                                     \
	X(int, ibv_query_gid,                                                  \
	  (struct ibv_context * context, uint8_t port, int index,              \
	   union ibv_gid *gid),                                                \
	  (context, port, index, gid))                                         \
	X(int, ibv_query_pkey,                                                 \
	  (struct ibv_context * context, uint8_t port, int index,              \
	   __be16 *pkey),                                                      \
	  (context, port, index, pkey))                                        \
	X(int, ibv_query_port,                                                 \
	  (struct ibv_context * context, uint8_t port,                         \
	   struct _compat_ibv_port_attr * attr),                               \
	  (context, port, attr))                                               \
	X(struct ibv_mr *, ibv_reg_dmabuf_mr,                                  \
	  (struct ibv_pd * pd, uint64_t offset, size_t length, uint64_t iova,  \
	   int fd, int access),                                                \
	  (pd, offset, length, iova, fd, access))                              \
	X(struct ibv_mr *, ibv_reg_mr,                                         \
	  (struct ibv_pd * pd, void *address, size_t length, int access),      \
	  (pd, address, length, access))                                       \
	X(struct ibv_mr *, ibv_reg_mr_iova2,                                   \
	  (struct ibv_pd * pd, void *address, size_t length, uint64_t iova,    \
	   unsigned access),                                                   \
	  (pd, address, length, iova, access))                                 \
	X(int, ibv_resize_cq, (struct ibv_cq * cq, int cqe), (cq, cqe))        \
	X(const char *, ibv_wc_status_str, (enum ibv_wc_status status),        \
	  (status))

#define CM_FUNCTIONS(X)                                                       \
	X(int, rdma_accept,                                                   \
	  (struct rdma_cm_id * id, struct rdma_conn_param * param),           \
	  (id, param))                                                        \
	X(int, rdma_ack_cm_event, (struct rdma_cm_event * event), (event))    \
	X(int, rdma_bind_addr,                                                \
	  (struct rdma_cm_id * id, struct sockaddr * address), (id, address)) \
	X(int, rdma_connect,                                                  \
	  (struct rdma_cm_id * id, struct rdma_conn_param * param),           \
	  (id, param))                                                        \
	X(struct rdma_event_channel *, rdma_create_event_channel, (void), ()) \
	X(int, rdma_create_id,                                                \
	  (struct rdma_event_channel * channel, struct rdma_cm_id * *id,      \
	   void *context, enum rdma_port_space space),                        \
	  (channel, id, context, space))                                      \
	X(int, rdma_destroy_id, (struct rdma_cm_id * id), (id))               \
	X(int, rdma_establish, (struct rdma_cm_id * id), (id))                \
	X(const char *, rdma_event_str, (enum rdma_cm_event_type event),      \
	  (event))                                                            \
	X(int, rdma_get_cm_event,                                             \
	  (struct rdma_event_channel * channel,                               \
	   struct rdma_cm_event * *event),                                    \
	  (channel, event))                                                   \
	X(__be16, rdma_get_src_port, (struct rdma_cm_id * id), (id))          \
	X(int, rdma_init_qp_attr,                                             \
	  (struct rdma_cm_id * id, struct ibv_qp_attr * attr, int *mask),     \
	  (id, attr, mask))                                                   \
	X(int, rdma_listen, (struct rdma_cm_id * id, int backlog),            \
	  (id, backlog))                                                      \
	X(int, rdma_reject,                                                   \
	  (struct rdma_cm_id * id, const void *data, uint8_t len),            \
	  (id, data, len))                                                    \
	X(int, rdma_resolve_addr,                                             \
	  (struct rdma_cm_id * id, struct sockaddr * from,                    \
	   struct sockaddr * to, int timeout_ms),                             \
	  (id, from, to, timeout_ms))                                         \
	X(int, rdma_resolve_route, (struct rdma_cm_id * id, int timeout_ms),  \
	  (id, timeout_ms))                                                   \
	X(int, rdma_set_option,                                               \
	  (struct rdma_cm_id * id, int level, int name, void *value,          \
	   size_t len),                                                       \
	  (id, level, name, value, len))

/* These return nothing. */
#define VERBS_PROCEDURES(X)                                               \
	X(ibv_ack_async_event, (struct ibv_async_event * event), (event)) \
	X(ibv_ack_cq_events, (struct ibv_cq * cq, unsigned n), (cq, n))   \
	X(ibv_free_device_list, (struct ibv_device * *list), (list))
#define CM_PROCEDURES(X)                                                     \
	X(rdma_destroy_event_channel, (struct rdma_event_channel * channel), \
	  (channel))

#define FUNCTION_POINTER(type, name, parameters, arguments) \
	type(*name) parameters;
#define PROCEDURE_POINTER(name, parameters, arguments) void(*name) parameters;

static struct api {
	VERBS_FUNCTIONS(FUNCTION_POINTER)
	CM_FUNCTIONS(FUNCTION_POINTER)
	VERBS_PROCEDURES(PROCEDURE_POINTER)
	CM_PROCEDURES(PROCEDURE_POINTER)
} api;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char why_not[256];

static bool open_one(const char *soname,
		     const struct library_function *functions)
{
	void *library = dlopen(soname, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

	if (library)
		return library_fill(library, soname, functions, &api, why_not,
				    sizeof(why_not));
	snprintf(why_not, sizeof(why_not), "%s", dlerror());
	return false;
}

#define FUNCTION_ENTRY(type, name, parameters, arguments) \
	LIBRARY_FUNCTION(struct api, name)
#define PROCEDURE_ENTRY(name, parameters, arguments) \
	LIBRARY_FUNCTION(struct api, name)

static void load(void)
{
	static const struct library_function verbs[] = {VERBS_FUNCTIONS(
		FUNCTION_ENTRY) VERBS_PROCEDURES(PROCEDURE_ENTRY) LIBRARY_END};
	static const struct library_function cm[] = {CM_FUNCTIONS(
		FUNCTION_ENTRY) CM_PROCEDURES(PROCEDURE_ENTRY) LIBRARY_END};

	if (open_one(VERBS_LIBRARY, verbs))
		open_one(CM_LIBRARY, cm);
}

bool verbs_load(char *why, size_t len)
{
	pthread_once(&once, load);
	if (*why_not)
		snprintf(why, len, "%s", why_not);
	return !*why_not;
}

static const struct api *loaded(void)
{
	pthread_once(&once, load);
	return &api;
}

/* Weak, for the tests that define their own. */
#define DEFINE_FUNCTION(type, name, parameters, arguments) \
	__attribute__((weak)) type name parameters         \
	{                                                  \
		return loaded()->name arguments;           \
	}
#define DEFINE_PROCEDURE(name, parameters, arguments) \
	__attribute__((weak)) void name parameters    \
	{                                             \
		loaded()->name arguments;             \
	}
VERBS_FUNCTIONS(DEFINE_FUNCTION)
CM_FUNCTIONS(DEFINE_FUNCTION)
VERBS_PROCEDURES(DEFINE_PROCEDURE)
CM_PROCEDURES(DEFINE_PROCEDURE)
