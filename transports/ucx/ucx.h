/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Any network that UCX drives, by active messages of UCP; TCP unless UCX_TLS
 * and UCX_NET_DEVICES say otherwise.
 *
 * A device is a UCP worker, a route is its endpoint to one rank. Messages are
 * eager active messages: the handler, which runs in the receiver's poll(),
 * copies them into the inbox. Large ones can be pulled: the reader asks, and
 * the owner, in its poll(), sends that part of its memory, which UCP writes to
 * where the reader wants it. Over TCP that is only for what has no other way.
 * One-sided puts would carry less there, and take twice as long for a message.
 *
 * So a rank that is away from the library would neither answer nor get its last
 * messages out. A thread (attend.c) polls for it until it comes back.
 */
#ifndef DICOMM_TRANSPORTS_UCX_UCX_H
#define DICOMM_TRANSPORTS_UCX_UCX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <ucp/api/ucp.h>

#include "transports/transport.h"

#define UCX_READS 64 /* as the contract says */
#define UCX_KEY 32
/* Messages that wait until they can be sent, to one rank; what comes after them
 * waits as long. */
#define UCX_STAGES 8
/* For peers to hear a goodbye, and for an abort to get the worker. */
#define UCX_DRAIN_NS UINT64_C(2000000000)

/* ---- load.c: the library, opened at the first use ---- */

/* Linked, it would put handlers of its own on the signals of every program
 * that uses us, from the start. */
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

#define UCX_MEMBER(f) __typeof__(f) *f;
struct ucx_api {
	UCX_FUNCTIONS(UCX_MEMBER)
	/* Copies memory of CUDA in threads without a current context, too: from
	 * 1.19 on. */
	bool needs_no_context;
};
#undef UCX_MEMBER

extern struct ucx_api ucx;

/* Open in this process. What UCX runs for them a child of a fork does not have,
 * and would wait for. */
extern _Atomic int ucx_contexts;
/* The library, in words; false and why, if it cannot be used. */
bool ucx_load(char *why, size_t len);

/* ---- address.c: what ranks tell each other ---- */

#define UCX_WORKER_BYTES 936

/* In a tp_blob, as far as it is used. */
struct ucx_address {
	uint32_t magic, version;
	uint8_t proof[16]; /* of the bytes, with 0 here */
	uint64_t token;    /* stands in each message to that rank */
	uint64_t network;  /* hash of machine and network namespace */
	uint32_t rank, ranks;
	uint32_t slots, slot_bytes;
	uint32_t loopback; /* no other machine gets there */
	uint32_t worker_len;
	char interface[16]; /* for messages */
	uint8_t worker[UCX_WORKER_BYTES];
};

struct tp_device;
void ucx_address_make(const struct tp_device *dev, struct tp_blob *blob);
bool ucx_address_parse(const struct tp_device *dev, const struct tp_blob *blob,
		       struct ucx_address *a, char *why, size_t len);
uint64_t ucx_network(void);
/* The interface where this machine listens; "" if that is not one. */
struct ucx_interface {
	char name[16];
	bool loopback;
};
void ucx_interface_find(const struct tp_config *config,
			struct ucx_interface *out);

/* ---- what is sent: headers of active messages ---- */

enum ucx_what {
	UCX_HELLO,   /* the sender is going to send in that lane */
	UCX_MESSAGE, /* with the line's bytes, or the data, as its body */
	UCX_CREDIT,
	UCX_READ,
	UCX_DATA, /* what was asked for is its body */
	UCX_BYE,  /* this rank sends no more, and wants no more */
	UCX_BYE_HEARD,
	UCX_WHATS
};

/* Part of a sender's memory that a peer may ask for. */
struct ucx_ref {
	uint64_t addr, len;
	uint64_t type; /* ucs_memory_type_t, as its owner knows it */
	uint64_t seal; /* by the owner: it has offered that */
};

struct ucx_head {
	uint64_t token; /* of the receiver */
	uint32_t rank;  /* of the sender */
	uint16_t lane_class;
	uint16_t kind;      /* of the message: enum tp_kind; of a read: UCX_ */
	uint64_t seq;       /* message; credit: released */
	uint64_t len;       /* of the message */
	uint32_t signature; /* of the message; of a read: its number */
	uint32_t status;    /* of UCX_DATA: enum dicomm_result_t */
};

/* How a read wants its data. */
enum { UCX_ANYHOW, UCX_BY_RENDEZVOUS };

struct ucx_ask {
	struct ucx_ref ref;
	uint64_t offset, len;
};

/* ---- route.c: the way to one rank, and what leaves by it ---- */

/* A message on its way that could not be sent at once. Each route has its own:
 * else a slow one would have them all, and the others wait for it. What is not
 * data waits in shorter ones of the device, and never for those: while much is
 * sent, the credits for what comes would starve. */
struct ucx_stage {
	struct ucx_stage *next, **spare; /* where it belongs when it is free */
	struct ucx_route *route;
	struct ucx_head head;
	uint8_t body[];
};

