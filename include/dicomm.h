/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file dicomm.h
 * Collective communication between unlike devices: the interface and its
 * manual.
 *
 * A communicator joins N ranks. A rank is a member of a communicator, numbered
 * from 0 to N - 1 and bound to one device, where its buffers live. Every rank
 * of a communicator calls the same collectives in the same order; the library
 * chooses how, by what the links between the ranks cost.
 *
 * Ranks are not processes. A process, even a thread, may hold several ranks of
 * one communicator, each with its own handle. Nothing is shared between the
 * handles of a process that a caller could notice.
 *
 * Devices. A rank is bound to the host or to a device by its name: "cuda:0",
 * "hip:1", "ze:0" (an Intel GPU by Level Zero), "opencl:0" (an OpenCL device
 * that works on host memory, such as PoCL's). That name is in config.device,
 * else in DICOMM_DEVICE; without either it is the host. What the calling thread
 * has chosen (cudaSetDevice()) does not count. The ranks of a communicator may
 * have devices of any kinds. Each rank reduces on its own device, by kernels
 * that give the same bits on all kinds. A GPU needs nothing but its driver,
 * which the library opens when it first needs it. So far "cuda", "hip" and "ze"
 * have run on mocks of their drivers, and on no GPU. A host rank and a device
 * of one machine share memory of dicomm_mem_alloc(). UCX moves memory of
 * devices if DICOMM_TRANSPORTS names ucx and UCX_TLS its transports for them.
 * Over TCP, UCX copies through host memory of its own; that counts as direct.
 *
 * Staging. Data that no transport moves directly passes through host memory.
 * The library counts that (dicomm_stats_t) and warns. Where DICOMM_STAGING or
 * config.staging is "never", init refuses it. If a device takes no kernels of
 * this build, and its runtime compiles none, the host reduces for it, on copies
 * of the operands in host memory. A warning says so; with "never" these
 * reductions are refused. bytes_staged does not count them, since no message is
 * staged.
 *
 * Streams. An operation takes a stream of its rank's device. Operations of one
 * communicator start in call order even on different streams. On a host rank
 * NULL makes it a blocking call: it returns when the result is there and all
 * buffers are the caller's again. A host stream (dicomm_host_stream_create())
 * makes it asynchronous: the call returns once the operation is queued, and
 * operations of one stream run in call order.
 *
 * On a rank of a device the stream is the vendor's own (CUstream or
 * cudaStream_t, hipStream_t, an immediate ze_command_list_handle_t, an in-order
 * cl_command_queue); NULL is the default stream of the device, of Level Zero
 * and OpenCL it is a stream of the library. A command list need not be in
 * order: commands appended before the call run before the operation, and
 * commands appended after it run after. The call returns once the operation is
 * queued. The operation begins when all that is before it on the stream is
 * done, and the stream goes on when the operation is done. A failure shows in
 * dicomm_comm_get_async_error().
 *  - A stream of CUDA has to be of the primary context of its device, as those
 *    of CUDA's runtime are.
 *  - A stream of CUDA or HIP that is being captured into a graph takes calls;
 *    see below. The default stream is refused (ERR_UNSUPPORTED) while a stream
 *    that waits for it is being captured. Work queued there would spoil that
 *    graph.
 *  - Calls of a driver that wait for a whole device or more (cudaFree(),
 *    cudaFreeHost(), hipFree()) may keep the driver from serving the library
 *    until they return. While an operation is under way, the call and the
 *    operation could wait for each other, and no time-out ends that. The same
 *    holds for the first launch of a kernel that is loaded only then, as CUDA
 *    does since 12.2: set CUDA_MODULE_LOADING=EAGER, or launch each kernel once
 *    before; a warning says so. It may also hold for a launch when about a
 *    thousand others are queued already behind the operation. Calls that wait
 *    for a stream or an event do no harm.
 *  - Where a device has too few queues (CUDA_DEVICE_MAX_CONNECTIONS=1, and for
 *    copies CUDA_DEVICE_MAX_COPY_CONNECTIONS=1; GPU_MAX_HW_QUEUES=1), a stream
 *    that waits may hold up the streams of the library. Then operations end
 *    only by their time-out, which says so. When a device is first used, the
 *    library tries this with one stream, not with copies, and warns. More
 *    streams need more queues.
 *
 * Graphs. A call on a stream that is being captured does not run, but each
 * replay of the graph runs it, with the buffers and counts that it was given.
 * These must stay as long as the graph is replayed. All ranks have to have
 * devices of CUDA or HIP, and to capture the same calls in the same order. The
 * first captured call of a communicator waits for all ranks, which prepare for
 * graphs then, and takes about as much memory as another communicator. In a
 * graph, the calls of one communicator run in the order of their capture, also
 * in different branches. Several graphs, and calls that are not captured, may
 * share a communicator; graphs that share one must come to run in the same
 * order on all ranks, one after the other, as those on one stream do. Calls
 * that are not captured have an order of their own. Until a captured call has
 * been replayed to its end, its graph waits for it, as a stream does.
 *  - The graph, and what was instantiated from it, may be destroyed before or
 *    after the communicator. After the end of the communicator, or when it is
 *    broken, replays pass its calls without a result.
 *  - A group on several streams of one capture begins when all of them have
 *    come to it, and all go on when it has ended.
 *  - Refused are (ERR_UNSUPPORTED): groups with a stream that is captured and
 *    one that is not, or with captured calls from two captures or of two
 *    communicators on one device, or from two streams if some of them go by
 *    islands; redistributions, one-sided operations, receives with a status,
 *    drivers before CUDA 11.3 and ROCm 5.3; and all with DICOMM_GRAPH=off.
 *  - A captured call by islands that needs memory for sums keeps it until the
 *    communicator ends; only all-reduces on one stream share it.
 *  - A thread of the library looks for replays as long as there are graphs. On
 *    CUDA before 11.7 and on HIP, the wait of a replay is a host function,
 *    which holds up other host functions.
 *  - Buffers of dicomm_comm_register() and dicomm_comm_mem_alloc() are staged
 *    on the device in a graph, as others are.
 *  - Graphs have run on mocks of the drivers, and on no GPU.
 *
 * Groups. Between dicomm_group_start() and dicomm_group_end() operations are
 * only collected; they start together at the end and progress together. A
 * thread that makes blocking calls for several ranks that wait for each other
 * needs a group: the first call would wait for the second, which the thread has
 * not made. An exchange in which each rank sends and receives needs one, too.
 *
 * Errors. Every function returns a dicomm_result_t. What went wrong is logged
 * once and kept as text for dicomm_get_last_error(). There are two kinds:
 *  - The call is refused (INVALID_ARGUMENT, UNSUPPORTED, NO_MEMORY, a handle
 *    that is not ready): nothing happened, and the communicator works.
 *  - The communicator is broken: a peer died (ERR_REMOTE, at every rank, within
 *    a second; 90 s, or DICOMM_TCP_SILENT_MS, if its whole host falls silent),
 *    ranks called unlike operations (ERR_INVALID_USAGE, naming both ranks and
 *    both calls), a time-out, a system error. Operations under way fail with
 *    that status, and so does every later call, also where its description
 *    does not list that status. Only the queries still work, except
 *    dicomm_comm_explain(). Receive buffers have no defined contents. Destroy
 *    the communicator (dicomm_comm_destroy()). To go on with the ranks that are
 *    alive, call dicomm_comm_shrink() before that.
 * A process may end without dicomm_comm_destroy() when its last call has
 * returned: what it has sent counts before its death. Among ranks of the host,
 * the call that the others are in, or else their first one after the news, and
 * those that begin within 0.7 s, go on as long as they need nothing more of the
 * dead rank; each fails, naming that rank, once it waits for the dead one, for
 * a rank that has failed for this reason, or for 0.7 s without progress (1.4 s
 * at most where others want the cores). Later calls fail at once. What a rank
 * sends to a dead one may be lost without an error.
 * When a call has returned a failure, or dicomm_comm_abort() has returned,
 * nothing writes the buffers of the caller any more.
 *
 * Late is not dead. The library waits for a peer that lives but does not come.
 * After 60 s (DICOMM_WARN_LATE_MS) a warning names the peer, but not of a
 * receive from any source that has no time-out. After 30 minutes
 * (timeout_ms, DICOMM_TIMEOUT_MS) the operation fails with ERR_TIMEOUT; the
 * text names the rank, the operation and the peer, and if that waits for
 * another rank itself, the rank that holds up all of them.
 *
 * Threads. Several threads may call collectives, sends and receives on one
 * communicator of host ranks: blocking, in groups and on host streams. Such
 * calls take effect in the order in which they enter, and progress together:
 * none waits for another one to return. A call enters at some moment between
 * its begin and its return, and one on a host stream has entered when it
 * returns. So of two calls, one that has returned before the other begins is
 * the earlier one; of calls that overlap in time, either may be, and not the
 * same one on all ranks. All ranks have to call the collectives of a
 * communicator in the same order, whichever threads call them: where those of
 * several threads could overlap, the program orders them, such as by queueing
 * them on host streams under a lock. Sends and receives match by peer and tag
 * in the order of their calls. A group belongs to its thread, and its
 * operations enter together at dicomm_group_end(). Each call returns its own
 * result; what breaks the communicator ends the calls of all threads.
 * One-sided operations, operations on ranks of a device, and the other
 * functions that take a communicator: one call at a time on one handle and what
 * belongs to it, by any thread. dicomm_comm_finalize() and
 * dicomm_comm_destroy() wait for operations of other threads that are under
 * way; none may begin later. Handles are independent of each other. From any
 * thread at any time: dicomm_comm_abort(), dicomm_comm_set_timeout(),
 * dicomm_comm_get_async_error(), dicomm_get_last_error(), the queries of a
 * communicator (count to explain), and all functions that take none, of
 * dicomm_comm_init_env() one at a time.
 *
 * No call is a cancellation point: a thread that pthread_cancel() asks to end
 * ends after its call. Asynchronous cancellation must be off in a call.
 *
 * Fork. In a child of fork() the communicators and host streams of its parent
 * are refused with ERR_INVALID_USAGE, and no group is open; the parent does not
 * notice.
 *
 * Settings come from the fields of dicomm_config_t, else from DICOMM_
 * variables, else from variables of NCCL where these mean the same, else from
 * the default. Variables are read once, by the first call that needs any;
 * DICOMM_RANK, DICOMM_SIZE, DICOMM_COMM_ID and DICOMM_COMM_KEY by each call
 * that needs them, so that a process may set them anew for its next
 * communicator. `dicomm-info --config` or dicomm_param_info() lists them all.
 * Messages go to stderr: errors and warnings unless DICOMM_DEBUG says otherwise
 * (none, error, version, warn, info, debug, trace).
 *
 * From NCCL: where NCCL has a function, ours is its name in snake case with the
 * same arguments in the same order, and enumerators have the same values
 * (ncclAllReduce is dicomm_allreduce, ncclFloat32 is DICOMM_FLOAT32).
 * Different:
 *  - a rank is bound to a device by name, see above, and not to the current one
 *    of its thread: without a name it is a host rank, which refuses memory of
 *    a GPU. dicomm_mem_alloc() allocates on the device that DICOMM_DEVICE
 *    names, else on the host; dicomm_comm_mem_alloc() allocates on the device
 *    of a rank;
 *  - on host ranks the stream NULL blocks;
 *  - a communicator that was aborted is still to be destroyed;
 *  - dicomm_comm_init_all() takes names of devices, and dicomm_comm_device()
 *    gives one; dicomm_comm_shrink() has no flags, for it takes broken
 *    communicators as they are; dicomm_config_t has fields of its own;
 *  - all ranks capture what one rank captures into a graph;
 *  - types and operators from 16 up, v-collectives, the barrier and
 *    dicomm_reduce_local() are ours.
 *    ncclCommInitRankScalable(), ncclGroupSimulateEnd() and ncclBcast() have no
 *    counterpart.
 *
 * From MPI: dicomm_comm_init_env() makes what MPI_COMM_WORLD is, without MPI,
 * which may be used beside it. A call with the stream NULL on a host rank
 * blocks as one of MPI does; instead of requests there are host streams and
 * groups. In place is one pointer for both buffers, or for this rank's block of
 * the larger one. A receive has the type and count of its send: there are no
 * shorter messages, and no MPI_ANY_TAG; for tags and MPI_ANY_SOURCE see
 * dicomm_recv_tag(). There are no derived types, and of user-defined operators
 * only dicomm_redop_create_premulsum(). Instead of MPI_Alltoallw() and
 * MPI_BOTTOM there are lists of buffers (dicomm_alltoallv_list()).
 * MPI_UNDEFINED is DICOMM_SPLIT_NOCOLOR, MPI_Comm_create_group() is
 * dicomm_comm_create_group(), MPI_Reduce_scatter() is dicomm_reduce_scatterv()
 * and MPI_Reduce_local() is dicomm_reduce_local().
 */
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

/** Version of this header, as numbers and as major * 10000 + minor * 100 +
 * patch; dicomm_get_version() tells that of the library. */
#define DICOMM_VERSION_MAJOR 0
#define DICOMM_VERSION_MINOR 2
#define DICOMM_VERSION_PATCH 0
#define DICOMM_VERSION                                               \
	(DICOMM_VERSION_MAJOR * 10000 + DICOMM_VERSION_MINOR * 100 + \
	 DICOMM_VERSION_PATCH)

/** What became of a call. Values below 16 are NCCL's. */
typedef enum {
	DICOMM_SUCCESS = 0,
	/** A device or its driver failed. */
	DICOMM_ERR_DEVICE = 1,
	/** A system call failed; the text has the system's words. */
	DICOMM_ERR_SYSTEM = 2,
	/** A bug of this library; please report it. */
	DICOMM_ERR_INTERNAL = 3,
	/** An argument is wrong; the text names it and its value. */
	DICOMM_ERR_INVALID_ARGUMENT = 4,
	/** The call does not fit what this rank, or another one, has called. */
	DICOMM_ERR_INVALID_USAGE = 5,
	/** Another rank died, left or failed; the text names it. */
	DICOMM_ERR_REMOTE = 6,
	/** Not an error: poll dicomm_comm_get_async_error(). */
	DICOMM_IN_PROGRESS = 7,
	/** A peer did not come in time; the text names it. */
	DICOMM_ERR_TIMEOUT = 8,
	/** Out of host or device memory. */
	DICOMM_ERR_NO_MEMORY = 16,
	/** This build, or a device or machine, cannot do that. */
	DICOMM_ERR_UNSUPPORTED = 17,
	/** No transport connects two ranks; the text says why each fails. */
	DICOMM_ERR_NO_PATH = 18,
	/** This rank called dicomm_comm_abort(). */
	DICOMM_ERR_ABORTED = 19
} dicomm_result_t;

/**
 * Type of an element. Values below 16 are NCCL's. Buffers need no alignment.
 *
 * Integers wrap around. Floats below 32 bits are computed in float32 and
 * rounded to nearest even at each hop, once for each element in deterministic
 * mode. NaN and infinity are preserved. A result that rounds to more than the
 * largest number of its type becomes infinity with its sign or, in a type
 * without infinity (float8 E4M3 and both FNUZ), NaN: half a step beyond it, or,
 * in E4M3, whose largest number is even, from above that on: 448 + 16 is 448,
 * and 448 + 18 is NaN. Nothing is clamped but averages (DICOMM_AVG). The four
 * float8 types are different encodings, of different vendors, and never
 * converted into each other.
 */
