/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DICOMM_H
#define DICOMM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Exported, in a build that hides everything else. */
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define DICOMM_VERSION_MAJOR 0
#define DICOMM_VERSION_MINOR 1
#define DICOMM_VERSION_PATCH 0
#define DICOMM_VERSION                                               \
	(DICOMM_VERSION_MAJOR * 10000 + DICOMM_VERSION_MINOR * 100 + \
	 DICOMM_VERSION_PATCH)

typedef enum {
	DICOMM_SUCCESS = 0,
	DICOMM_ERR_DEVICE = 1,
	DICOMM_ERR_SYSTEM = 2,
	DICOMM_ERR_INTERNAL = 3,
	DICOMM_ERR_INVALID_ARGUMENT = 4,
	DICOMM_ERR_INVALID_USAGE = 5,
	DICOMM_ERR_REMOTE = 6,
	DICOMM_IN_PROGRESS = 7,
	DICOMM_ERR_TIMEOUT = 8,
	DICOMM_ERR_NO_MEMORY = 16,
	DICOMM_ERR_UNSUPPORTED = 17,
	DICOMM_ERR_NO_PATH = 18,
	DICOMM_ERR_ABORTED = 19
} dicomm_result_t;

typedef enum {
	DICOMM_INT8 = 0,
	DICOMM_CHAR = 0,
	DICOMM_UINT8 = 1,
	DICOMM_INT32 = 2,
	DICOMM_INT = 2,
	DICOMM_UINT32 = 3,
	DICOMM_INT64 = 4,
	DICOMM_UINT64 = 5,
	DICOMM_FLOAT16 = 6,
	DICOMM_HALF = 6,
	DICOMM_FLOAT32 = 7,
	DICOMM_FLOAT = 7,
	DICOMM_FLOAT64 = 8,
	DICOMM_DOUBLE = 8,
	DICOMM_BFLOAT16 = 9,
	DICOMM_FLOAT8E4M3 = 10,
	DICOMM_FLOAT8E5M2 = 11,
	DICOMM_INT16 = 16,
	DICOMM_UINT16 = 17,
	DICOMM_FLOAT8E4M3FNUZ = 18,
	DICOMM_FLOAT8E5M2FNUZ = 19
} dicomm_datatype_t;

typedef enum {
	DICOMM_SUM = 0,
	DICOMM_PROD = 1,
	DICOMM_MAX = 2,
	DICOMM_MIN = 3,
	DICOMM_AVG = 4,
	DICOMM_BAND = 16,
	DICOMM_BOR = 17,
	DICOMM_BXOR = 18
	/* created operators (premulsum) are >= 0x100 */
} dicomm_redop_t;

typedef enum {
	DICOMM_SCALAR_DEVICE = 0,
	DICOMM_SCALAR_HOST_IMMEDIATE = 1
} dicomm_scalar_residence_t;

typedef struct dicomm_comm *dicomm_comm_t;
typedef void *dicomm_stream_t;

#define DICOMM_UNIQUE_ID_BYTES 128
typedef struct {
	char text[DICOMM_UNIQUE_ID_BYTES]; /* printable, ends in NUL */
} dicomm_unique_id_t;

#define DICOMM_CONFIG_MAGIC 0xd1c0331u
#define DICOMM_UNDEFINED_INT (-0x7fffffff - 1)

typedef struct {
	size_t size;
	uint32_t magic;
	uint32_t version;
	const char *device;     /* "host"; NULL: see dicomm_comm_init_rank() */
	const char *name;       /* of the communicator, in logs */
	int blocking;           /* 0: init, split, finalize return at once */
	int timeout_ms;         /* of one operation */
	const char *transports; /* "shm"; grammar of DICOMM_TRANSPORTS */
	const char *staging;    /* "auto" or "never" */
	int deterministic;      /* 1: fixed order of reduction */
	int lanes;
	void (*log_fn)(int level, const char *message, void *log_ctx);
	void *log_ctx;
	struct {
		dicomm_result_t (*allgather)(const void *mine, void *all,
					     size_t len, void *ctx);
		void *ctx;
	} bootstrap;
} dicomm_config_t;