/* A part of memory on its way to who asked for it. */
struct ucx_serve {
	struct ucx_serve *next; /* spare */
	struct ucx_serve *more; /* of all there are */
	struct ucx_route *route;
	struct ucx_head head;
};

struct ucx_route {
	struct tp_device *dev;
	uint32_t rank;
	uint64_t token;  /* the peer's */
	ucp_ep_h ep;     /* NULL until needed */
	uint32_t queued; /* messages not sent yet: later ones wait, too */
	struct ucx_stage *stages; /* spare ones; from the first lane out on */
	void *stage_memory;
	/* what the error handler, or the peer, said */
	_Atomic int status; /* dicomm_result_t */
	ucs_status_t cause;
	bool connected;    /* something has been sent */
	bool dead;         /* says UCX */
	bool told;         /* ... and the user has been */
	bool noticed;      /* ... and who waits has looked once */
	bool bye;          /* this rank has said goodbye */
	bool heard;        /* ... and the peer has heard it */
	_Atomic bool left; /* the peer has said goodbye, or aborted */
	bool owes;         /* ... and has to be told that this was heard */
	bool closed;       /* it is too late for a hello */
	void *closing;     /* request */
	struct ucx_address *hello; /* whom to open the route to */
};

/* Cut spare stages for so many bytes each; the memory, or NULL: there is none.
 */
void *ucx_stages_make(struct ucx_stage **spare, unsigned count, size_t bytes);
/* Make the endpoint. */
dicomm_result_t ucx_route_open(struct ucx_route *route,
			       const struct ucx_address *a);
/* SUCCESS: the body may change. AGAIN: nothing happened. ERR_REMOTE, quietly:
 * see ucx_route_status(). Lock held, as for all that follow. */
dicomm_result_t ucx_route_send(struct ucx_route *route, enum ucx_what what,
			       struct ucx_head *head, const void *body,
			       uint64_t len);
/* Send memory that stays until the peer says that it has it. */
void ucx_route_serve(struct ucx_route *route, const struct ucx_head *head,
		     const void *body, uint64_t len, ucs_memory_type_t type);
/* The route's state as a status, with its words as the last error. */
dicomm_result_t ucx_route_status(struct ucx_route *route);
/* Say goodbye, unless that is done; has the other side heard it, or gone? */
void ucx_route_bye(struct ucx_route *route);
bool ucx_route_is_quiet(const struct ucx_route *route);
/* Neither broken, nor still connecting. */
bool ucx_route_is_sound(const struct ucx_route *route);
/* Begin to close, at once, or when all that was sent is out. Not while it
 * connects: UCX 1.13 may end the program. */
void ucx_route_close(struct ucx_route *route, bool force);
bool ucx_route_is_closed(struct ucx_route *route);

/* ---- ucx.c ---- */

struct ucx_in;
struct ucx_read {
	struct ucx_in *in; /* where it is */
	uint8_t *dst;
	ucs_memory_type_t type; /* of that */
	uint64_t len, missing;
	uint32_t number;
	_Atomic int status; /* dicomm_result_t; IN_PROGRESS: not there yet */
};

/* Receiver's side of a lane; made by the sender's hello. */
struct ucx_in {
	struct ucx_route *route;
	uint16_t lane_class;
	uint8_t *slots; /* lines, and behind them the data */
	uint8_t *data;
	uint64_t freed, told;
	bool urgent; /* the sender may wait for `told` */
	struct ucx_in *untold, **untold_link;
	struct ucx_read reads[UCX_READS];
	/* Parts that UCX is bringing by rendezvous: it knows of `reads`. */
	unsigned receiving;
	bool closed; /* whoever ends the last of them frees it */
};

/* Sender's side. */
struct ucx_out {
	_Atomic uint64_t released;
	uint64_t limit; /* last message that known credits allow */
};

/* A descriptor, and whether it is still what it was. */
struct ucx_socket {
	int fd;
	ino_t inode; /* 0: none */
};

/*
 * All of it, and the worker, belongs to who holds the lock: the thread that
 * uses the device, the one that attends to it meanwhile, or one that aborts.
 */
struct tp_device {
	atomic_flag busy; /* the lock */
	_Atomic bool aborted;
	_Atomic uint32_t visits; /* by the thread that uses it */
	struct tp_config config;
	struct ucx_interface interface;
	bool tcp; /* and nothing else */
	uint64_t network, token;
	uint8_t seal_key[16];
	ucp_context_h context;
	ucp_worker_h worker; /* NULL after abort() */
	ucp_worker_h ended;  /* what it was */
	int efd;
	struct ucx_socket listener; /* over TCP, if it was found */
	bool sockets_closed;
	uint8_t worker_address[UCX_WORKER_BYTES];
	uint32_t worker_address_len;
	struct ucx_route *routes;     /* [ranks] */
	struct ucx_in *_Atomic *in;   /* [rank * TP_CLASSES + class] */
	struct ucx_out *_Atomic *out; /* same */
	struct ucx_in *untold;
	bool owes;      /* some route has something to do: hello, owes */
	unsigned idle;  /* polls that found nothing */
	uint32_t reads; /* numbered so far */
	struct ucx_stage *notes; /* spare stages of what is not data */
	void *note_memory;
	bool blocked;             /* a credit found none */
	struct ucx_serve *serves; /* spare ones */
	struct ucx_serve *all_serves;
	unsigned serving, receiving; /* under way */
	struct tp_peer *peers;
	struct tp_hold *holds;

