/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The UCX state of a rank: a worker, an endpoint to each rank, and the two
 * sides of each channel. A channel carries the messages of one class from one
 * rank to another.
 *
 * The thread that holds the lock owns the whole device with its worker: the
 * thread that uses the device, the progress thread, or a thread that aborts.
 */
#ifndef DICOMM_TRANSPORTS_UCX_DEVICE_H
#define DICOMM_TRANSPORTS_UCX_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <ucp/api/ucp.h>

#include "transports/framed/framed.h"
#include "transports/progress_thread.h"
#include "transports/transport.h"

#define UCX_WORKER_BYTES 936
/* Bounce buffers of one endpoint. When all are in use, later messages wait. */
#define UCX_BOUNCES 8

/* ---- what is sent: active messages and their header ---- */

enum ucx_what {
	UCX_HELLO,   /* the sender will use this channel; body: its address */
	UCX_MESSAGE, /* body: what goes into the line, or the slot's data */
	UCX_CREDIT,  /* seq: messages that the receiver has released */
	UCX_READ,    /* body: struct ucx_read_request */
	UCX_DATA,    /* body: a piece of the data of a read */
	UCX_CLOSE,   /* the sender neither sends nor expects further messages */
	UCX_CLOSE_ACK,
	UCX_WHATS
};

struct ucx_head {
	/* token of the receiver, which accepts no messages without it */
	uint64_t token;
	uint32_t rank; /* rank of the sender */
	uint16_t channel_class;
	/* for a message: enum tp_kind; for a read: UCX_READ_... */
	uint16_t kind;
	/* number of the message; for a credit: last message released */
	uint64_t seq;
	/* length of the message; for data: its offset in the read */
	uint64_t len;
	/* for a message; for a read and its data: number of the read */
	uint32_t signature;
	uint32_t status; /* for UCX_DATA: enum dicomm_result_t */
};

/* How the data of a read is to be sent. */
enum { UCX_READ_ANYHOW, UCX_READ_RENDEZVOUS };

/* Memory of a sender that a peer may read. */
struct ucx_ref {
	uint64_t addr, len;
	uint64_t type; /* ucs_memory_type_t, as the owner knows it */
	uint64_t seal; /* by it, the owner verifies that it has offered this */
};

struct ucx_read_request {
	struct ucx_ref ref;
	uint64_t offset, len;
};

_Static_assert(sizeof(struct ucx_head) == 40 &&
		       sizeof(struct ucx_read_request) == 48,
	       "as docs/wire.md says");

/* ---- one endpoint for each rank ---- */

/*
 * A bounce buffer: a copy of a message that UCX could not send at once. Each
 * endpoint has its own, so that a slow peer cannot use them all. Control
 * messages have shorter ones, shared by the device: credits are sent even while
 * all buffers for data are in use.
 */
struct ucx_bounce {
	struct ucx_bounce *next,
		**spare; /* spare: the list to which it is returned */
	struct ucx_endpoint *endpoint;
	struct ucx_head head;
	uint8_t body[];
};

/* A piece of user memory that is being sent to the peer that reads it. */
struct ucx_reply {
	struct ucx_reply *next; /* spare */
	struct ucx_reply *more; /* the next of all replies, spare or not */
	struct ucx_endpoint *endpoint;
	struct ucx_head head;
};

/*
 * What leads to a rank. UCX connects, and says nothing of how far it is; a
 * put() returns SUCCESS, or AGAIN while too many messages wait for UCX. In this
 * order it is
 *
 *   unused     `ep` is NULL. Left by the first connect_out() to the rank, which
 *              sends a hello with the address of this one; or in the poll after
 *              a hello from there, which has made the inbox (`hello`).
 *   in use     `ep` is set. `connected` once something has been sent.
 *   broken     The error handler of UCX, or a message that is none, has set
 *              base.status: put() and read() return it from now on.
 *   closing    peer_close() or close() has sent UCX_CLOSE (`close_sent`), and
 *              waits for UCX_CLOSE_ACK (`close_acked`). When the peer closes
 *              first, base.peer_closed is set: put() returns ERR_REMOTE.
 *   closed     `closed`: no hello is accepted any more. `ep` is NULL again;
 *              `closing` is the request by which UCX ends the endpoint.
 */
struct ucx_endpoint {
	struct framed_link base;
	uint64_t token; /* token of the peer */
	ucp_ep_h ep;    /* NULL until needed */
	/* number of messages that wait to be sent; later ones wait behind
	 * them */
	uint32_t queued;
	/* spare ones; allocated with the first channel to the peer */
	struct ucx_bounce *bounces;
	void *bounce_memory;
	bool rejected;  /* the peer has sent an invalid message */
	bool connected; /* something has been sent */
	bool failed;    /* UCX has called the error handler */
	bool close_sent;
	bool close_acked;
	bool ack_due;  /* the peer has closed, and needs UCX_CLOSE_ACK */
	bool closed;   /* no hello is accepted any more */
	void *closing; /* request of ucp_ep_close_nbx() */
	/* A peer's address from its hello, to connect to; NULL: none. */
	struct ucx_address *hello;
};

/* ---- the device ---- */

/* The interface on which this rank listens; "" if it is not known. */
struct ucx_interface {
	char name[16];
	bool loopback;
};

/* A descriptor. If its inode has changed, it is another socket by now. */
struct ucx_socket {
	int fd;
	ino_t inode; /* 0: none */
};

struct tp_device {
	struct framed base;
	struct ucx_interface interface;
	bool tcp; /* UCX uses TCP and nothing else */
	ucp_context_h context;
	ucp_worker_h worker; /* NULL after abort() */
	ucp_worker_h ended;  /* the worker that abort() has stopped */
	int efd;
	/* the listening socket of UCX over TCP, if it was found */
	struct ucx_socket listener;
	bool sockets_closed;
	uint8_t worker_address[UCX_WORKER_BYTES];
	uint32_t worker_address_len;
	struct ucx_endpoint *endpoints; /* base.links */
	struct ucx_bounce *control;     /* spare buffers for control messages */
	void *control_memory;
	struct ucx_reply *replies; /* spare */
	struct ucx_reply *all_replies;
	/* number of pieces that UCX is sending, and receiving */
	unsigned replying, receiving;
	struct tp_mem *mems; /* registered memory of devices */
	struct progress_entry progress;
};

/* Memory of a device that UCX has mapped. */
struct tp_mem {
	uintptr_t at;
	uint64_t len;
	ucs_memory_type_t type;
	ucp_mem_h memory;
	struct tp_mem *next;
};

extern const struct framed_ops ucx_ops;

/* The seal of a reference that this rank offers. */
static inline uint64_t ucx_ref_seal(const struct tp_device *dev,
				    const struct ucx_ref *ref)
{
	return framed_read_seal(&dev->base, ref,
				offsetof(struct ucx_ref, seal));
}

#endif