typedef enum {
	DICOMM_INT8 = 0,
	DICOMM_CHAR = 0,
	DICOMM_UINT8 = 1,
	DICOMM_INT32 = 2,
	DICOMM_INT = 2,
	DICOMM_UINT32 = 3,
	DICOMM_INT64 = 4,
	DICOMM_UINT64 = 5,
	/** IEEE 754 binary16 */
	DICOMM_FLOAT16 = 6,
	DICOMM_HALF = 6,
	DICOMM_FLOAT32 = 7,
	DICOMM_FLOAT = 7,
	DICOMM_FLOAT64 = 8,
	DICOMM_DOUBLE = 8,
	/** The upper half of a float32 */
	DICOMM_BFLOAT16 = 9,
	/** OCP E4M3: no infinity, largest 448 */
	DICOMM_FLOAT8E4M3 = 10,
	/** OCP E5M2: with infinity, largest 57344 */
	DICOMM_FLOAT8E5M2 = 11,
	DICOMM_INT16 = 16,
	DICOMM_UINT16 = 17,
	/** E4M3 without infinity and negative zero, largest 240 */
	DICOMM_FLOAT8E4M3FNUZ = 18,
	/** E5M2 without infinity and negative zero, largest 57344 */
	DICOMM_FLOAT8E5M2FNUZ = 19,
	/** One byte that is 0 or 1, as C and C++ have it. Reduced by DICOMM_BOR
	 * (any), DICOMM_BAND (all), DICOMM_BXOR, and by DICOMM_MAX and
	 * DICOMM_MIN, which are any and all. Other bytes are moved as they are;
	 * what they reduce to is not defined. */
	DICOMM_BOOL = 20,
	/** Two float32: the real and the imaginary part. Reduced by DICOMM_SUM
	 * and DICOMM_AVG. */
	DICOMM_COMPLEX64 = 21,
	/** Two float64, likewise */
	DICOMM_COMPLEX128 = 22,
	/** Elements of 2, 4, 8 and 16 bytes that are moved, and of which ranks
	 * compare type and count, but that are not reduced. Those of one byte
	 * are DICOMM_UINT8. */
	DICOMM_BYTES2 = 23,
	DICOMM_BYTES4 = 24,
	DICOMM_BYTES8 = 25,
	DICOMM_BYTES16 = 26
} dicomm_datatype_t;

/**
 * Reduction. Values below 16 are NCCL's; values from 0x100 are operators of a
 * communicator, from dicomm_redop_create_premulsum().
 *
 * The order of evaluation, and so the rounding of floats, may differ between
 * calls and sizes, never between the ranks of one call. In deterministic mode
 * it is rank order, ((0 op 1) op 2) op ..., whatever the size, the placement
 * and the algorithm.
 */
typedef enum {
	DICOMM_SUM = 0,
	DICOMM_PROD = 1,
	/** Largest; NaN if any is NaN; +0 is above -0. */
	DICOMM_MAX = 2,
	/** Least; NaN if any is NaN; -0 is below +0. */
	DICOMM_MIN = 3,
	/** Sum over N. Floats: each input times 1/N, in float32 or, of
	 * float64, in that type, then summed; a sum of finite numbers that
	 * exceeds the largest number of the type becomes that number.
	 * Integers: summed (wrapping), then divided, rounding toward zero. */
	DICOMM_AVG = 4,
	/** Bitwise and; integers and bool only. */
	DICOMM_BAND = 16,
	/** Bitwise or; integers and bool only. */
	DICOMM_BOR = 17,
	/** Bitwise exclusive or; integers and bool only. */
	DICOMM_BXOR = 18,
	/** No operator. With it, created ones are values of this type, as C++
	 * wants it. */
	DICOMM_MAX_REDOP = 0x7fffffff
} dicomm_redop_t;

/** Where the scalar of dicomm_redop_create_premulsum() is. */
typedef enum {
	/** In memory of the communicator's device. */
	DICOMM_SCALAR_DEVICE = 0,
	/** In host memory; read before the call returns. */
	DICOMM_SCALAR_HOST_IMMEDIATE = 1
} dicomm_scalar_residence_t;

/** One rank's handle of a communicator. */
typedef struct dicomm_comm *dicomm_comm_t;

/** A stream of a rank's device: the vendor's own, or NULL for the default one.
 * On a host rank: NULL, for a blocking call, or one from
 * dicomm_host_stream_create(). */
typedef void *dicomm_stream_t;

/** Bytes of a dicomm_unique_id_t. */
#define DICOMM_UNIQUE_ID_BYTES 128

/** Where and by which secret the ranks of one communicator meet. Hand it to the
 * other ranks by any means (MPI, a file, a socket), but to nobody else: whoever
 * knows it can join. */
typedef struct {
	/** Printable, ends in NUL. */
	char text[DICOMM_UNIQUE_ID_BYTES];
} dicomm_unique_id_t;

/** As the peer of dicomm_recv_tag(): any rank; they take turns. */
#define DICOMM_ANY_SOURCE (-1)

/** Tells when an operation on a host stream has ended; from
 * dicomm_host_stream_request(). */
typedef struct dicomm_request *dicomm_request_t;

/** Called when a request is done, with its result. */
typedef void (*dicomm_request_fn_t)(dicomm_result_t status, void *ctx);

/** What a receive got, as dicomm_recv_tag() tells it. */
typedef struct {
	/** Elements received. */
	size_t count;
	/** Rank that sent them. */
	int source;
	/** With this tag. */
	int tag;
} dicomm_status_t;

/** Marks a dicomm_config_t that was initialised. */
#define DICOMM_CONFIG_MAGIC 0xd1c0331u

/** Of an int in dicomm_config_t: not set. */
#define DICOMM_UNDEFINED_INT (-0x7fffffff - 1)

/**
 * Options of a communicator. Begin with DICOMM_CONFIG_INITIALIZER and set what
 * you need:
 *
 *     dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
 *     config.timeout_ms = 60000;
 *
 * A field left alone (DICOMM_UNDEFINED_INT, NULL) is taken from its variable in
 * the environment, else from the default. The library copies the strings.
 * deterministic must be equal on all ranks.
 */
typedef struct {
	/** Set by the initializer, so that fields can be added later. */
	size_t size;
	uint32_t magic;
	uint32_t version;
	/** Device of this rank: "host", "cuda:0". NULL: DICOMM_DEVICE, else
	 * host. */
	const char *device;
	/** Name of the communicator in messages; NULL: "comm". */
	const char *name;
	/** 1 (default): init, split and finalize return when they are done. 0:
	 * they return DICOMM_IN_PROGRESS, init and finalize at once, split when
	 * all ranks have called it. */
	int blocking;
	/** Milliseconds that an operation may wait for a peer without any
	 * progress; 0: for ever. Default: DICOMM_TIMEOUT_MS. */
	int timeout_ms;
	/** Transports to use: "shm", or "^shm" for all but these. Default:
	 * DICOMM_TRANSPORTS. */
	const char *transports;
	/** "auto" or "never": may device memory pass through host memory where
	 * there is no direct path, or no kernel? Default: DICOMM_STAGING. */
	const char *staging;
	/** 1: reduce in rank order, so that results do not depend on size,
	 * placement and algorithm. Default: DICOMM_DETERMINISTIC. */
	int deterministic;
	/** Channels to a peer between each two NICs, 1 to 8, for transports
	 * that have channels: queue pairs of verbs, all NICs together at most
	 * 8. To be equal on all ranks. Default: DICOMM_IB_QPS_PER_CONNECTION.
	 */
	int lanes;
	/** Also gets the messages about this communicator, one line each
	 * without newline, from the thread that the message arises in. Errors
	 * (level 0) and warnings (1) always; info (2), debug (3) and trace (4)
	 * as DICOMM_DEBUG says. It must not use this communicator. */
	void (*log_fn)(int level, const char *message, void *log_ctx);
	/** Passed to log_fn. */
	void *log_ctx;
	/** The caller's own way to meet, instead of the unique id, which is
	 * then ignored; set on all ranks or on none. Not for
	 * dicomm_comm_shrink(). */
	struct {
		/** Gather len bytes at mine from each rank into all, in rank
		 * order. May wait for the other ranks. Init calls it once. */
		dicomm_result_t (*allgather)(const void *mine, void *all,
					     size_t len, void *ctx);
		/** Passed to allgather. */
		void *ctx;
	} bootstrap;
	/** Milliseconds in which all ranks have to come, above 0; INT32_MAX,
	 * which is 24 days, means no bound. Default: DICOMM_BOOTSTRAP_TIMEOUT
	 * seconds, or where that is not set 60 s, or 600 s in a process of a
	 * launcher. Each ten seconds a warning names those that are missing.
	 * What asks a launcher, and an id's server, knows the default only. */
	int bootstrap_timeout_ms;
	/** "off", "auto", "nccl" or "rccl": do collectives within a host go by
	 * the library of the device's vendor? See docs/islands.md. To be equal
	 * on all ranks. Default: DICOMM_ISLAND. */
	const char *island;
} dicomm_config_t;

/** Initial value of a dicomm_config_t: nothing set. */
#define DICOMM_CONFIG_INITIALIZER                                             \
	{                                                                     \
		sizeof(dicomm_config_t), DICOMM_CONFIG_MAGIC, DICOMM_VERSION, \
			NULL, NULL, DICOMM_UNDEFINED_INT,                     \
			DICOMM_UNDEFINED_INT, NULL, NULL,                     \
			DICOMM_UNDEFINED_INT, DICOMM_UNDEFINED_INT, NULL,     \
			NULL, {NULL, NULL}, DICOMM_UNDEFINED_INT, NULL        \
	}

/** What one rank has done on a communicator since init. Bytes are payload. */
typedef struct {
	/** Set by the caller to sizeof(dicomm_stats_t). */
	size_t size;
	/** Collectives, sends, receives and local reductions begun. */
	uint64_t operations;
	uint64_t messages_sent;
	uint64_t messages_received;
	/** Left this rank. */
	uint64_t bytes_sent;
	uint64_t bytes_received;
	/** Of those received: all but bytes_staged. */
	uint64_t bytes_direct;
	/** Of those received: from or to device memory, through host memory
	 * that is neither an operand nor the inbox of a host rank. */
	uint64_t bytes_staged;
	/** Host ranks: copied out of an inbox, of whatever transport. */
	uint64_t bytes_ring;
	/** Host ranks: read in place from mapped memory. */
	uint64_t bytes_mapped;
	/** Host ranks: read by process_vm_readv. */
	uint64_t bytes_cma;
	/** Peers that data went to or came from. */
	uint64_t connected_peers;
	/** Bytes of memory that the communicator holds. */
	uint64_t memory_bytes;
	/** Pulled over a network, from the sender's memory. */
	uint64_t bytes_rdma;
	/** Host ranks: written by a device into the inbox of this rank, and
	 * copied from there. Data that this rank reduces from its inbox counts
	 * in bytes_mapped. */
	uint64_t bytes_landed;
	/** Device ranks: copied on the device, between the buffers of an
	 * operation and staging buffers of the library there, which neighbours
	 * and networks reach; see dicomm_comm_register(). */
	uint64_t bytes_copied;
	/** Of memory_bytes: in the memory of this rank's device; 0 on a host
	 * rank. What the driver takes for kernels and streams is not counted.
	 */
	uint64_t device_bytes;
	/** 1 while a thread of this rank is in an operation, or one is queued;
	 * else 0. */
	uint64_t under_way;
	/** Of the communicator, equal on all ranks: a random number that tells
	 * it from others; 0 until it is ready. */
	uint64_t comm_hash;
} dicomm_stats_t;

/** One parameter of the library, as dicomm_param_info() tells it. */
typedef struct {
	/** Variable in the environment: "DICOMM_DEBUG". */
	const char *name;
	/** "string", "int", "bytes" (takes K, M, G, T) or "bool". */
	const char *type;
	/** "" where nothing is the default. */
	const char *default_value;
	/** In effect; "(hidden)" for a secret. */
	const char *value;
	/** "default", or "environment" with the variable that was taken:
	 * "environment NCCL_DEBUG". */
	const char *origin;
	/** One line. */
	const char *help;
} dicomm_param_info_t;

/** Where other hosts reach this one, as dicomm_network_info() tells it. */
typedef struct {
	/** "eth0" */
	char interface[64];
	/** "10.0.0.7", or an IPv6 address. */
	char address[64];
	/** Why it is this one. */
	char reason[128];
} dicomm_network_info_t;

/** One transport, as dicomm_transport_info() tells it. */
typedef struct {
	/** "shm"; a value of DICOMM_TRANSPORTS. */
	const char *name;
	/** Can this process use it? */
	int usable;
	/** If not, why; else what it found. */
	char reason[1024];
} dicomm_transport_info_t;

/** One kind of device of this build, as dicomm_device_kind_info() tells it. */
typedef struct {
	/** "cuda"; a device of it is "cuda:0" or "cuda" for short. */
	const char *name;
	/** Devices that a rank can be bound to. */
	int devices;
	/** If there are none, why. */
	char reason[256];
} dicomm_device_kind_info_t;

/** A device and a network adapter, as dicomm_adapter_info() tells it. */
typedef struct {
	/** "cuda:0". */
	char device[32];
	/** "verbs"; a value of DICOMM_TRANSPORTS. */
	const char *transport;
	/** Adapter and port: "mlx5_0:1". */
	char adapter[80];
	/** Does it read and write the memory of the device itself? */
	int direct;
	/** In which way: "dma-buf", or "peer memory" and why not the former; or
	 * why not. */
	char how[256];
} dicomm_adapter_info_t;

/** One device, as dicomm_device_info() tells it. */
typedef struct {
	/** "host", "cuda:0"; a value of DICOMM_DEVICE. */
	char name[32];
	/** Who made it. */
	char vendor[32];
	/** Its model. */
	char description[128];
	/** "0000:17:00.0"; empty for the host. */
	char pci[16];
} dicomm_device_info_t;

/** Axes of a tensor, and dims of a mesh, at most. */
#define DICOMM_AXES 8

/**
 * A box of a tensor: the elements whose index is in lo[a] .. hi[a] - 1 on each
 * axis a, on one rank. It may be empty. Set all of it to zero first.
 */
typedef struct {
	/** Rank of the communicator that holds or wants it. */
	int rank;
	/** Of a source: which term of the sum it is; see dicomm_tensor_t. */
	int term;
	/** First index on each axis, and the one after the last. */
	int64_t lo[DICOMM_AXES];
	int64_t hi[DICOMM_AXES];
	/** Elements from the pointer that dicomm_redistribute_run() is given to
	 * the first element of the box; 0 or more. */
	int64_t offset;
	/** Elements between neighbours along each axis, 0 or more, in any
	 * order. Of a target, such that no two elements are in one place; nor
	 * may two target boxes of a rank have a place in common. All 0: in
	 * row-major order without gaps. */
	int64_t stride[DICOMM_AXES];
} dicomm_box_t;

/** How one dim of a mesh has a tensor; the words of DTensor. */
typedef enum {
	/** Each has all. */
	DICOMM_REPLICATE = 0,
	/** Each has an interval of one axis. */
	DICOMM_SHARD = 1,
	/** Each has one term of a sum. */
	DICOMM_PARTIAL = 2
} dicomm_placement_kind_t;

/** A placement. */
typedef struct {
	dicomm_placement_kind_t kind;
	/** Of DICOMM_SHARD: the axis. */
	int axis;
	/** Of DICOMM_SHARD: elements of each part, 0 or more, which are the
	 * axis together. NULL: equal parts, rounded up, of which the last ones
	 * are shorter or empty, as torch.chunk() makes them. */
	const int64_t *extents;
} dicomm_placement_t;

/** Ranks in a grid, and how each dim of it has a tensor. */
typedef struct {
	/** 1 to DICOMM_AXES. */
	int dims;
	/** Of each dim, 1 or more; together at most INT_MAX ranks. */
	int extent[DICOMM_AXES];
	/** All ranks, each once, the last dim counting fastest. */
	const int *ranks;
	dicomm_placement_t placements[DICOMM_AXES];
} dicomm_mesh_t;

/**
 * A tensor, where it is and where it is to be. Begin with
 * DICOMM_TENSOR_INITIALIZER.
 *
 * Boxes of a source may overlap. Boxes of one term are copies: where they
 * overlap they have equal elements, and any of them is read. The result is the
 * sum over the terms, each times its weight, and each term has to cover what is
 * wanted. With one term, of weight 1, that is a copy.
 */
typedef struct {
	/** Set by the initializer. */
	size_t size;
	/** For messages; NULL: none. */
	const char *name;
	dicomm_datatype_t type;
	/** 1 to DICOMM_AXES. */
	int axes;
	/** Elements along each axis; 0 is an empty tensor. */
	int64_t shape[DICOMM_AXES];
	/** Boxes of all ranks, in any order; a rank may have several. */
	const dicomm_box_t *source;
	size_t sources;
	const dicomm_box_t *target;
	size_t targets;
	/** Terms of the sum, numbered from 0, at most 2^20; 0 means 1. */
	int terms;
	/** A finite weight for each term, of float types; NULL: all are 1. How
	 * products are rounded: see dicomm_redistribute_plan(). */
	const double *weights;
} dicomm_tensor_t;