#define DICOMM_CONFIG_INITIALIZER                                             \
	{                                                                     \
		sizeof(dicomm_config_t), DICOMM_CONFIG_MAGIC, DICOMM_VERSION, \
			NULL, NULL, DICOMM_UNDEFINED_INT,                     \
			DICOMM_UNDEFINED_INT, NULL, NULL,                     \
			DICOMM_UNDEFINED_INT, DICOMM_UNDEFINED_INT, NULL,     \
			NULL,                                                 \
		{                                                             \
			NULL, NULL                                            \
		}                                                             \
	}

typedef struct {
	size_t size; /* set by the caller to sizeof(dicomm_stats_t) */
	uint64_t operations;
	uint64_t messages_sent;
	uint64_t messages_received;
	uint64_t bytes_sent; /* payload that left this rank */
	uint64_t bytes_received;
	uint64_t bytes_direct; /* of those received, device to device */
	uint64_t bytes_staged; /* of those received, through host memory */
	uint64_t bytes_ring;   /* host: copied through a shared ring */
	uint64_t bytes_mapped; /* host: read in place from mapped memory */
	uint64_t bytes_cma;    /* host: read by process_vm_readv */
	uint64_t connected_peers;
	uint64_t memory_bytes; /* held by this communicator */
} dicomm_stats_t;

typedef struct {
	const char *name; /* "DICOMM_DEBUG" */
	const char *type; /* "string", "int", "bytes", "bool" */
	const char *default_value;
	const char *value;
	const char *origin; /* "default", "environment" (with its variable),
			       "file" */
	const char *help;
} dicomm_param_info_t;

typedef struct {
	const char *name; /* "shm" */
	int usable;
	char reason[160]; /* why it is not usable; else what it found */
} dicomm_transport_info_t;

typedef struct {
	char name[32]; /* "host", "cuda:0" */
	char vendor[32];
	char description[128];
	char pci[16]; /* "0000:17:00.0", empty for the host */
} dicomm_device_info_t;

dicomm_result_t dicomm_get_version(int *version);
const char *dicomm_get_error_string(dicomm_result_t result);
const char *dicomm_get_last_error(dicomm_comm_t comm);

dicomm_result_t dicomm_get_unique_id(dicomm_unique_id_t *id);
dicomm_result_t dicomm_comm_init_rank(dicomm_comm_t *comm, int nranks,
				      dicomm_unique_id_t id, int rank);
dicomm_result_t dicomm_comm_init_rank_config(dicomm_comm_t *comm, int nranks,
					     dicomm_unique_id_t id, int rank,
					     const dicomm_config_t *config);
dicomm_result_t dicomm_comm_init_env(dicomm_comm_t *comm);
dicomm_result_t dicomm_comm_init_all(dicomm_comm_t *comms, int ndev,
				     const char *const *devices);
dicomm_result_t dicomm_comm_split(dicomm_comm_t comm, int color, int key,
				  dicomm_comm_t *newcomm,
				  const dicomm_config_t *config);
dicomm_result_t dicomm_comm_shrink(dicomm_comm_t comm, const int *exclude,
				   int nexclude, dicomm_comm_t *newcomm,
				   const dicomm_config_t *config);
dicomm_result_t dicomm_comm_finalize(dicomm_comm_t comm);
dicomm_result_t dicomm_comm_destroy(dicomm_comm_t comm);
dicomm_result_t dicomm_comm_abort(dicomm_comm_t comm);
dicomm_result_t dicomm_comm_get_async_error(dicomm_comm_t comm,
					    dicomm_result_t *async_error);
#define DICOMM_SPLIT_NOCOLOR (-1)

dicomm_result_t dicomm_comm_count(dicomm_comm_t comm, int *count);
dicomm_result_t dicomm_comm_user_rank(dicomm_comm_t comm, int *rank);
dicomm_result_t dicomm_comm_device(dicomm_comm_t comm, const char **device);
dicomm_result_t dicomm_comm_stats(dicomm_comm_t comm, dicomm_stats_t *stats);
dicomm_result_t dicomm_comm_explain(dicomm_comm_t comm, const char *operation,
				    size_t count, dicomm_datatype_t type,
				    char *text, size_t len);

dicomm_result_t dicomm_mem_alloc(void **ptr, size_t size);
dicomm_result_t dicomm_mem_free(void *ptr);
dicomm_result_t dicomm_comm_register(dicomm_comm_t comm, void *buff,
				     size_t size, void **handle);