	/* attend.c */
	struct tp_device *next;
	uint32_t seen; /* of visits */
	bool listed;
	_Atomic bool attended; /* its rank has to wake the thread */
};

struct tp_peer {
	struct tp_device *dev;
	struct ucx_route *route;
	int rank;
	struct ucx_address address;
	struct ucx_in *in[TP_CLASSES];
	struct ucx_out *out[TP_CLASSES];
	struct tp_peer *next;
};

/* Memory of a device. */
struct tp_hold {
	uintptr_t at;
	uint64_t len;
	ucs_memory_type_t type;
	ucp_mem_h memory;
	struct tp_hold *next;
};

void ucx_lock(struct tp_device *dev);
bool ucx_try_lock(struct tp_device *dev);
void ucx_unlock(struct tp_device *dev);
/* With the lock: progress, true if anything moved. */
bool ucx_progress(struct tp_device *dev);

static inline struct ucx_in *ucx_in_of(const struct tp_device *dev,
				       uint32_t rank, uint16_t c)
{
	return atomic_load_explicit(&dev->in[rank * TP_CLASSES + c],
				    memory_order_acquire);
}

static inline struct ucx_out *ucx_out_of(const struct tp_device *dev,
					 uint32_t rank, uint16_t c)
{
	return atomic_load_explicit(&dev->out[rank * TP_CLASSES + c],
				    memory_order_acquire);
}

/* ---- worker.c: the worker, and the context that it is of ---- */

dicomm_result_t ucx_worker_open(struct tp_device *dev);
/* Close the routes first .. end-1, when all that was sent is out. */
void ucx_worker_close_routes(struct tp_device *dev, uint32_t first,
			     uint32_t end);
/* Nothing moves any more, and dev->worker is NULL. */
void ucx_worker_stop(struct tp_device *dev);
/* Give everything back to UCX. */
void ucx_worker_end(struct tp_device *dev);

/* ---- sockets.c: those of a worker that is given up ---- */

#define UCX_LISTENERS 256
struct ucx_sockets {
	size_t n; /* may be more than there is room for */
	struct ucx_socket list[UCX_LISTENERS];
};

/* Which sockets listen before a worker is opened, and which is the one of its
 * own after that. */
void ucx_sockets_before(struct ucx_sockets *before);
void ucx_sockets_find(struct tp_device *dev, const struct ucx_sockets *before);
/* Peers see that nobody is there. The worker is not used any more. */
void ucx_sockets_close(struct tp_device *dev);

/* ---- credits.c: what senders are told of what has been released ---- */

/* Tell, now if that can be, else in a later turn. */
void ucx_credits_tell(struct ucx_in *in);
void ucx_credits_tell_all(struct tp_device *dev);
/* Tell when there is nothing else to do; tell no more. */
void ucx_credits_owe(struct ucx_in *in);
void ucx_credits_forget(struct ucx_in *in);
/* After each progress. */
void ucx_credits_turn(struct tp_device *dev, bool moved);

/* ---- arrive.c: what comes in; the handlers run in ucx_progress() ---- */

/* Register the handlers of a new worker. */
ucs_status_t ucx_arrive_listen(struct tp_device *dev);
/* A lane's inbox; NULL: no memory. */
struct ucx_in *ucx_arrive_make(struct ucx_route *route, uint16_t class);
/* No longer in dev->in; what UCX still brings keeps it until that is there. */
void ucx_arrive_free(struct ucx_in *in);
/* Into the inbox; the body's bytes are in the line's room, or in the slot. */
void ucx_arrive_deliver(struct ucx_in *in, const struct ucx_head *head,
			const void *body, size_t bytes);
/* By which this rank knows what it has offered. */
uint64_t ucx_arrive_seal(const struct tp_device *dev,
			 const struct ucx_ref *ref);
/* Do what handlers leave to be done, as they may not make endpoints. */
void ucx_arrive_pay(struct tp_device *dev);

/* ---- memory.c: memory of devices ---- */

dicomm_result_t ucx_hold_device(struct tp_device *dev,
				const struct tp_region *region,
				struct tp_hold **out, char *how, size_t len);
void ucx_drop(struct tp_device *dev, struct tp_hold *hold);
/* What is not held is the host's. Lock held. */
ucs_memory_type_t ucx_memory_type(const struct tp_device *dev, uintptr_t at,
				  uint64_t len);

/* ---- attend.c: a thread polls where nobody else does ---- */

dicomm_result_t ucx_attend(struct tp_device *dev);
void ucx_attend_wake(void);
/* After it, that thread does not touch the device. */
void ucx_attend_no_more(struct tp_device *dev);

#endif