/** Initial value of a dicomm_tensor_t: nothing set. */
#define DICOMM_TENSOR_INITIALIZER                                           \
	{                                                                   \
		sizeof(dicomm_tensor_t), NULL, DICOMM_INT8, 0,              \
			{0, 0, 0, 0, 0, 0, 0, 0}, NULL, 0, NULL, 0, 0, NULL \
	}

/** In which way pieces get to several ranks that want them. */
typedef enum {
	/** The one with the least predicted time. */
	DICOMM_WAY_AUTO = 0,
	/** Each rank gets all that it wants from ranks that hold it. A sum is
	 * made where that moves the fewest bytes: on the rank that has the most
	 * terms, even if it does not want the sum. That rank passes it on. */
	DICOMM_WAY_DIRECT = 1,
	/** Ranks that want the same get a share of it each, and pass that on to
	 * the others. A sum is shared by the ranks on which it moves the fewest
	 * bytes, or, where hosts have unlike links, by all that want it. */
	DICOMM_WAY_SCATTER = 2,
	/** One of them gets it, or a rank on which that moves the fewest bytes
	 * adds it up, and passes it on to the others. */
	DICOMM_WAY_LEADER = 3
} dicomm_way_t;

/** Options of dicomm_redistribute_plan(); equal on all ranks. Begin with
 * DICOMM_REDISTRIBUTE_CONFIG_INITIALIZER. */
typedef struct {
	/** Set by the initializer. */
	size_t size;
	dicomm_way_t way;
	/** Bytes of memory of its device that a rank may use beside the tensors
	 * and the description of its pieces; at least 4096. 0: 64 MiB. All runs
	 * of a plan share them, also those that are under way on several
	 * streams. They do not cover the buffers that the communicator has
	 * anyway (dicomm_stats_t), nor the host memory that a run on a stream
	 * takes for each tensor, round and message until it is done. */
	size_t staging_bytes;
	/** 1: elements that no target wants are not an error. Else 0. */
	int allow_unwanted;
	/** 1: do not compare the descriptions of the ranks. The call is then a
	 * local one. Else 0. */
	int local;
} dicomm_redistribute_config_t;

/** Initial value of a dicomm_redistribute_config_t: nothing set. */
#define DICOMM_REDISTRIBUTE_CONFIG_INITIALIZER                                 \
	{                                                                      \
		sizeof(dicomm_redistribute_config_t), DICOMM_WAY_AUTO, 0, 0, 0 \
	}

/** A window of a communicator, from dicomm_comm_window_register(). */
typedef struct dicomm_window *dicomm_window_t;

/** Flags of dicomm_comm_window_register(), with NCCL's values: both are hints,
 * and change nothing so far. */
#define DICOMM_WINDOW_DEFAULT 0x00
#define DICOMM_WINDOW_SYMMETRIC 0x01
#define DICOMM_WINDOW_STRICT 0x02
/** And one that is no hint: the window ends on each rank alone, as in NCCL; see
 * dicomm_comm_window_deregister(). All ranks give it, or none does. */
#define DICOMM_WINDOW_ENDS_ALONE 0x100

/** Signals of a context, and contexts, between each two ranks. */
#define DICOMM_SIGNALS 256
#define DICOMM_SIGNAL_CONTEXTS 16
/** As the signal of dicomm_put_signal(): none. */
#define DICOMM_NO_SIGNAL (-1)

/** What dicomm_wait_signal() waits for. */
typedef struct {
	/** So many signals more than earlier waits have taken. */
	int count;
	/** Rank that sends them. */
	int peer;
	/** From 0 to DICOMM_SIGNALS - 1. */
	int signal;
	/** From 0 to DICOMM_SIGNAL_CONTEXTS - 1. */
	int context;
} dicomm_wait_signal_desc_t;

/** A plan of one rank, from dicomm_redistribute_plan(). */
typedef struct dicomm_redistribute *dicomm_redistribute_t;

/** What one run of a plan does, as dicomm_redistribute_info() tells it. */
typedef struct {
	/** Set by the caller to sizeof(dicomm_redistribute_info_t). */
	size_t size;
	/** Never DICOMM_WAY_AUTO. */
	dicomm_way_t way;
	/** Predicted, of that way; and of each way, by its number. NAN: not
	 * known. */
	double seconds;
	double seconds_of[4];
	/** Messages and bytes of this rank, without what it copies itself. */
	uint64_t messages_sent;
	uint64_t messages_received;
	uint64_t bytes_sent;
	uint64_t bytes_received;
	/** Bytes that all ranks send, and of these, between hosts. */
	uint64_t bytes_of_all;
	uint64_t bytes_between_hosts;
	/** Exchanges one after the other, on this rank. */
	uint64_t rounds;
	/** Memory of the device that the plan holds beside the tensors, for all
	 * its runs together. */
	uint64_t staging_bytes;
	/** Host memory of the plan. */
	uint64_t plan_bytes;
} dicomm_redistribute_info_t;

/**
 * Tell the version of the library.
 *
 * Threads: any.
 *
 * @param version  set to major * 10000 + minor * 100 + patch
 *
 * @retval DICOMM_SUCCESS               *version is set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  version is NULL
 */
dicomm_result_t dicomm_get_version(int *version);

/**
 * Describe a status in a few words.
 *
 * Threads: any.
 *
 * @param result  status
 * @return a constant string, never NULL
 */
const char *dicomm_get_error_string(dicomm_result_t result);

/**
 * Tell what went wrong: the text of the message that was logged.
 *
 * With a broken communicator: why it broke. Else: the last error of the calling
 * thread, "" if there was none.
 *
 * Buffers: the text stays valid until the next call of this library by the same
 * thread.
 *
 * Threads: any.
 *
 * @param comm  communicator, or NULL
 * @return a string, never NULL
 */
const char *dicomm_get_last_error(dicomm_comm_t comm);

/**
 * Make the id by which the ranks of one communicator meet.
 *
 * The calling process listens on a port (DICOMM_SOCKET_IFNAME,
 * DICOMM_SOCKET_FAMILY, DICOMM_PORT_RANGE) and serves the id in the
 * background until all ranks have come or DICOMM_BOOTSTRAP_TIMEOUT is over; it
 * must live that long. One process calls it, usually that of rank 0, and hands
 * the id to the others. One id serves one communicator.
 *
 * Threads: any.
 *
 * @param id  set to the id, with a fresh secret
 *
 * @retval DICOMM_SUCCESS               *id is set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  id is NULL
 * @retval DICOMM_ERR_INVALID_USAGE     DICOMM_SOCKET_IFNAME and
 *                                      DICOMM_SOCKET_FAMILY leave no interface
 * @retval DICOMM_ERR_SYSTEM            no port to listen on
 * @retval DICOMM_ERR_NO_MEMORY         out of memory
 */
dicomm_result_t dicomm_get_unique_id(dicomm_unique_id_t *id);

/**
 * Make the id by which the ranks of one communicator meet at an address that
 * all of them know, so that nothing has to be handed over.
 *
 * Each rank calls it. The process of rank 0 listens at the address and serves
 * the id, as with dicomm_get_unique_id(); no other communicator can begin there
 * meanwhile. DICOMM_COMM_KEY is the secret, equal on all ranks: without it,
 * whoever reaches the address can join, and a warning says so.
 *
 * A host's name may have up to 255 characters. An id has room for about 70; of
 * a longer name it has a hash, and is good only in processes that have called
 * this function with that name.
 *
 * Threads: any.
 *
 * Ranks may know the host by different names: the secret depends on the port
 * only. The process of rank 0 listens at an address of its own; for a name, or
 * an address that is translated to one of its own (NAT), at that port of all
 * its addresses. If another process has the port, it tries again for
 * DICOMM_BOOTSTRAP_TIMEOUT.
 *
 * @param address  "host:port" or "[address]:port"
 * @param rank     this rank, 0 or more
 * @param id       set to the id, of one secret on all ranks
 *
 * @retval DICOMM_SUCCESS               *id is set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  address or id is NULL, address is not of
 *                                      that form, rank
 *                                      is negative, or DICOMM_COMM_KEY is
 *                                      longer than 255 characters
 * @retval DICOMM_ERR_SYSTEM            rank 0 cannot listen there
 * @retval DICOMM_ERR_NO_MEMORY         out of memory
 */
dicomm_result_t dicomm_unique_id_at(const char *address, int rank,
				    dicomm_unique_id_t *id);

/**
 * Join a communicator as one of its ranks, with default options.
 *
 * As dicomm_comm_init_rank_config() with config NULL.
 *
 * @param comm    set to this rank's handle; to NULL on failure
 * @param nranks  number of ranks, at least 1
 * @param id      from dicomm_get_unique_id(), equal on all ranks
 * @param rank    this rank, 0 to nranks - 1, different on all ranks
 *
 * @retval DICOMM_SUCCESS  the communicator is ready
 * @retval others          see dicomm_comm_init_rank_config()
 */
dicomm_result_t dicomm_comm_init_rank(dicomm_comm_t *comm, int nranks,
				      dicomm_unique_id_t id, int rank);

/**
 * Join a communicator as one of its ranks.
 *
 * Returns when all ranks have come, at the latest after
 * DICOMM_BOOTSTRAP_TIMEOUT seconds. A rank that has come and still builds the
 * kernels of its device is waited for up to ten minutes longer. Version, byte
 * order and settings that must be equal are compared, and a difference is
 * named. Paths to peers are made when they are first used: a pair of ranks that
 * no transport connects gets DICOMM_ERR_NO_PATH of the first operation in which
 * one sends to the other.
 *
 * With config.blocking 0 it returns DICOMM_IN_PROGRESS and goes on in the
 * background. Until dicomm_comm_get_async_error() gives something else, the
 * handle is good for that function, dicomm_comm_abort() and
 * dicomm_comm_destroy() only; after a failure too it is to be destroyed.
 *
 * Order: a collective call of all ranks. A thread that joins as several ranks
 * does so in a group; then the handles are good after dicomm_group_end().
 *
 * Threads: any.
 *
 * @param comm    set to this rank's handle; to NULL on failure
 * @param nranks  number of ranks, at least 1
 * @param id      from dicomm_get_unique_id(), equal on all ranks; ignored with
 *                config.bootstrap
 * @param rank    this rank, 0 to nranks - 1, different on all ranks
 * @param config  options; NULL for none
 *
 * @retval DICOMM_SUCCESS               the communicator is ready
 * @retval DICOMM_IN_PROGRESS           see config.blocking
 * @retval DICOMM_ERR_INVALID_ARGUMENT  a bad argument, option or id; no such
 *                                      device or transport; a bad value of a
 *                                      variable that protects (README)
 * @retval DICOMM_ERR_INVALID_USAGE     ranks disagree (number of ranks, a rank
 *                                      taken twice, version, settings); named;
 *                                      or no interface to meet over
 * @retval DICOMM_ERR_TIMEOUT           ranks did not come in time; named
 * @retval DICOMM_ERR_REMOTE            a rank died or failed meanwhile; named
 * @retval DICOMM_ERR_NO_PATH           no transport can be used (the reason for
 *                                      each is named), or two devices have no
 *                                      direct path and staging is "never"
 * @retval DICOMM_ERR_UNSUPPORTED       a device or transport cannot do what it
 *                                      would have to
 * @retval DICOMM_ERR_DEVICE            the driver of the device failed
 * @retval DICOMM_ERR_SYSTEM            a system call failed
 * @retval DICOMM_ERR_NO_MEMORY         out of memory
 */
dicomm_result_t dicomm_comm_init_rank_config(dicomm_comm_t *comm, int nranks,
					     dicomm_unique_id_t id, int rank,
					     const dicomm_config_t *config);

/**
 * Join the communicator of all processes that a launcher has started, with
 * default options.
 *
 * As dicomm_comm_init_env_config() with config NULL.
 *
 * @param comm  set to this rank's handle; to NULL on failure
 *
 * @retval DICOMM_SUCCESS  the communicator is ready
 * @retval others          see dicomm_comm_init_env_config()
 */
dicomm_result_t dicomm_comm_init_env(dicomm_comm_t *comm);

/**
 * Join the communicator of all processes that a launcher has started.
 *
 * Rank, number of ranks and id come from the first of these that is there:
 *  - DICOMM_RANK, DICOMM_SIZE and DICOMM_COMM_ID (host:port where rank 0
 *    listens, with DICOMM_COMM_KEY as its secret; or the text of a
 *    dicomm_unique_id_t). DICOMM_RANK alone, or DICOMM_SIZE alone, is refused;
 *  - PMIx (Open MPI's mpirun, Slurm's srun --mpi=pmix);
 *  - PMI (MPICH's mpiexec);
 *  - torchrun (RANK, WORLD_SIZE, MASTER_ADDR, and the port after MASTER_PORT);
 *  - Slurm (the first node, and a port from 20000 to 31999 by the number of the
 *    step).
 * MPI itself is not used. With torchrun and Slurm, too, DICOMM_COMM_KEY is the
 * secret: without it whoever guesses the number of the job can join, and a
 * warning says so.
 *
 * The call waits for the launcher, also with config.blocking 0; see
 * dicomm_comm_init_rank_config().
 *
 * Order: a collective call of all processes, once.
 *
 * Threads: any, one at a time.
 *
 * @param comm    set to this rank's handle; to NULL on failure
 * @param config  options; NULL for none
 *
 * @retval DICOMM_SUCCESS            the communicator is ready
 * @retval DICOMM_IN_PROGRESS        see config.blocking
 * @retval DICOMM_ERR_INVALID_USAGE  no launcher was found (the text lists what
 *                                   was looked for), or ranks disagree
 * @retval others                    see dicomm_comm_init_rank_config()
 */
dicomm_result_t dicomm_comm_init_env_config(dicomm_comm_t *comm,
					    const dicomm_config_t *config);

/**
 * Make a communicator whose ranks are all in this process.
 *
 * Rank i is bound to devices[i]. One thread that makes blocking calls for
 * several of the ranks does so in a group.
 *
 * Threads: any.
 *
 * @param comms    set to ndev handles; to NULL on failure
 * @param ndev     number of ranks, 1 to 65536
 * @param devices  ndev names of devices, which may repeat; NULL: ndev times
 *                 the default device
 *
 * @retval DICOMM_SUCCESS               the communicator is ready
 * @retval DICOMM_ERR_INVALID_ARGUMENT  a bad argument, or no such device
 * @retval others                       see dicomm_comm_init_rank_config()
 */
dicomm_result_t dicomm_comm_init_all(dicomm_comm_t *comms, int ndev,
				     const char *const *devices);

/**
 * Divide the ranks of a communicator into new communicators.
 *
 * Ranks of equal color make one communicator, ordered by key, ranks of equal
 * key by their old number. The old communicator stays as it is. The new ones
 * use what the old one has measured of the links between hosts.
 *
 * A rank may be unable to take part: its config names a device that is not
 * there, or it has no memory left. The others of its color get an error that
 * names it, and do not wait for it. The old communicator and those of other
 * colors go on.
 *
 * Order: a collective call of all ranks, also those that give
 * DICOMM_SPLIT_NOCOLOR, or whose arguments are bad. One at a time with the
 * other collective calls of setup (dicomm_comm_grow(), the registration and end
 * of windows): ranks that make unlike ones break the communicator.
 *
 * Threads: one call at a time per communicator.
 *
 * @param comm     communicator to divide
 * @param color    0 or more; DICOMM_SPLIT_NOCOLOR: in no new communicator
 * @param key      place in the order of the new ranks
 * @param newcomm  set to the handle of the new communicator; to NULL with
 *                 DICOMM_SPLIT_NOCOLOR and on failure
 * @param config   options of the new communicator; NULL: those of the old one
 *
 * @retval DICOMM_SUCCESS               the new communicator is ready
 * @retval DICOMM_IN_PROGRESS           see config.blocking
 * @retval DICOMM_ERR_INVALID_ARGUMENT  a bad argument, here or on another rank,
 *                                      which is named, then on all; nothing
 *                                      happened
 * @retval others                       no new communicator; the old one may be
 *                                      broken, dicomm_comm_get_async_error()
 *                                      tells
 */
dicomm_result_t dicomm_comm_split(dicomm_comm_t comm, int color, int key,
				  dicomm_comm_t *newcomm,
				  const dicomm_config_t *config);

/** As the color of dicomm_comm_split(): in no new communicator. */
#define DICOMM_SPLIT_NOCOLOR (-1)