dicomm_result_t dicomm_comm_deregister(dicomm_comm_t comm, void *handle);

dicomm_result_t dicomm_redop_create_premulsum(
	dicomm_redop_t *op, const void *scalar, dicomm_datatype_t type,
	dicomm_scalar_residence_t residence, dicomm_comm_t comm);
dicomm_result_t dicomm_redop_destroy(dicomm_redop_t op, dicomm_comm_t comm);

dicomm_result_t dicomm_group_start(void);
dicomm_result_t dicomm_group_end(void);

dicomm_result_t dicomm_allreduce(const void *send, void *recv, size_t count,
				 dicomm_datatype_t type, dicomm_redop_t op,
				 dicomm_comm_t comm, dicomm_stream_t stream);
dicomm_result_t dicomm_reduce(const void *send, void *recv, size_t count,
			      dicomm_datatype_t type, dicomm_redop_t op,
			      int root, dicomm_comm_t comm,
			      dicomm_stream_t stream);
dicomm_result_t dicomm_broadcast(const void *send, void *recv, size_t count,
				 dicomm_datatype_t type, int root,
				 dicomm_comm_t comm, dicomm_stream_t stream);
dicomm_result_t dicomm_reduce_scatter(const void *send, void *recv,
				      size_t recvcount, dicomm_datatype_t type,
				      dicomm_redop_t op, dicomm_comm_t comm,
				      dicomm_stream_t stream);
dicomm_result_t dicomm_allgather(const void *send, void *recv, size_t sendcount,
				 dicomm_datatype_t type, dicomm_comm_t comm,
				 dicomm_stream_t stream);
dicomm_result_t dicomm_alltoall(const void *send, void *recv, size_t count,
				dicomm_datatype_t type, dicomm_comm_t comm,
				dicomm_stream_t stream);
dicomm_result_t dicomm_gather(const void *send, void *recv, size_t count,
			      dicomm_datatype_t type, int root,
			      dicomm_comm_t comm, dicomm_stream_t stream);
dicomm_result_t dicomm_scatter(const void *send, void *recv, size_t count,
			       dicomm_datatype_t type, int root,
			       dicomm_comm_t comm, dicomm_stream_t stream);
dicomm_result_t dicomm_send(const void *send, size_t count,
			    dicomm_datatype_t type, int peer,
			    dicomm_comm_t comm, dicomm_stream_t stream);
dicomm_result_t dicomm_recv(void *recv, size_t count, dicomm_datatype_t type,
			    int peer, dicomm_comm_t comm,
			    dicomm_stream_t stream);
dicomm_result_t dicomm_alltoallv(const void *send, const size_t *sendcounts,
				 const size_t *senddispls, void *recv,
				 const size_t *recvcounts,
				 const size_t *recvdispls,
				 dicomm_datatype_t type, dicomm_comm_t comm,
				 dicomm_stream_t stream);
dicomm_result_t dicomm_allgatherv(const void *send, void *recv,
				  const size_t *recvcounts,
				  const size_t *recvdispls,
				  dicomm_datatype_t type, dicomm_comm_t comm,
				  dicomm_stream_t stream);
dicomm_result_t dicomm_reduce_scatterv(const void *send, void *recv,
				       const size_t *recvcounts,
				       dicomm_datatype_t type,
				       dicomm_redop_t op, dicomm_comm_t comm,
				       dicomm_stream_t stream);
dicomm_result_t dicomm_barrier(dicomm_comm_t comm, dicomm_stream_t stream);

dicomm_result_t dicomm_host_stream_create(dicomm_stream_t *stream);
dicomm_result_t dicomm_host_stream_synchronize(dicomm_stream_t stream);
dicomm_result_t dicomm_host_stream_destroy(dicomm_stream_t stream);

dicomm_result_t dicomm_param_info(int index, dicomm_param_info_t *info);
dicomm_result_t dicomm_transport_info(int index, dicomm_transport_info_t *info);
dicomm_result_t dicomm_device_info(int index, dicomm_device_info_t *info);
dicomm_result_t dicomm_explain(const char *operation, int nranks, size_t bytes,
			       char *text, size_t len);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