/**
 * Make a communicator of some ranks of another one, by a call of these alone.
 *
 * New rank i is rank ranks[i] of the old communicator, which stays as it is.
 * Its other ranks need not know; operations on it may go on meanwhile. The tag
 * tells apart groups of the same ranks that are made at the same time. Like
 * MPI_Comm_create_group().
 *
 * All have to come within DICOMM_BOOTSTRAP_TIMEOUT
 * (config.bootstrap_timeout_ms) and then have as long again to connect. If the
 * attempt fails, so it does on all members, and the old communicator goes on
 * unless a rank of it has died. Then the members whose fault it is not get:
 *  - if a member cannot take part (its device is not there, its newcomm is NULL
 *    or its config bad): that member's status, in an error that names it and
 *    says why, as soon as all have come;
 *  - if a member does not come, which is also what a list or a tag does that
 *    differs, or a list that is refused: DICOMM_ERR_TIMEOUT, which names who
 *    did not come with that tag and list, when the shortest of their times is
 *    nearly over;
 *  - if a member or rank 0 has left, or any rank dies: DICOMM_ERR_REMOTE, which
 *    names it, at once or, of a member that has left, as soon as the rest have
 *    come.
 * Rank 0 of the old communicator passes their messages on: it may be no member,
 * but must not have destroyed its handle. If any rank of the old communicator
 * dies meanwhile, that communicator is broken, and so is the attempt.
 *
 * Order: a collective call of the members. A member of several groups makes
 * them in an order that does not have two wait for each other.
 *
 * Threads: one call at a time per communicator.
 *
 * @param comm     communicator of which all members are ranks
 * @param ranks    the members, each once, in the order of the new ranks; equal
 *                 on all of them
 * @param nranks   number of members, at least 1
 * @param tag      equal on all members; any number
 * @param newcomm  set to the handle of the new communicator; to NULL on failure
 * @param config   options of the new communicator; NULL: those of the old one
 *
 * @retval DICOMM_SUCCESS               the new communicator is ready
 * @retval DICOMM_IN_PROGRESS           see config.blocking; returned when all
 *                                      members have called
 * @retval DICOMM_ERR_INVALID_ARGUMENT  a bad argument, or this rank is no
 *                                      member; of another member: see above;
 *                                      nothing happened
 * @retval DICOMM_ERR_TIMEOUT           members did not come; named
 * @retval DICOMM_ERR_REMOTE            a rank died, or rank 0 or a member has
 *                                      left the old communicator; named
 * @retval others                       no new communicator; the old one may be
 *                                      broken, dicomm_comm_get_async_error()
 *                                      tells
 */
dicomm_result_t dicomm_comm_create_group(dicomm_comm_t comm, const int *ranks,
					 int nranks, int tag,
					 dicomm_comm_t *newcomm,
					 const dicomm_config_t *config);

/**
 * Make a communicator of the ranks that remain when some are left out.
 *
 * The new ranks are the old ones in their order, less those in exclude and
 * those that have died. The old communicator may be broken; it stays as it is
 * and is still to be destroyed. A rank that is alive and has not called this
 * when half of DICOMM_BOOTSTRAP_TIMEOUT is over is left out, too, with a
 * warning that names it. Where the survivors are not the majority of the old
 * ranks (at exactly half: not with its lowest rank), they get
 * DICOMM_ERR_REMOTE, so that no two successors arise. They need no majority if
 * all come that are not excluded, and all that are excluded are well: they have
 * a handle of the old communicator still, or have left it in good order. The
 * new communicator uses what was measured of the links between hosts.
 *
 * All ranks that live to return get the same result, whichever rank dies
 * meanwhile. A rank that dies after the new communicator was ready is a member
 * of it; operations there fail with DICOMM_ERR_REMOTE. Shrink it then.
 *
 * Order: a collective call of the ranks that remain, with equal excludes. A
 * rank whose arguments are refused has not called it.
 *
 * Threads: one call at a time per communicator.
 *
 * @param comm      communicator to shrink
 * @param exclude   ranks to leave out, not the calling one
 * @param nexclude  their number; 0: only those that have died or do not come
 * @param newcomm   set to the handle of the new communicator; to NULL on
 *                  failure
 * @param config    options of the new communicator, which is made and later
 *                  finalized as with blocking 1; NULL: those of the old one
 *
 * @retval DICOMM_SUCCESS               the new communicator is ready
 * @retval DICOMM_ERR_INVALID_ARGUMENT  a bad argument; nothing happened
 * @retval DICOMM_ERR_INVALID_USAGE     not ready yet, or after fork
 * @retval DICOMM_ERR_REMOTE            not the majority; no new communicator
 * @retval DICOMM_ERR_TIMEOUT           ranks did not come; no new communicator
 * @retval DICOMM_ERR_NO_PATH, DICOMM_ERR_DEVICE, DICOMM_ERR_SYSTEM,
 *         DICOMM_ERR_NO_MEMORY  no new communicator
 */
dicomm_result_t dicomm_comm_shrink(dicomm_comm_t comm, const int *exclude,
				   int nexclude, dicomm_comm_t *newcomm,
				   const dicomm_config_t *config);

/**
 * Make the id by which ranks join a communicator that grows.
 *
 * One rank calls it and hands the id to the joiners by any means; its next
 * dicomm_comm_grow() of comm tells the other old ranks. It serves the id as
 * dicomm_get_unique_id() does, until all have come or DICOMM_BOOTSTRAP_TIMEOUT
 * is over. One id serves one attempt to grow.
 *
 * Threads: one call at a time per communicator.
 *
 * @param comm  communicator that is to grow
 * @param id    set to the id, with a fresh secret
 *
 * @retval DICOMM_SUCCESS               *id is set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no communicator, or id is NULL
 * @retval others                       see dicomm_get_unique_id()
 */
dicomm_result_t dicomm_comm_get_unique_id(dicomm_comm_t comm,
					  dicomm_unique_id_t *id);

/**
 * Make a communicator of all ranks of another one and of new ranks.
 *
 * The old ranks keep their numbers, the new ones get those behind. The old
 * communicator stays as it is, and is still to be destroyed. If the attempt
 * fails it can go on to be used, and to grow by another id.
 *
 * A rank that does not come in time, dies, has the number of another one, or
 * has another version or other settings, is named to all others, as in
 * dicomm_comm_init_rank_config(). A joiner whose id has another secret is
 * refused, and the others go on waiting for the right one. If a rank of the
 * old communicator dies meanwhile, that communicator is broken. It has to work
 * when it grows: after a death, shrink it first.
 *
 * Order: a collective call of all ranks, old and new; of the old ones as
 * dicomm_comm_split(). These wait for each other first, as long as their old
 * communicator would for an operation.
 *
 * Threads: one call at a time per communicator.
 *
 * @param comm     communicator that grows; NULL: this rank joins it
 * @param nranks   number of ranks of the new communicator, more than the old
 *                 one has
 * @param id       from dicomm_comm_get_unique_id(), of each joiner; on an old
 *                 rank NULL, or the same id: if any old rank gives one, it
 *                 counts, and else the one that an old rank has made
 * @param rank     of a joiner: its new rank, from the number of old ranks to
 *                 nranks - 1, different on all; of an old rank: -1
 * @param newcomm  set to the handle of the new communicator; to NULL on failure
 * @param config   options of the new communicator; NULL: on an old rank those
 *                 of the old one, on a joiner none. config.bootstrap is ignored
 *
 * @retval DICOMM_SUCCESS               the new communicator is ready
 * @retval DICOMM_IN_PROGRESS           see config.blocking; on an old rank
 *                                      returned when all old ranks have called
 * @retval DICOMM_ERR_INVALID_ARGUMENT  a bad argument, here or on another old
 *                                      rank, which is named, then on all old
 *                                      ranks; nothing happened
 * @retval DICOMM_ERR_INVALID_USAGE     ranks disagree; named. Or no old rank
 *                                      has an id, or two have unlike ones
 * @retval others                       no new communicator; see
 *                                      dicomm_comm_init_rank_config(). The old
 *                                      one may be broken,
 *                                      dicomm_comm_get_async_error() tells
 */
dicomm_result_t dicomm_comm_grow(dicomm_comm_t comm, int nranks,
				 const dicomm_unique_id_t *id, int rank,
				 dicomm_comm_t *newcomm,
				 const dicomm_config_t *config);

/**
 * End a communicator in good order: complete what is queued, and take leave of
 * the peers.
 *
 * Returns when all operations of this rank are done and its peers have received
 * what it sent. The others need not leave at the same time. Afterwards the
 * handle is good for dicomm_comm_destroy() and the queries only.
 *
 * Order: after the last operation of this rank. A rank that still waits for
 * one that has finalized gets DICOMM_ERR_REMOTE or DICOMM_ERR_INVALID_USAGE.
 *
 * Threads: one call at a time per communicator.
 *
 * @param comm  communicator
 *
 * @retval DICOMM_SUCCESS               done
 * @retval DICOMM_IN_PROGRESS           see config.blocking
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no communicator
 * @retval DICOMM_ERR_INVALID_USAGE     not ready, called twice, after fork, or
 *                                      after an operation in one group
 * @retval DICOMM_ERR_SYSTEM, DICOMM_ERR_NO_MEMORY
 *                                      it was not begun; or as the following
 * @retval others                       the communicator is broken; destroy it
 */
dicomm_result_t dicomm_comm_finalize(dicomm_comm_t comm);

/**
 * Free a communicator.
 *
 * One that works is finalized first; one that is broken or aborted is freed at
 * once, whatever the peers do. Its created operators go with it; deregister
 * registered buffers before. Call dicomm_comm_finalize() first to learn whether
 * the end was in good order.
 *
 * Order: as dicomm_comm_finalize(), if that was not called.
 *
 * Threads: no other call on this communicator may come later. It waits for
 * operations of other threads that are under way.
 *
 * @param comm  communicator; NULL does nothing
 *
 * @retval DICOMM_SUCCESS               freed
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no communicator
 * @retval DICOMM_ERR_INVALID_USAGE     after fork, after an operation in one
 *                                      group, twice in one group, or inside a
 *                                      call on comm (a signal handler); not
 *                                      freed
 */
dicomm_result_t dicomm_comm_destroy(dicomm_comm_t comm);

/**
 * Stop everything on a communicator.
 *
 * Operations that are under way or queued fail with DICOMM_ERR_ABORTED, also in
 * other threads, and so does every later one. The other ranks are told and
 * fail with DICOMM_ERR_REMOTE. Returns in bounded time, whatever the peers do;
 * once it has returned, nothing writes the buffers of this rank any more. The
 * communicator is still to be destroyed.
 *
 * In a signal handler that has interrupted a call on that communicator it
 * cannot wait for that call. It returns DICOMM_IN_PROGRESS then, and the
 * interrupted call, or the next one, fails with DICOMM_ERR_ABORTED and tells
 * the others.
 *
 * Threads: any, at any time before dicomm_comm_destroy(), any number of times.
 *
 * @param comm  communicator
 *
 * @retval DICOMM_SUCCESS               stopped, now or earlier
 * @retval DICOMM_IN_PROGRESS           called inside a call on comm; see above
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no communicator
 * @retval DICOMM_ERR_INVALID_USAGE     after fork
 */
dicomm_result_t dicomm_comm_abort(dicomm_comm_t comm);

/**
 * Set how long operations may wait for a peer without any progress.
 *
 * It holds for operations under way, too, which count from when their wait
 * began, and for what is called from now on. Ranks may have unlike ones.
 * Communicators that are made from this one have that of their own options.
 *
 * Threads: any, at any time.
 *
 * @param comm        communicator
 * @param timeout_ms  milliseconds; 0: for ever
 *
 * @retval DICOMM_SUCCESS               set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no communicator, or timeout_ms is
 *                                      negative
 * @retval DICOMM_ERR_INVALID_USAGE     after fork
 */
dicomm_result_t dicomm_comm_set_timeout(dicomm_comm_t comm, int timeout_ms);

/**
 * Tell whether a communicator works, without waiting.
 *
 * Threads: any, at any time before dicomm_comm_destroy().
 *
 * @param comm         communicator
 * @param async_error  set to DICOMM_SUCCESS: it works; DICOMM_IN_PROGRESS: init
 *                     or finalize goes on; else why it is broken, or, while no
 *                     call runs, DICOMM_ERR_REMOTE: a rank has died
 *
 * @retval DICOMM_SUCCESS               *async_error is set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no communicator, or a NULL argument
 * @retval DICOMM_ERR_INVALID_USAGE     after fork
 */
dicomm_result_t dicomm_comm_get_async_error(dicomm_comm_t comm,
					    dicomm_result_t *async_error);

/**
 * Tell the number of ranks.
 *
 * Threads: any.
 *
 * @param comm   communicator
 * @param count  set to the number of ranks
 *
 * @retval DICOMM_SUCCESS               *count is set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no communicator, or a NULL argument
 * @retval DICOMM_ERR_INVALID_USAGE     after fork
 */
dicomm_result_t dicomm_comm_count(dicomm_comm_t comm, int *count);

/**
 * Tell which rank this handle is.
 *
 * Threads: any.
 *
 * @param comm  communicator
 * @param rank  set to the rank, 0 to N - 1
 *
 * @retval DICOMM_SUCCESS               *rank is set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no communicator, or a NULL argument
 * @retval DICOMM_ERR_INVALID_USAGE     after fork
 */
dicomm_result_t dicomm_comm_user_rank(dicomm_comm_t comm, int *rank);

/**
 * Tell which device this rank is bound to.
 *
 * Threads: any.
 *
 * @param comm    communicator
 * @param device  set to its name ("host"), valid as long as the communicator
 *
 * @retval DICOMM_SUCCESS               *device is set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no communicator, or a NULL argument
 * @retval DICOMM_ERR_INVALID_USAGE     after fork
 */
dicomm_result_t dicomm_comm_device(dicomm_comm_t comm, const char **device);

/**
 * Tell what this rank has sent and received, and what memory it holds.
 *
 * Threads: any; an operation under way may be counted in part.
 *
 * @param comm   communicator
 * @param stats  filled in, as far as stats->size (set by the caller) reaches
 *
 * @retval DICOMM_SUCCESS               *stats is filled in
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no communicator, a NULL argument, or a
 *                                      size that is no version of this struct
 * @retval DICOMM_ERR_INVALID_USAGE     after fork
 */
dicomm_result_t dicomm_comm_stats(dicomm_comm_t comm, dicomm_stats_t *stats);

/**
 * Say which algorithm an operation of this communicator will take, and why.
 *
 * A table for people, not for programs: the time predicted for each algorithm
 * that can serve the call, from the measured cost of the links, and the choice.
 * Where ranks have devices with memory of their own, a second table follows:
 * the path between each two ranks, as in dicomm_explain_devices(). Nothing is
 * sent, and all ranks read the same.
 *
 * Threads: any.
 *
 * @param comm       communicator
 * @param operation  "allreduce", "broadcast", ...
 * @param count      elements, as in a call of the operation
 * @param type       type of one element
 * @param text       set to the table, cut to fit, always ending in NUL
 * @param len        bytes of text
 *
 * @retval DICOMM_SUCCESS               *text is set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no communicator, no such operation or
 *                                      type, or no room
 * @retval DICOMM_ERR_INVALID_USAGE     not ready, finalized, or after fork
 * @retval DICOMM_ERR_NO_MEMORY         out of memory
 */
dicomm_result_t dicomm_comm_explain(dicomm_comm_t comm, const char *operation,
				    size_t count, dicomm_datatype_t type,
				    char *text, size_t len);

/**
 * Allocate memory that peers on this machine can read in place. It is memory of
 * the device that DICOMM_DEVICE names; without that, of the host. The rest of
 * this description is about host memory.
 *
 * Operations on it avoid a copy, most of all large reductions. Ranks need not
 * agree: one rank may pass this memory to an operation and the others not. It
 * is zeroed, on pages of its own, and good for everything malloc() is; but each
 * allocation takes a file descriptor, and a child of fork() has no copy of it:
 * each of parent and child sees what the other writes.
 *
 * Devices with memory of their own, of ranks in other processes of this
 * machine, read this memory in place, if it was there when they last called an
 * operation while none was under way on any device of that kind in their
 * process. Data that a host rank sends to them from other memory is staged.
 * These devices never write to this memory. They write what they send into the
 * inbox of the host rank, which reduces it from there, or copies it (see
 * bytes_landed). That is not staged. Where DICOMM_STAGING is "never" on either
 * side, all buffers of a host rank that communicates with such a device have to
 * be of this memory, and be there in time. Devices know 256 allocations of one
 * process, some of them the library's.
 *
 * Threads: any.
 *
 * @param ptr   set to the memory
 * @param size  bytes; 0 gives NULL
 *
 * @retval DICOMM_SUCCESS               *ptr is set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  ptr is NULL, size is more than can be
 *                                      addressed, or DICOMM_DEVICE is no device
 * @retval DICOMM_ERR_DEVICE            the driver failed
 * @retval DICOMM_ERR_SYSTEM            a system call failed
 * @retval DICOMM_ERR_NO_MEMORY         out of memory
 */
dicomm_result_t dicomm_mem_alloc(void **ptr, size_t size);

/**
 * Allocate memory of a communicator's device, for its buffers.
 *
 * On a host rank it is as that of dicomm_mem_alloc() for the host.
 *
 * Threads: any.
 *
 * @param comm  communicator
 * @param ptr   set to the memory, for dicomm_mem_free()
 * @param size  bytes; 0 gives NULL
 *
 * @retval DICOMM_SUCCESS               *ptr is set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no communicator, ptr is NULL, or size is
 *                                      more than can be addressed
 * @retval DICOMM_ERR_INVALID_USAGE     not ready, finalized, or after fork
 * @retval DICOMM_ERR_DEVICE            the driver failed
 * @retval DICOMM_ERR_SYSTEM            a system call failed
 * @retval DICOMM_ERR_NO_MEMORY         out of memory
 */
dicomm_result_t dicomm_comm_mem_alloc(dicomm_comm_t comm, void **ptr,
				      size_t size);

/**
 * Copy between host memory and memory of a communicator's device, or within
 * either, and wait until that is done.
 *
 * For programs that do not know the runtime of the device. The copy begins
 * after all that is on the stream already.
 *
 * Threads: one call at a time per communicator.
 *
 * @param comm    communicator
 * @param dst     where to
 * @param src     where from; does not overlap dst
 * @param size    bytes; 0 does nothing, and waits for nothing
 * @param stream  stream of the rank's device
 *
 * @retval DICOMM_SUCCESS               copied
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no communicator, no stream of its
 *                                      device, or a NULL pointer
 * @retval DICOMM_ERR_INVALID_USAGE     not ready, finalized, or after fork
 * @retval DICOMM_ERR_DEVICE            the device failed
 * @retval DICOMM_ERR_NO_MEMORY         out of memory
 */
dicomm_result_t dicomm_comm_memcpy(dicomm_comm_t comm, void *dst,
				   const void *src, size_t size,
				   dicomm_stream_t stream);

/**
 * Wait until all that is on a stream of a communicator's device is done.
 *
 * For programs that do not know the runtime of the device. On a host rank it is
 * dicomm_host_stream_synchronize(); of stream NULL nothing is left to wait for.
 *
 * Threads: one call at a time per communicator.
 *
 * @param comm    communicator
 * @param stream  stream of the rank's device
 *
 * @retval DICOMM_SUCCESS               all done
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no communicator, or no stream of its
 *                                      device
 * @retval DICOMM_ERR_INVALID_USAGE     not ready, finalized, or after fork
 * @retval DICOMM_ERR_DEVICE            the device failed
 * @retval DICOMM_ERR_NO_MEMORY         out of memory
 * @retval others                       the communicator is broken
 */
dicomm_result_t dicomm_comm_stream_synchronize(dicomm_comm_t comm,
					       dicomm_stream_t stream);

/**
 * Free memory of dicomm_mem_alloc() or dicomm_comm_mem_alloc().
 *
 * A local call; no operation may be using the memory. The memory goes back to
 * the system, or to the driver of the device, when the peers have let go of it,
 * too. Memory of a device also waits until no operation is under way in this
 * process on any device of that kind, since the driver may wait for all of
 * them.
 *
 * Threads: any.
 *
 * @param ptr  as it was allocated; NULL does nothing
 *
 * @retval DICOMM_SUCCESS               freed
 * @retval DICOMM_ERR_INVALID_ARGUMENT  from neither of the two
 * @retval DICOMM_ERR_DEVICE            the driver failed
 */
dicomm_result_t dicomm_mem_free(void *ptr);

/**
 * Announce a buffer that operations will use often.
 *
 * A hint: it may save work in later operations and changes no result. Until it
 * is deregistered the memory must not be unmapped or freed. A local call;
 * ranks need not agree.
 *
 * On a device, network adapters that reach the buffer send from it and receive
 * to it. Without this call they use staging buffers of the library, with a copy
 * on the device (see bytes_copied). Other devices of that kind on this machine,
 * and ranks in other processes, read what is sent in place. The same holds,
 * without this call, for memory of dicomm_comm_mem_alloc() that is used for 64
 * KiB or more at a time.
 *
 * The library registers the memory with an adapter when no operation is under
 * way on any device of that kind in this process: now, or before a later
 * operation. Other processes map it soon after that, when no operation is under
 * way in theirs. They map 127 allocations of each rank in a communicator, and
 * only those that the driver lets them map. Each takes a file descriptor, here
 * and in each of these processes. If the driver's memory was freed in spite of
 * the above, the library notices when a later call uses another allocation at
 * that address, and treats the buffer as not registered; until then an adapter
 * may keep the freed memory alive.
 *
 * Threads: one call at a time per communicator.
 *
 * @param comm    communicator
 * @param buff    start of the buffer
 * @param size    bytes, at least 1
 * @param handle  set to what dicomm_comm_deregister() takes
 *
 * @retval DICOMM_SUCCESS               *handle is set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no communicator, or a bad argument
 * @retval DICOMM_ERR_INVALID_USAGE     not ready, finalized, or after fork
 * @retval DICOMM_ERR_SYSTEM            an adapter does not take the buffer of a
 *                                      host rank (a device rank stages it)
 * @retval DICOMM_ERR_NO_MEMORY         out of memory, or of what may be locked
 *                                      for adapters (ulimit -l)
 */
dicomm_result_t dicomm_comm_register(dicomm_comm_t comm, void *buff,
				     size_t size, void **handle);

/**
 * Take back dicomm_comm_register(); no operation may be using the buffer. Also
 * of a communicator that is broken.
 *
 * Do not free memory of a device before other processes that have mapped it
 * have let go of it. They do so soon after this call, when no operation is
 * under way on their devices of that kind. This call waits for that, but no
 * longer than 0.2 s, because they may wait for this rank; then a warning says
 * so. The end of the communicator takes registrations back, too, without
 * waiting.
 *
 * Threads: one call at a time per communicator.
 *
 * @param comm    communicator that it was registered with
 * @param handle  from dicomm_comm_register()
 *
 * @retval DICOMM_SUCCESS               done
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no communicator, or no such handle
 * @retval DICOMM_ERR_INVALID_USAGE     after fork
 */
dicomm_result_t dicomm_comm_deregister(dicomm_comm_t comm, void *handle);

/**
 * Create an operator that multiplies the inputs of this rank with a scalar and
 * sums the products.
 *
 * The result is the sum over all ranks r of scalar(r) * send(r)[i]; the scalars
 * may differ. Floats below 32 bits round the product to their type.
 *
 * Buffers: scalar is one element of type. It is read before the call returns;
 * but with DICOMM_SCALAR_DEVICE, on a rank of a device, by each operation when
 * it runs: keep it as it is until all of them are done.
 *
 * Order: a local call; the number of the operator need not be the same on all
 * ranks.
 *
 * Threads: one call at a time per communicator.
 *
 * @param op         set to the operator, for operations of comm with this type
 * @param scalar     one element of type
 * @param type       type of the scalar and of the elements
 * @param residence  where scalar is
 * @param comm       communicator that the operator belongs to
 *
 * @retval DICOMM_SUCCESS               *op is set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no communicator, or a bad argument
 * @retval DICOMM_ERR_INVALID_USAGE     64 operators of comm exist already; or
 *                                      not ready, finalized, after fork
 */
dicomm_result_t dicomm_redop_create_premulsum(
	dicomm_redop_t *op, const void *scalar, dicomm_datatype_t type,
	dicomm_scalar_residence_t residence, dicomm_comm_t comm);

/**
 * Destroy a created operator; operations that were called with it go on. Also
 * of a communicator that is broken or finalized.
 *
 * Threads: one call at a time per communicator.
 *
 * @param op    from dicomm_redop_create_premulsum()
 * @param comm  communicator that it belongs to
 *
 * @retval DICOMM_SUCCESS               destroyed
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no communicator, or not such an operator
 * @retval DICOMM_ERR_INVALID_USAGE     after fork
 */
dicomm_result_t dicomm_redop_destroy(dicomm_redop_t op, dicomm_comm_t comm);

/**
 * Begin a group: the operations that this thread calls from now on are
 * collected and start together at dicomm_group_end().
 *
 * Operations may be of several communicators and several ranks. Inside, a call
 * checks its arguments and returns; its buffers belong to the library from then
 * on. A call that is refused is not part of the group. Groups nest; only the
 * outermost end starts.
 *
 * Calls that make and end communicators (init, split, shrink, finalize,
 * destroy) are collected too, except init and finalize with config.blocking 0,
 * which begin at once. They run before the operations of the group, all at the
 * same time, but those of one communicator in call order. So a communicator
 * with operations in the group cannot end in it.
 *
 * Order: within one communicator, collectives run in call order, and sends (or
 * receives) with one peer in call order; else the operations of a group run
 * at the same time, so none may need the result of another. Ranks may call the
 * communicators of a group in different orders, and need not draw the same
 * groups. With vendor islands (docs/islands.md), ranks that have several
 * communicators of a group in common draw the same groups, and messages on a
 * host stream come before collectives of their group on it.
 *
 * Threads: a group belongs to its thread.
 *
 * @retval DICOMM_SUCCESS  begun
 */
dicomm_result_t dicomm_group_start(void);

/**
 * End a group; the outermost end runs what was collected.
 *
 * Blocking operations are done when it returns, the others are queued on their
 * streams.
 *
 * Threads: that of dicomm_group_start().
 *
 * @retval DICOMM_SUCCESS            all done or queued; a nested group ended
 * @retval DICOMM_IN_PROGRESS        a split with config.blocking 0 goes on, and
 *                                   nothing else has failed
 * @retval DICOMM_ERR_INVALID_USAGE  no group was begun, or calls on one
 *                                   communicator use more than 256 streams of
 *                                   its device: none is queued; or ranks
 *                                   disagree about an operation: communicator
 *                                   broken
 * @retval others                    the first failure, as the call that failed
 *                                   would have returned it: it could not be
 *                                   queued (nor, maybe, the rest of the group),
 *                                   its communicator is broken, or there is no
 *                                   new one; what was queued on other
 *                                   communicators is done
 */
dicomm_result_t dicomm_group_end(void);

/*
 * Operations
 *
 * What the descriptions below do not repeat:
 *
 * Buffers. On a host rank in memory that the host may touch (malloc, stack,
 * dicomm_mem_alloc, pinned and managed memory of a GPU's runtime); on a rank of
 * a device in memory of that device, however allocated, except memory of CUDA
 * in other contexts than the primary one. Other memory is refused by name; a
 * host rank notices it only if the runtime of that memory was loaded before the
 * communicator began, or before the first call of that kind, type, count and
 * root. From the call until the operation is done, the caller neither writes
 * what is sent nor touches what is received. send and recv overlap only in the
 * way that a description names as in place; ranks may differ in that, and in
 * the kind of their memory. A pointer may be NULL where it holds no elements on
 * this rank.
 *
 * Order. Every rank of the communicator calls a collective, with equal count,
 * type, op and root, in the same order as its other collectives. Sends and
 * receives of a pair match in call order, independent of collectives.
 *
 * Threads. On host ranks any, also several at a time; on ranks of a device one
 * call at a time per communicator. See Threads at the beginning.
 *
 * Result. "Done" below means: with stream NULL on a host rank the operation is
 * complete; with a stream it is queued, and a later failure shows in
 * dicomm_comm_get_async_error() and at dicomm_host_stream_synchronize(); in a
 * group it is collected.
 *
 * Status. Any other than DICOMM_SUCCESS says either that the call was refused,
 * and nothing happened:
 *
 *     DICOMM_ERR_INVALID_ARGUMENT  a bad argument
 *     DICOMM_ERR_INVALID_USAGE     not ready, finalized, or after fork; or
 *                                  DICOMM_ALGO leaves no algorithm
 *     DICOMM_ERR_UNSUPPORTED       a device has no kernels for this type, and
 *                                  the host cannot, or with staging "never"
 *                                  may not, reduce for it; or the stream is
 *                                  being captured into a graph, or a command
 *                                  list that is not immediate
 *     DICOMM_ERR_DEVICE, DICOMM_ERR_NO_MEMORY, DICOMM_ERR_SYSTEM
 *                                  it could not be queued
 *
 * or that the communicator is broken, as dicomm_comm_get_async_error() tells:
 *
 *     DICOMM_ERR_INVALID_USAGE     ranks called unlike operations, or this one
 *                                  waits for itself
 *     DICOMM_ERR_REMOTE            a rank died or failed
 *     DICOMM_ERR_TIMEOUT           a peer did not come
 *     DICOMM_ERR_NO_PATH           a peer cannot be reached
 *     DICOMM_ERR_DEVICE, DICOMM_ERR_NO_MEMORY, DICOMM_ERR_SYSTEM
 *                                  this rank cannot go on
 *     DICOMM_ERR_ABORTED           the communicator was aborted
 */

/**
 * Reduce count elements across all ranks; every rank gets the result.
 *
 * For every i < count: recv[i] = send[i] of rank 0 op ... op send[i] of rank
 * N - 1; the same bits on every rank.
 *
 * Buffers: send and recv hold count elements each. In place: send == recv.
 *
 * @param send    elements that this rank contributes
 * @param recv    room for the result
 * @param count   elements, not bytes; 0 does nothing
 * @param type    type of one element
 * @param op      reduction
 * @param comm    communicator
 * @param stream  stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t dicomm_allreduce(const void *send, void *recv, size_t count,
				 dicomm_datatype_t type, dicomm_redop_t op,
				 dicomm_comm_t comm, dicomm_stream_t stream);

/**
 * Reduce count elements across all ranks; root gets the result.
 *
 * Buffers: send holds count elements; recv too at root, elsewhere it is not
 * used. In place at root: send == recv.
 *
 * @param send    elements that this rank contributes
 * @param recv    at root: room for the result
 * @param count   elements, not bytes; 0 does nothing
 * @param type    type of one element
 * @param op      reduction
 * @param root    rank that gets the result
 * @param comm    communicator
 * @param stream  stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t dicomm_reduce(const void *send, void *recv, size_t count,
			      dicomm_datatype_t type, dicomm_redop_t op,
			      int root, dicomm_comm_t comm,
			      dicomm_stream_t stream);

/**
 * Copy count elements of root to every rank.
 *
 * Buffers: recv holds count elements; send too at root, elsewhere it is not
 * used. In place: send == recv.
 *
 * @param send    at root: elements to copy
 * @param recv    room for them, also at root
 * @param count   elements, not bytes; 0 does nothing
 * @param type    type of one element
 * @param root    rank whose elements are copied
 * @param comm    communicator
 * @param stream  stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t dicomm_broadcast(const void *send, void *recv, size_t count,
				 dicomm_datatype_t type, int root,
				 dicomm_comm_t comm, dicomm_stream_t stream);

/**
 * Reduce N blocks across all ranks; rank r gets block r of the result.
 *
 * For every i < recvcount: recv[i] of rank r = the reduction of
 * send[r * recvcount + i] over all ranks.
 *
 * Buffers: send holds N * recvcount elements, recv holds recvcount. In place:
 * recv == send + rank * recvcount elements; the other blocks of send are kept
 * as they are.
 *
 * @param send       elements that this rank contributes
 * @param recv       room for this rank's block of the result
 * @param recvcount  elements in one block; 0 does nothing
 * @param type       type of one element
 * @param op         reduction
 * @param comm       communicator
 * @param stream     stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t dicomm_reduce_scatter(const void *send, void *recv,
				      size_t recvcount, dicomm_datatype_t type,
				      dicomm_redop_t op, dicomm_comm_t comm,
				      dicomm_stream_t stream);

/**
 * Gather a block of every rank; every rank gets all of them, in rank order.
 *
 * Buffers: send holds sendcount elements, recv holds N * sendcount. In place:
 * send == recv + rank * sendcount elements.
 *
 * @param send       this rank's block
 * @param recv       room for all blocks
 * @param sendcount  elements in one block; 0 does nothing
 * @param type       type of one element
 * @param comm       communicator
 * @param stream     stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t dicomm_allgather(const void *send, void *recv, size_t sendcount,
				 dicomm_datatype_t type, dicomm_comm_t comm,
				 dicomm_stream_t stream);

/**
 * Exchange blocks between all ranks: block d of rank s becomes block s of rank
 * d.
 *
 * Buffers: send and recv hold N * count elements each. In place: send == recv.
 *
 * @param send    a block for each rank, in rank order
 * @param recv    room for a block of each rank
 * @param count   elements in one block; 0 does nothing
 * @param type    type of one element
 * @param comm    communicator
 * @param stream  stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t dicomm_alltoall(const void *send, void *recv, size_t count,
				dicomm_datatype_t type, dicomm_comm_t comm,
				dicomm_stream_t stream);

/**
 * Gather a block of every rank at root, in rank order.
 *
 * Buffers: send holds count elements; recv holds N * count at root, elsewhere
 * it is not used. In place at root: send == recv + root * count elements.
 *
 * @param send    this rank's block
 * @param recv    at root: room for all blocks
 * @param count   elements in one block; 0 does nothing
 * @param type    type of one element
 * @param root    rank that gets the blocks
 * @param comm    communicator
 * @param stream  stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t dicomm_gather(const void *send, void *recv, size_t count,
			      dicomm_datatype_t type, int root,
			      dicomm_comm_t comm, dicomm_stream_t stream);

/**
 * Hand the blocks of root out, block r to rank r.
 *
 * Buffers: send holds N * count elements at root, elsewhere it is not used;
 * recv holds count. In place at root: recv == send + root * count elements.
 *
 * @param send    at root: a block for each rank, in rank order
 * @param recv    room for this rank's block
 * @param count   elements in one block; 0 does nothing
 * @param type    type of one element
 * @param root    rank whose blocks are handed out
 * @param comm    communicator
 * @param stream  stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t dicomm_scatter(const void *send, void *recv, size_t count,
			       dicomm_datatype_t type, int root,
			       dicomm_comm_t comm, dicomm_stream_t stream);

/**
 * Send count elements to one peer, which receives them by dicomm_recv() with
 * equal count and type.
 *
 * A blocking send may return before the peer has called, or wait until it has:
 * do not build on either. A pair that exchanges data, or a rank that sends to
 * itself, puts both calls in a group.
 *
 * Buffers: send holds count elements.
 *
 * @param send    elements to send
 * @param count   elements, not bytes; 0 sends nothing, to a receive of 0
 * @param type    type of one element
 * @param peer    rank that receives them; may be the calling one
 * @param comm    communicator
 * @param stream  stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t dicomm_send(const void *send, size_t count,
			    dicomm_datatype_t type, int peer,
			    dicomm_comm_t comm, dicomm_stream_t stream);

/**
 * Receive count elements from one peer, which sends them by dicomm_send() with
 * equal count and type.
 *
 * Buffers: recv holds count elements.
 *
 * @param recv    room for the elements
 * @param count   elements, not bytes; 0 receives nothing, of a send of 0
 * @param type    type of one element
 * @param peer    rank that sends them; may be the calling one
 * @param comm    communicator
 * @param stream  stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t dicomm_recv(void *recv, size_t count, dicomm_datatype_t type,
			    int peer, dicomm_comm_t comm,
			    dicomm_stream_t stream);

/**
 * Send count elements to one peer, which receives them by dicomm_recv_tag()
 * with equal count, type and tag.
 *
 * Messages to one peer with one tag arrive in the order of their calls.
 * Messages with different tags are independent: a receive takes the first
 * message that has its tag, whatever was sent before. Tag 0 is that of
 * dicomm_send() and dicomm_recv().
 *
 * A message of up to 4 KiB may leave before its receive is posted; the
 * receiver then keeps a copy, of 1 MiB from each rank at most. Longer messages,
 * and those beyond that, wait for their receive. So, as in MPI, ranks that send
 * to each other before they receive need a group or streams.
 *
 * Tags other than 0 are between host ranks only. A pair of ranks that uses
 * them has another ring of slots in each direction.
 *
 * Buffers: send holds count elements.
 *
 * @param send    elements to send
 * @param count   elements, not bytes; 0 sends an empty message
 * @param type    type of one element
 * @param peer    rank that receives them; may be the calling one
 * @param tag     0 or more
 * @param comm    communicator
 * @param stream  stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS          done; for all others see "Status" above
 * @retval DICOMM_ERR_UNSUPPORTED  tag is not 0, and this rank or the peer is
 *                                 not on the host
 */
dicomm_result_t dicomm_send_tag(const void *send, size_t count,
				dicomm_datatype_t type, int peer, int tag,
				dicomm_comm_t comm, dicomm_stream_t stream);

/**
 * Receive count elements with a tag, from one peer or from any; see
 * dicomm_send_tag().
 *
 * A message that fits several receives is that of the one which was called
 * first. So after a receive from any source, those with the same tag wait until
 * it has its message. A message of another count or type than this call's
 * breaks the communicator, with an error that names both ranks.
 *
 * A receive from any source with a tag other than 0 takes a message that has
 * arrived. If several ranks have sent one, they take turns: once a message is
 * the next one of its rank and tag and has arrived here, at most one message of
 * each other rank is taken before it. "Arrived" means that this rank can read
 * it, or its announcement if it is long; when it was sent does not count.
 *
 * Buffers: recv holds count elements; *status is written when the operation is
 * done.
 *
 * @param recv    room for the elements
 * @param count   elements, not bytes; 0 receives an empty message, which has
 *                no source to find if tag is 0
 * @param type    type of one element
 * @param peer    rank that sends them; may be the calling one; or
 *                DICOMM_ANY_SOURCE
 * @param tag     0 or more
 * @param comm    communicator
 * @param stream  stream; NULL on a host rank: blocking
 * @param status  set to what was received; NULL: not wanted
 *
 * @retval DICOMM_SUCCESS          done; for all others see "Status" above
 * @retval DICOMM_ERR_UNSUPPORTED  tag is not 0, and this rank or the peer is
 *                                 not on the host; or count and tag are 0 and
 *                                 peer is DICOMM_ANY_SOURCE
 */
dicomm_result_t dicomm_recv_tag(void *recv, size_t count,
				dicomm_datatype_t type, int peer, int tag,
				dicomm_comm_t comm, dicomm_stream_t stream,
				dicomm_status_t *status);

/**
 * Exchange blocks of any length between all ranks.
 *
 * Rank s sends sendcounts[d] elements from send + senddispls[d] to rank d,
 * which finds them at recv + recvdispls[s] and has recvcounts[s] equal. Every
 * rank knows its own counts only, so the algorithm is chosen without them.
 *
 * Buffers: blocks of recv do not overlap. The arrays have N entries and are
 * the caller's again when the call returns. In place: send == recv, and counts
 * and displacements of recv equal to those of send, so that each block is
 * received into where it is sent from. Each rank may be so or not.
 *
 * @param send        elements for all ranks
 * @param sendcounts  elements for each rank
 * @param senddispls  where they begin in send, in elements
 * @param recv        room for the elements of all ranks
 * @param recvcounts  elements of each rank
 * @param recvdispls  where they go in recv, in elements
 * @param type        type of one element
 * @param comm        communicator
 * @param stream      stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t dicomm_alltoallv(const void *send, const size_t *sendcounts,
				 const size_t *senddispls, void *recv,
				 const size_t *recvcounts,
				 const size_t *recvdispls,
				 dicomm_datatype_t type, dicomm_comm_t comm,
				 dicomm_stream_t stream);

/**
 * Gather a block of any length of every rank; every rank gets all of them.
 *
 * Buffers: send holds recvcounts[rank] elements; the block of rank r arrives at
 * recv + recvdispls[r]. Blocks of recv do not overlap. In place: send ==
 * recv + recvdispls[rank] elements. The arrays have N entries and are the
 * caller's again when the call returns.
 *
 * @param send        this rank's block
 * @param recv        room for all blocks
 * @param recvcounts  elements of each rank; equal on all ranks
 * @param recvdispls  where they go in recv, in elements; may differ
 * @param type        type of one element
 * @param comm        communicator
 * @param stream      stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t dicomm_allgatherv(const void *send, void *recv,
				  const size_t *recvcounts,
				  const size_t *recvdispls,
				  dicomm_datatype_t type, dicomm_comm_t comm,
				  dicomm_stream_t stream);

/**
 * Reduce N blocks of any length across all ranks; rank r gets block r of the
 * result.
 *
 * Buffers: send holds the blocks one after the other, recvcounts[r] elements
 * for rank r; recv holds recvcounts[rank]. In place: recv == this rank's block
 * in send; the other blocks of send are kept as they are. The array has N
 * entries and is the caller's again when the call returns.
 *
 * @param send        elements that this rank contributes
 * @param recv        room for this rank's block of the result
 * @param recvcounts  elements of each block; equal on all ranks
 * @param type        type of one element
 * @param op          reduction
 * @param comm        communicator
 * @param stream      stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t dicomm_reduce_scatterv(const void *send, void *recv,
				       const size_t *recvcounts,
				       dicomm_datatype_t type,
				       dicomm_redop_t op, dicomm_comm_t comm,
				       dicomm_stream_t stream);

/**
 * Gather a block of any length of every rank at root.
 *
 * The block of rank r, sendcount elements there, arrives at root at
 * recv + recvdispls[r]; recvcounts[r] is equal to that sendcount. Only root
 * knows all counts, so the algorithm is chosen without them.
 *
 * Buffers: send holds sendcount elements. recv and the arrays, of N entries,
 * are used at root only. Blocks of recv do not overlap. In place at root: send
 * == recv + recvdispls[root] elements. The arrays are the caller's again when
 * the call returns.
 *
 * @param send        this rank's block
 * @param sendcount   elements in it
 * @param recv        at root: room for all blocks
 * @param recvcounts  at root: elements of each rank
 * @param recvdispls  at root: where they go in recv, in elements
 * @param type        type of one element
 * @param root        rank that gets the blocks
 * @param comm        communicator
 * @param stream      stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t dicomm_gatherv(const void *send, size_t sendcount, void *recv,
			       const size_t *recvcounts,
			       const size_t *recvdispls, dicomm_datatype_t type,
			       int root, dicomm_comm_t comm,
			       dicomm_stream_t stream);

/**
 * Hand blocks of any length of root out, block r to rank r.
 *
 * Rank r gets the sendcounts[r] elements from send + senddispls[r] of root;
 * its recvcount is equal to that. Only root knows all counts, so the algorithm
 * is chosen without them.
 *
 * Buffers: recv holds recvcount elements. send and the arrays, of N entries,
 * are used at root only. In place at root: recv == send + senddispls[root]
 * elements. The arrays are the caller's again when the call returns.
 *
 * @param send        at root: a block for each rank
 * @param sendcounts  at root: elements for each rank
 * @param senddispls  at root: where they begin in send, in elements
 * @param recv        room for this rank's block
 * @param recvcount   elements in it
 * @param type        type of one element
 * @param root        rank whose blocks are handed out
 * @param comm        communicator
 * @param stream      stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t dicomm_scatterv(const void *send, const size_t *sendcounts,
				const size_t *senddispls, void *recv,
				size_t recvcount, dicomm_datatype_t type,
				int root, dicomm_comm_t comm,
				dicomm_stream_t stream);

/*
 * Lists. The functions from here to dicomm_scatterv_list() do what those
 * without _list in their name do, with a buffer of its own for each block,
 * instead of displacements in one. Data goes straight between these buffers, as
 * it does with displacements. Ranks may mix both forms of an operation.
 *
 * Buffers: entry r of a list is the address of the block of rank r. It may be
 * NULL where its count is 0. Buffers that are received into do not overlap.
 * Lists are the caller's again when the call returns, as the counts are.
 *
 * On a rank of a device each buffer is in memory of that device. Transports and
 * other processes reach the blocks in place if all of them are in one buffer of
 * dicomm_comm_register() or one allocation of dicomm_comm_mem_alloc();
 * otherwise blocks are copied on the device (bytes_copied).
 */

/**
 * Exchange blocks of any length between all ranks, from and to buffers of their
 * own; see dicomm_alltoallv().
 *
 * @param sends       block for each rank
 * @param sendcounts  elements for each rank
 * @param recvs       room for the block of each rank
 * @param recvcounts  elements of each rank
 * @param type        type of one element
 * @param comm        communicator
 * @param stream      stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t
dicomm_alltoallv_list(const void *const *sends, const size_t *sendcounts,
		      void *const *recvs, const size_t *recvcounts,
		      dicomm_datatype_t type, dicomm_comm_t comm,
		      dicomm_stream_t stream);

/**
 * Gather a block of any length of every rank; every rank gets all of them, in
 * buffers of their own; see dicomm_allgatherv().
 *
 * Buffers: in place: send == recvs[rank].
 *
 * @param send        this rank's block
 * @param recvs       room for the block of each rank
 * @param recvcounts  elements of each rank; equal on all ranks
 * @param type        type of one element
 * @param comm        communicator
 * @param stream      stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t dicomm_allgatherv_list(const void *send, void *const *recvs,
				       const size_t *recvcounts,
				       dicomm_datatype_t type,
				       dicomm_comm_t comm,
				       dicomm_stream_t stream);

/**
 * Reduce N blocks of any length, each in a buffer of its own, across all ranks;
 * rank r gets block r of the result; see dicomm_reduce_scatterv().
 *
 * Buffers: in place: recv == sends[rank]; the other blocks are kept as they
 * are.
 *
 * @param sends       blocks that this rank contributes
 * @param recv        room for this rank's block of the result
 * @param recvcounts  elements of each block; equal on all ranks
 * @param type        type of one element
 * @param op          reduction
 * @param comm        communicator
 * @param stream      stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t
dicomm_reduce_scatterv_list(const void *const *sends, void *recv,
			    const size_t *recvcounts, dicomm_datatype_t type,
			    dicomm_redop_t op, dicomm_comm_t comm,
			    dicomm_stream_t stream);

/**
 * Gather a block of any length of every rank at root, in buffers of their own;
 * see dicomm_gatherv().
 *
 * Buffers: in place at root: send == recvs[root].
 *
 * @param send        this rank's block
 * @param sendcount   elements in it
 * @param recvs       at root: room for the block of each rank
 * @param recvcounts  at root: elements of each rank
 * @param type        type of one element
 * @param root        rank that gets the blocks
 * @param comm        communicator
 * @param stream      stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t dicomm_gatherv_list(const void *send, size_t sendcount,
				    void *const *recvs,
				    const size_t *recvcounts,
				    dicomm_datatype_t type, int root,
				    dicomm_comm_t comm, dicomm_stream_t stream);

/**
 * Hand blocks of any length of root out, each from a buffer of its own; see
 * dicomm_scatterv().
 *
 * Buffers: in place at root: recv == sends[root].
 *
 * @param sends       at root: block for each rank
 * @param sendcounts  at root: elements for each rank
 * @param recv        room for this rank's block
 * @param recvcount   elements in it
 * @param type        type of one element
 * @param root        rank whose blocks are handed out
 * @param comm        communicator
 * @param stream      stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t dicomm_scatterv_list(const void *const *sends,
				     const size_t *sendcounts, void *recv,
				     size_t recvcount, dicomm_datatype_t type,
				     int root, dicomm_comm_t comm,
				     dicomm_stream_t stream);

/**
 * Reduce count elements of this rank with count others of its own; no other
 * rank takes part.
 *
 * For every i < count: recv[i] = send[i] op recv[i], with the bits that a
 * collective of two ranks gives. The rank's device does it, as any other
 * operation on the stream; of one communicator it comes after the collectives
 * that were called before it. To add up gradients, or to compare buffers where
 * they are (DICOMM_BXOR).
 *
 * Buffers: send and recv hold count elements each and do not overlap.
 *
 * @param send    one operand
 * @param recv    the other operand, and the result
 * @param count   elements, not bytes; 0 does nothing
 * @param type    type of one element
 * @param op      reduction; not DICOMM_AVG, nor a created one
 * @param comm    communicator; the buffers are on its device
 * @param stream  stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t dicomm_reduce_local(const void *send, void *recv, size_t count,
				    dicomm_datatype_t type, dicomm_redop_t op,
				    dicomm_comm_t comm, dicomm_stream_t stream);

/**
 * Wait for all ranks: done on no rank before every rank has called it.
 *
 * @param comm    communicator
 * @param stream  stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS  done; for all others see "Status" above
 */
dicomm_result_t dicomm_barrier(dicomm_comm_t comm, dicomm_stream_t stream);

/*
 * Redistribution: tensors that are on some ranks in one layout come to other
 * ranks, or the same, in another one. docs/redistribute.md shows what that is
 * good for.
 */

/**
 * Make the boxes of a tensor on a mesh of ranks.
 *
 * Box i is that of mesh->ranks[i], at offset 0, in row-major order without
 * gaps. Placements cut from the first dim of the mesh to the last, so two dims
 * may shard one axis, without given extents. The terms of DICOMM_PARTIAL are
 * numbered from first_term in the order of the ranks. Copies that differ in
 * place only, and boxes for rows of a larger buffer, are made by changing
 * offset and stride afterwards.
 *
 * Buffers: boxes has room for one box for each rank of the mesh.
 *
 * Threads: any.
 *
 * @param mesh        ranks and placements
 * @param axes        of the tensor, 1 to DICOMM_AXES
 * @param shape       elements along each axis
 * @param first_term  term of the first rank, 0 or more; the same for all
 *                    without DICOMM_PARTIAL
 * @param boxes       filled in
 *
 * @retval DICOMM_SUCCESS               boxes are filled in
 * @retval DICOMM_ERR_INVALID_ARGUMENT  a bad mesh, placement, shape or
 *                                      first_term; the text names it
 * @retval DICOMM_ERR_NO_MEMORY         out of memory
 */
dicomm_result_t dicomm_mesh_boxes(const dicomm_mesh_t *mesh, int axes,
				  const int64_t *shape, int first_term,
				  dicomm_box_t *boxes);

/**
 * Plan how tensors get from the ranks that hold them to those that want them.
 *
 * Every rank passes the boxes of all ranks. The call checks all of it before
 * anything moves: boxes outside their tensor, ranks outside the communicator,
 * elements of a target that are in one place, elements that are wanted and that
 * no rank holds (or not every term of), or that no rank wants. Then it divides
 * the tensors where the ranks that hold or want them change, and finds for each
 * piece from where it is read. Pieces of many tensors travel together: between
 * two ranks, a round has one message, and one more for each piece of 256 KiB or
 * more.
 *
 * Sums are in the order of the terms, whatever the way: floats below 32 bits
 * are added up in float32 and rounded once. With weights, the type of which is
 * float64 for float64 and complex128, and float32 for all others, to which they
 * are rounded, each product is rounded to that type, then each sum, without
 * fused multiply-add; floats below 32 bits are converted to float32 before and
 * rounded once at the end. All ranks get the same bits. If any rank of the
 * communicator is bound to a device ("opencl:0" too), weights but 1 of floats
 * below 32 bits are refused on all ranks. So is a plan by which such a rank
 * makes a sum of more than 8 terms.
 *
 * Buffers: tensors, and all that they point to, are the caller's again when the
 * call returns. tensors is an array.
 *
 * Order: a collective call of all ranks, with equal arguments, unless
 * config->local is 1. Not in a group.
 *
 * Threads: one call at a time per communicator.
 *
 * @param plan     set to the plan of this rank, for dicomm_redistribute_free()
 * @param tensors  what to move
 * @param n        how many tensors
 * @param config   options; NULL for none
 * @param comm     communicator
 *
 * @retval DICOMM_SUCCESS               *plan is set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  a bad argument, or layouts that do not
 *                                      fit; the text names tensor, axis,
 *                                      interval and ranks; or staging_bytes
 *                                      with which a plan would have more than
 *                                      2^26 pieces
 * @retval DICOMM_ERR_INVALID_USAGE     in a group; not ready, finalized, or
 *                                      after fork; or ranks passed different
 *                                      descriptions: on all ranks, even where
 *                                      one description is a bad argument, the
 *                                      text names two ranks, the first field
 *                                      in which they differ (its tensor, box
 *                                      and axis), and both values
 * @retval DICOMM_ERR_UNSUPPORTED       a device cannot add that up
 * @retval DICOMM_ERR_NO_MEMORY         out of memory
 * @retval others                       the communicator is broken
 */
dicomm_result_t dicomm_redistribute_plan(
	dicomm_redistribute_t *plan, const dicomm_tensor_t *tensors, size_t n,
	const dicomm_redistribute_config_t *config, dicomm_comm_t comm);

/**
 * Plan as dicomm_redistribute_plan(), where each rank passes its own boxes.
 *
 * Each rank passes the same tensors (number, type, axes, shape, terms, weights)
 * with those boxes in source and target whose rank it is. The call gathers
 * them.
 *
 * Buffers, Order, Threads: as there; config->local is refused.
 *
 * @param plan     set to the plan of this rank, for dicomm_redistribute_free()
 * @param tensors  what to move
 * @param n        how many tensors
 * @param config   options; NULL for none
 * @param comm     communicator
 *
 * @retval DICOMM_SUCCESS  *plan is set
 * @retval others          see dicomm_redistribute_plan()
 */
dicomm_result_t dicomm_redistribute_plan_own(
	dicomm_redistribute_t *plan, const dicomm_tensor_t *tensors, size_t n,
	const dicomm_redistribute_config_t *config, dicomm_comm_t comm);

/**
 * Move the tensors of a plan.
 *
 * Buffers: source[i] and target[i] are where the boxes of this rank in tensor i
 * begin, less their offsets; NULL where it has none. Memory as for operations.
 * source[i] and target[i] may overlap only where an element has the same
 * address in both (in place). The two arrays are the caller's again when the
 * call returns.
 *
 * Order: each rank that holds or wants anything calls it, in the same order as
 * other runs, sends and receives on the communicator; the others may. It is
 * made of sends and receives, which match in call order with those of the
 * caller. Not in a group.
 *
 * Threads: one call at a time per communicator.
 *
 * @param plan    from dicomm_redistribute_plan()
 * @param source  a pointer for each tensor
 * @param target  a pointer for each tensor
 * @param stream  stream; NULL on a host rank: blocking
 *
 * @retval DICOMM_SUCCESS               done
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no plan, no stream, or a pointer is NULL
 *                                      that is needed; the text names the
 *                                      tensor
 * @retval DICOMM_ERR_INVALID_USAGE     in a group
 * @retval others                       see "Status" of operations
 */
dicomm_result_t dicomm_redistribute_run(dicomm_redistribute_t plan,
					const void *const *source,
					void *const *target,
					dicomm_stream_t stream);

/**
 * Tell what a run of a plan does.
 *
 * Threads: any.
 *
 * @param plan  from dicomm_redistribute_plan()
 * @param info  filled in, as far as info->size (set by the caller) reaches
 *
 * @retval DICOMM_SUCCESS               *info is filled in
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no plan, info is NULL, or a size that is
 *                                      no version of this struct
 */
dicomm_result_t dicomm_redistribute_info(dicomm_redistribute_t plan,
					 dicomm_redistribute_info_t *info);

/**
 * Tell what a run of a plan sends to one peer, and receives from it.
 *
 * Threads: any.
 *
 * @param plan      from dicomm_redistribute_plan()
 * @param peer      rank
 * @param sent      set to bytes sent to it
 * @param received  set to bytes received from it
 *
 * @retval DICOMM_SUCCESS               *sent and *received are set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no plan, no such rank, or a pointer is
 *                                      NULL
 */
dicomm_result_t dicomm_redistribute_link(dicomm_redistribute_t plan, int peer,
					 uint64_t *sent, uint64_t *received);

/**
 * Say which way a plan takes, and why not another one.
 *
 * A table for people, not for programs: for each way the predicted time, what
 * the busiest rank sends and receives, and what crosses between hosts.
 *
 * Threads: any.
 *
 * @param plan  from dicomm_redistribute_plan()
 * @param text  set to the table, cut to fit, always ending in NUL
 * @param len   bytes of text
 *
 * @retval DICOMM_SUCCESS               *text is set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no plan, or no room
 */
dicomm_result_t dicomm_redistribute_explain(dicomm_redistribute_t plan,
					    char *text, size_t len);

/**
 * Free a plan.
 *
 * Order: a local call, before the end of its communicator, and when no run of
 * the plan is under way.
 *
 * Threads: no other call may use the plan, now or later.
 *
 * @param plan  from dicomm_redistribute_plan(); NULL does nothing
 *
 * @retval DICOMM_SUCCESS               freed
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no plan
 * @retval DICOMM_ERR_INVALID_USAGE     a run is under way on a stream; not
 *                                      freed
 */
dicomm_result_t dicomm_redistribute_free(dicomm_redistribute_t plan);

/*
 * One-sided operations: a rank writes and reads memory of another one, which
 * calls nothing meanwhile. It has registered that memory as a window.
 *
 * The memory of a window is the exception from the rule that a buffer is
 * written only during calls that have it: from the registration to the end of
 * the deregistration, puts of peers write it at any time. The writer is always
 * the rank itself: in its calls that wait, or, while it is in none, in a thread
 * of the library, one for all communicators of the process. That looks, and
 * sleeps 20 microseconds after a look that has found something; after each look
 * in vain it sleeps twice as long as before, but no longer than 2 milliseconds;
 * when all has been quiet for longer, until a message wakes it.
 * That is how late it begins to serve a peer, if it gets a core at once. A rank
 * that waits in a collective call of setup, such as dicomm_comm_split(), is
 * served by that thread, too. So as with all buffers, when a call has returned
 * a failure, or dicomm_comm_abort() has returned, nothing writes a window any
 * more, whatever has become of the peer.
 *
 * Look at what a put has written after dicomm_wait_signal() has returned, or on
 * a stream behind it: a put has no other point at which its bytes are known to
 * be there.
 *
 * Order: puts, gets and signals of one rank to one peer act there in the order
 * in which they start: that of the calls, of the stream. A signal counts when
 * the bytes of its put and of all earlier puts of that rank are there.
 *
 * A window is memory of the rank's device. If that has memory of its own, what
 * its peers send is not staged where data between the two is not (see
 * dicomm_comm_explain()): the device copies it out of the memory of a device of
 * its kind on this machine, or a network adapter writes it to the window. It is
 * staged, and counts in bytes_staged, where it comes from a host rank of this
 * machine that no adapter reaches, or where all data between the two is staged.
 * What it sends to such a host rank goes through the inbox of that rank, which
 * is not staging. Windows are registered as by dicomm_comm_register(); for the
 * local buffer of a put or a get the same holds as for other buffers.
 */

/**
 * Register memory as a window, which peers put into and get from.
 *
 * Every rank of the communicator calls it, with a size of its own, also 0. The
 * windows that all ranks register by their n-th call belong together: a handle
 * stands for that of every rank. If a rank's arguments are bad, no rank has a
 * window, and the next calls belong together.
 *
 * Buffers: until it is deregistered, the memory is not freed or unmapped.
 *
 * Order: a collective call that waits for all ranks and for what is queued on
 * the communicator; see dicomm_comm_split(). In a group it runs at the group's
 * end, before its operations, and tells there what is wrong.
 *
 * Threads: one call at a time per communicator.
 *
 * @param comm   communicator
 * @param buff   start of the memory of this rank; may be NULL if size is 0
 * @param size   its bytes
 * @param win    set to the window; to NULL on failure
 * @param flags  DICOMM_WINDOW_DEFAULT, or others of that name
 *
 * @retval DICOMM_SUCCESS               *win is set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  a bad argument, here or on another rank,
 *                                      which is named, then on all
 * @retval DICOMM_ERR_INVALID_USAGE     some ranks give DICOMM_WINDOW_ENDS_ALONE
 *                                      and others do not: on all; or as of a
 *                                      collective
 * @retval DICOMM_ERR_UNSUPPORTED       a rank is on a device with memory of its
 *                                      own, to which bytes of a host rank would
 *                                      be staged, and one of the two refuses
 *                                      that: on all
 * @retval others                       as of a collective
 */
dicomm_result_t dicomm_comm_window_register(dicomm_comm_t comm, void *buff,
					    size_t size, dicomm_window_t *win,
					    int flags);

/**
 * End a window.
 *
 * Returns when all ranks have called it and all that was put is there: nothing
 * writes the memory any more. Of a broken communicator it is a local call.
 * dicomm_comm_destroy() ends the windows that are left, and waits for nobody.
 *
 * With DICOMM_WINDOW_ENDS_ALONE it is a local call, which waits for nothing
 * but what is queued on this rank. The caller knows that no peer puts into the
 * window or gets from it any more: one that does breaks the communicator.
 *
 * Order: as dicomm_comm_window_register(). A rank that gives no window takes
 * part, unless it is one that has ended alone.
 *
 * Threads: no other call may use the window, now or later.
 *
 * @param comm  communicator
 * @param win   from dicomm_comm_window_register()
 *
 * @retval DICOMM_SUCCESS               ended
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no window of this communicator, here or
 *                                      on another rank, which is named, then on
 *                                      all; no window ends
 * @retval DICOMM_ERR_INVALID_USAGE     ranks give unlike windows; no window
 *                                      ends; or as the following
 * @retval others                       ended; the communicator is broken
 */
dicomm_result_t dicomm_comm_window_deregister(dicomm_comm_t comm,
					      dicomm_window_t win);

/**
 * Write count elements into the window of a peer, then count a signal there.
 *
 * Buffers: local is the caller's again when the call has returned or, on a
 * stream, when the stream has passed it. The bytes may not have arrived then.
 * A put of more than 4 KiB may wait until the peer has taken it.
 *
 * Order: see above.
 *
 * Threads: one call at a time per communicator.
 *
 * @param local    what to write, any memory of this rank
 * @param count    elements; 0: only the signal
 * @param type     their type
 * @param peer     rank, also this one
 * @param win      window
 * @param offset   bytes from the start of the peer's window
 * @param signal   which signal counts, or DICOMM_NO_SIGNAL
 * @param context  and in which context; each has signals of its own
 * @param flags    0
 * @param comm     communicator
 * @param stream   of this rank; NULL on a host rank: blocks
 *
 * @retval DICOMM_SUCCESS               done, or queued
 * @retval DICOMM_ERR_INVALID_ARGUMENT  a bad argument, or beyond the window of
 *                                      the peer; nothing happened
 * @retval others                       as of dicomm_send()
 */
dicomm_result_t dicomm_put_signal(const void *local, size_t count,
				  dicomm_datatype_t type, int peer,
				  dicomm_window_t win, size_t offset,
				  int signal, int context, unsigned int flags,
				  dicomm_comm_t comm, dicomm_stream_t stream);

/**
 * Count a signal at a peer, behind all earlier puts to it.
 *
 * The peer has registered a window, or waits for signals. Until then signals
 * wait, and when they have filled the slots of the transport, the caller does,
 * within the time-out of the communicator. Its error names such a peer.
 *
 * Threads: one call at a time per communicator.
 *
 * @param peer     rank, also this one
 * @param signal   from 0 to DICOMM_SIGNALS - 1
 * @param context  from 0 to DICOMM_SIGNAL_CONTEXTS - 1
 * @param flags    0
 * @param comm     communicator
 * @param stream   as of dicomm_put_signal()
 *
 * @retval DICOMM_SUCCESS               done, or queued
 * @retval DICOMM_ERR_INVALID_ARGUMENT  a bad argument; nothing happened
 * @retval others                       as of dicomm_send()
 */
dicomm_result_t dicomm_signal(int peer, int signal, int context,
			      unsigned int flags, dicomm_comm_t comm,
			      dicomm_stream_t stream);

/**
 * Wait for signals of peers, and take them.
 *
 * Each peer, signal and context has a count. The wait ends when all counts are
 * there, and then takes them off: a signal ends one wait only. Waits on several
 * streams for one signal take from the same count.
 *
 * A peer that dies or leaves breaks the communicator, as in a receive, and so
 * does the time-out.
 *
 * Buffers: descs is the caller's again when the call returns.
 *
 * Threads: one call at a time per communicator.
 *
 * @param n       number of descs; 0 waits for nothing
 * @param descs   what to wait for: all of them
 * @param comm    communicator
 * @param stream  as of dicomm_put_signal()
 *
 * @retval DICOMM_SUCCESS               they have come, or it is queued
 * @retval DICOMM_ERR_INVALID_ARGUMENT  a bad argument; nothing was taken
 * @retval others                       as of dicomm_recv()
 */
dicomm_result_t dicomm_wait_signal(int n,
				   const dicomm_wait_signal_desc_t *descs,
				   dicomm_comm_t comm, dicomm_stream_t stream);

/**
 * Read count elements from the window of a peer.
 *
 * It reads what earlier puts of this rank have written. The peer sends the
 * bytes by itself, when it next looks for puts.
 *
 * Buffers: local has the elements when the call has returned or, on a stream,
 * when the stream has passed it.
 *
 * Threads: one call at a time per communicator.
 *
 * @param local   room for the elements
 * @param count   elements
 * @param type    their type
 * @param peer    rank, also this one
 * @param win     window
 * @param offset  bytes from the start of the peer's window
 * @param comm    communicator
 * @param stream  as of dicomm_put_signal()
 *
 * @retval DICOMM_SUCCESS               the elements are there, or it is queued
 * @retval DICOMM_ERR_INVALID_ARGUMENT  as of dicomm_put_signal()
 * @retval others                       as of dicomm_recv()
 */
dicomm_result_t dicomm_get(void *local, size_t count, dicomm_datatype_t type,
			   int peer, dicomm_window_t win, size_t offset,
			   dicomm_comm_t comm, dicomm_stream_t stream);

/**
 * Create a stream for host ranks: a queue of operations that the library works
 * off in the background, in order.
 *
 * Who queues a short operation begins it, and who waits for one runs it. What
 * nobody waits for is run by a thread of the library: a long operation at once,
 * a short one (64 KiB at most) within about 0.2 ms.
 *
 * How many operations are queued makes no difference to the others. Sends with
 * a tag other than 0 that follow each other on a stream only read their
 * buffers, so they go on together; they are done in order all the same.
 *
 * Threads: any. A stream serves any number of communicators.
 *
 * @param stream  set to the stream
 *
 * @retval DICOMM_SUCCESS               *stream is set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  stream is NULL
 * @retval DICOMM_ERR_NO_MEMORY         out of memory
 */
dicomm_result_t dicomm_host_stream_create(dicomm_stream_t *stream);

/**
 * Wait until all operations that were queued on a stream are done.
 *
 * Threads: any, also several at a time.
 *
 * @param stream  from dicomm_host_stream_create()
 *
 * @retval DICOMM_SUCCESS               all are done
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no host stream
 * @retval DICOMM_ERR_INVALID_USAGE     after fork; or as the following
 * @retval others                       all have ended, and this is the first
 *                                      failure since the last synchronize; its
 *                                      communicator is broken
 */
dicomm_result_t dicomm_host_stream_synchronize(dicomm_stream_t stream);

/**
 * Destroy a stream, once all operations that were queued on it have ended.
 *
 * Threads: no other call may use the stream, now or later.
 *
 * @param stream  from dicomm_host_stream_create(); NULL does nothing
 *
 * @retval DICOMM_SUCCESS               destroyed
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no host stream
 * @retval DICOMM_ERR_INVALID_USAGE     after fork, or after an operation on it
 *                                      in one group: not destroyed; or as the
 *                                      following
 * @retval others                       destroyed, and this is the first failure
 *                                      since the last synchronize
 */
dicomm_result_t dicomm_host_stream_destroy(dicomm_stream_t stream);

/**
 * Make a request for what was queued last on a stream: an operation, or a group
 * that has ended.
 *
 * The request is done when that has ended, and with it all that was queued on
 * the stream before; at once if nothing is queued. Its result is that of the
 * operation alone, while dicomm_host_stream_synchronize() tells the first
 * failure of all.
 *
 *     dicomm_allreduce(..., comm, stream);
 *     dicomm_host_stream_request(stream, &request);
 *     ...
 *     dicomm_request_wait(request, 0);
 *     dicomm_request_free(request);
 *
 * Threads: any. To be that of one operation, it is made before another thread
 * queues the next one.
 *
 * @param stream   from dicomm_host_stream_create()
 * @param request  set to the request; to NULL on failure
 *
 * @retval DICOMM_SUCCESS               *request is set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no host stream, or request is NULL
 * @retval DICOMM_ERR_INVALID_USAGE     after fork, or after an operation on the
 *                                      stream in an open group
 * @retval DICOMM_ERR_NO_MEMORY         out of memory
 */
dicomm_result_t dicomm_host_stream_request(dicomm_stream_t stream,
					   dicomm_request_t *request);

/**
 * Ask whether a request is done.
 *
 * Threads: any, also several at a time.
 *
 * @param request  from dicomm_host_stream_request()
 *
 * @retval DICOMM_SUCCESS               done: the operation has succeeded
 * @retval DICOMM_IN_PROGRESS           not done yet
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no request; or as the following
 * @retval DICOMM_ERR_INVALID_USAGE     after fork; or as the following
 * @retval others                       done: the operation has failed so
 */
dicomm_result_t dicomm_request_query(dicomm_request_t request);

/**
 * Wait until a request is done. Unless another thread does so, the caller runs
 * meanwhile what is queued on host streams, its own and others. So nobody has
 * to be woken for a short operation.
 *
 * Threads: any, also several at a time.
 *
 * @param request     from dicomm_host_stream_request()
 * @param timeout_ms  milliseconds to wait at most; 0: until it is done, which
 *                    the time-out of the communicator bounds
 *
 * @retval DICOMM_IN_PROGRESS           not done in that time; it goes on
 * @retval DICOMM_ERR_INVALID_ARGUMENT  timeout_ms is negative
 * @retval others                       as of dicomm_request_query()
 */
dicomm_result_t dicomm_request_wait(dicomm_request_t request, int timeout_ms);

/**
 * Have a function called when a request is done; at once if it is done already.
 *
 * A thread of the library calls it, in which it may use the library and wait,
 * also for other requests and their callbacks: each callback gets a thread,
 * whatever others do. So they may run at the same time and in any order.
 *
 * Threads: any.
 *
 * @param request  from dicomm_host_stream_request(); it may be freed before it
 *                 is done, and is called all the same
 * @param fn       gets the result, as of dicomm_request_query()
 * @param ctx      passed to fn
 *
 * @retval DICOMM_SUCCESS               fn is called once
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no request, or fn is NULL
 * @retval DICOMM_ERR_INVALID_USAGE     it has a callback already; or after fork
 * @retval DICOMM_ERR_SYSTEM            there is no thread
 */
dicomm_result_t dicomm_request_call(dicomm_request_t request,
				    dicomm_request_fn_t fn, void *ctx);

/**
 * Free a request. Its operation goes on.
 *
 * Threads: no other call may use the request, now or later.
 *
 * @param request  from dicomm_host_stream_request(); NULL does nothing
 *
 * @retval DICOMM_SUCCESS               freed
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no request
 * @retval DICOMM_ERR_INVALID_USAGE     after fork: not freed
 */
dicomm_result_t dicomm_request_free(dicomm_request_t request);

/*
 * What there is. Lists are walked by index:
 *
 *     for (int i = 0; dicomm_param_info(i, &info) == DICOMM_SUCCESS; i++)
 *             printf("%s %s\n", info.name, info.value);
 */

/**
 * Describe one parameter of the library.
 *
 * Buffers: the strings are constant and stay valid.
 *
 * Threads: any.
 *
 * @param index  from 0
 * @param info   filled in
 *
 * @retval DICOMM_SUCCESS               *info is filled in
 * @retval DICOMM_ERR_INVALID_ARGUMENT  index is past the end (not logged), or
 *                                      info is NULL
 */
dicomm_result_t dicomm_param_info(int index, dicomm_param_info_t *info);

/**
 * Describe one transport and whether this process can use it.
 *
 * Threads: any.
 *
 * @param index  from 0, the fastest transport first
 * @param info   filled in
 *
 * @retval DICOMM_SUCCESS               *info is filled in
 * @retval DICOMM_ERR_INVALID_ARGUMENT  index is past the end (not logged), or
 *                                      info is NULL
 */
dicomm_result_t dicomm_transport_info(int index, dicomm_transport_info_t *info);

/**
 * Say which interface this process would listen on, for ranks to meet and for
 * data over tcp.
 *
 * Once it has met ranks of other hosts, it is the interface that led there.
 * Before that the host of DICOMM_COMM_ID is looked up, if that is set.
 *
 * Threads: any.
 *
 * @param info  filled in
 *
 * @retval DICOMM_SUCCESS               *info is filled in
 * @retval DICOMM_ERR_INVALID_ARGUMENT  info is NULL
 * @retval DICOMM_ERR_INVALID_USAGE     no interface is up that
 *                                      DICOMM_SOCKET_IFNAME and
 *                                      DICOMM_SOCKET_FAMILY allow
 * @retval DICOMM_ERR_SYSTEM            the interfaces cannot be listed
 */
dicomm_result_t dicomm_network_info(dicomm_network_info_t *info);

/** Called with what one process of a job tells: a JSON object. */
typedef void (*dicomm_job_fn_t)(const char *json, void *ctx);

/**
 * Ask a running job what its ranks do, over the network.
 *
 * The process asked is the one of rank 0, at the port where the ranks met. It
 * passes on what each process of the job tells; docs/wire.md ("The answer of a
 * process") has the form. A rank that tells nothing is an object with its
 * "rank", "where" it is, and why, in "silent". Both ends have to know the same
 * DICOMM_COMM_KEY; the answer is encrypted. The job does not wait for who asks.
 *
 * Takes at most 25 s; where all ranks answer, as long as messages to all of
 * them and back.
 *
 * Threads: any.
 *
 * @param address  "host:port" or "[address]:port"
 * @param fn       called by this thread before it returns, once for each
 * process and each rank that tells nothing
 * @param ctx      passed to fn
 *
 * @retval DICOMM_SUCCESS               the answer is complete
 * @retval DICOMM_ERR_INVALID_ARGUMENT  address or fn is NULL, or address is not
 *                                      of that form
 * @retval DICOMM_ERR_INVALID_USAGE     DICOMM_COMM_KEY is not set here, or is
 * not the secret of that job
 * @retval DICOMM_ERR_REMOTE            the connection has ended, or the job
 *                                      answers too many others at the moment
 * @retval DICOMM_ERR_TIMEOUT           nobody answers there
 * @retval DICOMM_ERR_NO_MEMORY         out of memory
 * @retval DICOMM_ERR_SYSTEM            no socket
 */
dicomm_result_t dicomm_job_info(const char *address, dicomm_job_fn_t fn,
				void *ctx);

/**
 * Describe one device of this machine that a rank can be bound to.
 *
 * Threads: any.
 *
 * @param index  from 0; the host is first
 * @param info   filled in
 *
 * @retval DICOMM_SUCCESS               *info is filled in
 * @retval DICOMM_ERR_INVALID_ARGUMENT  index is past the end (not logged), or
 *                                      info is NULL
 */
dicomm_result_t dicomm_device_info(int index, dicomm_device_info_t *info);

/**
 * Describe one kind of device: how many this machine has, or why none.
 *
 * Threads: any.
 *
 * @param index  from 0
 * @param info   filled in
 *
 * @retval DICOMM_SUCCESS               *info is filled in
 * @retval DICOMM_ERR_INVALID_ARGUMENT  index is past the end (not logged), or
 *                                      info is NULL
 */
dicomm_result_t dicomm_device_kind_info(int index,
					dicomm_device_kind_info_t *info);

/**
 * Say which algorithm a communicator would take, without making one.
 *
 * As dicomm_comm_explain(), for host ranks on this machine. Where
 * DICOMM_TOPO_FILE names the description of a cluster: for its first nranks
 * ranks, each with a core of its own.
 *
 * Threads: any.
 *
 * @param operation  "allreduce", "broadcast", ...
 * @param nranks     ranks of the communicator
 * @param bytes      size of the operation: of the longer one of a rank's two
 *                   buffers
 * @param text       set to the table, cut to fit, always ending in NUL
 * @param len        bytes of text
 *
 * @retval DICOMM_SUCCESS               *text is set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no such operation, nranks below 1 or
 *                                      beyond the cluster, no room, or a bad
 *                                      DICOMM_TOPO_FILE or DICOMM_ALGO
 * @retval DICOMM_ERR_NO_MEMORY         out of memory
 */
dicomm_result_t dicomm_explain(const char *operation, int nranks, size_t bytes,
			       char *text, size_t len);

/**
 * Predict how long an operation takes on a cluster, by one of its algorithms.
 *
 * The library chooses by this time, and takes the first algorithm of the least.
 * The cluster need not be there: the links are those of the first nranks ranks
 * of a description (see dicomm_explain()). Where the description says nothing
 * of reductions and copies, those of this machine count. Many sizes in one call
 * take hardly longer than one.
 *
 * Threads: any.
 *
 * @param topology   file with the description, as of DICOMM_TOPO_FILE; NULL:
 *                   that of DICOMM_TOPO_FILE, without which the ranks share
 *                   this machine
 * @param operation  "allreduce", "broadcast", ...
 * @param nranks     ranks of the communicator
 * @param index      of the algorithm: 0, 1 ...
 * @param bytes      sizes, each as in dicomm_explain()
 * @param n          how many
 * @param algorithm  set to its name, which lives for ever; to NULL where there
 *                   is no algorithm of that index
 * @param seconds    n predicted times; NAN where it cannot serve the operation,
 *                   or DICOMM_ALGO or DICOMM_DETERMINISTIC rule it out
 *
 * @retval DICOMM_SUCCESS               *algorithm and seconds are set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no such operation, or algorithm of it
 *                                      (an index past the end is not logged);
 *                                      nranks below 1 or beyond the cluster; a
 *                                      bad description or DICOMM_ALGO; a
 *                                      pointer is NULL
 * @retval DICOMM_ERR_NO_MEMORY         out of memory
 */
dicomm_result_t dicomm_predict(const char *topology, const char *operation,
			       int nranks, int index, const size_t *bytes,
			       int n, const char **algorithm, double *seconds);

/**
 * Tell whether a network adapter of this machine reaches the memory of a device
 * of this machine. The index goes over all pairs of an adapter that a rank
 * would use and a device with memory of its own.
 *
 * The call tries it, with memory of the device that it allocates and frees.
 *
 * Threads: any.
 *
 * @param index  from 0
 * @param info   filled in
 *
 * @retval DICOMM_SUCCESS               *info is filled in
 * @retval DICOMM_ERR_INVALID_ARGUMENT  index is past the end (not logged), or
 *                                      info is NULL
 * @retval DICOMM_ERR_DEVICE            the driver of the device failed
 * @retval DICOMM_ERR_NO_MEMORY         out of memory
 */
dicomm_result_t dicomm_adapter_info(int index, dicomm_adapter_info_t *info);

/**
 * Say how data would get from one device of this machine to another.
 *
 * A line for people, not for programs, about two ranks in two processes that
 * are bound to these devices, or to one. First comes the path:
 *  - "host memory": both work on it;
 *  - "ipc": the devices map each other's memory;
 *  - "mapped": a device and a host share memory, see dicomm_mem_alloc(); the
 *    host copies what it receives unless it reduces it;
 *  - "rdma": a network adapter reaches both;
 *  - "staged": data passes through host memory, which DICOMM_STAGING=never
 *    refuses.
 * Then, for each better path, the reason why it is not taken: "staged; not ipc:
 * ...; not rdma: ...".
 *
 * The call tries whether adapters reach the devices, as two ranks do that are
 * configured as this process is, with memory of the devices that it allocates
 * and frees. Only two processes could try whether the devices map each other's
 * memory, so the call believes what the driver says.
 *
 * Threads: any.
 *
 * @param first   "host", "cuda:0", ...
 * @param second  the same
 * @param text    set to the line, cut to fit, always ending in NUL
 * @param len     bytes of text
 *
 * @retval DICOMM_SUCCESS               *text is set
 * @retval DICOMM_ERR_INVALID_ARGUMENT  no such device, or no room
 * @retval DICOMM_ERR_NO_MEMORY         out of memory
 */
dicomm_result_t dicomm_explain_devices(const char *first, const char *second,
				       char *text, size_t len);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
