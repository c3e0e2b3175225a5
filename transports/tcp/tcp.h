/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TCP by plain sockets, which never block, and epoll.
 *
 * A link leads to one rank by one connection, or by several that share the
 * load. It carries frames, each with a head of 32 bytes and a body. A message
 * is written to the socket at once; if the kernel has no room for all of it,
 * the rest is kept, of one message at most. The receiver lets the kernel write
 * all of a body that has not come with its head directly to its place: the slot
 * of an inbox, or the destination of a read(). A read() sends a request to the
 * owner of the memory, which sends the bytes in its poll().
 *
 * Nothing blocks for a connection: put() returns AGAIN until there is one, so
 * the time counts against the time-out of the operation.
 *
 * A rank that is away from the library would neither answer nor get its last
 * messages out. A thread (transports/progress_thread.h) polls for it until it
 * comes back.
 */
#ifndef DICOMM_TRANSPORTS_TCP_TCP_H
#define DICOMM_TRANSPORTS_TCP_TCP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "src/base/strangers.h"
#include "transports/framed/framed.h"
#include "transports/progress_thread.h"
#include "transports/transport.h"

#define TCP_KEY sizeof(((struct tp_config *)0)->key)
#define TCP_NONCE 32
#define TCP_PROOF 32
#define TCP_CONNECTIONS 8 /* most connections of a link */
/* Input buffer: heads, and messages so short that several arrive at once. */
#define TCP_INPUT_BYTES 8192
/* Most bytes of control frames that wait to be sent */
#define TCP_CONTROL_BYTES 8192

/* The value of DICOMM_ENCRYPT; peers have to agree. */
enum tcp_protection { TCP_CLEAR, TCP_SIGNED, TCP_ENCRYPTED, TCP_PROTECTIONS };

/* ---- address.c: the address of a rank ---- */

struct tcp_address {
	struct framed_address base;
	uint32_t loopback;   /* it listens at a loopback address */
	uint32_t protection; /* enum tcp_protection */
	char listen[80];     /* "ADDRESS:PORT" */
};

struct tp_device;
void tcp_address_make(const struct tp_device *dev, struct tp_blob *blob);
bool tcp_address_parse(const struct tp_device *dev, const struct tp_blob *blob,
		       struct tcp_address *a, char *why, size_t len);
/* Its value of DICOMM_ENCRYPT */
const char *tcp_address_protection(uint32_t protection);

/* ---- frames ---- */

enum tcp_frame {
	TCP_FRAME_CHANNEL, /* the sender will use this channel */
	TCP_FRAME_MESSAGE, /* body: for the line, or the slot's data */
	TCP_FRAME_CREDIT,  /* only the head: its `consumed` */
	TCP_FRAME_READ,    /* body: struct tcp_read_request */
	TCP_FRAME_DATA,    /* body: a piece of the data of a read */
	/* the sender neither sends nor expects further frames */
	TCP_FRAME_CLOSE,
	/* acknowledges the TCP_FRAME_CLOSE of all connections of a link */
	TCP_FRAME_CLOSE_ACK,
	TCP_FRAME_TYPES
};

struct tcp_head {
	uint8_t what;          /* enum tcp_frame */
	uint8_t channel_class; /* enum tp_class */
	uint16_t kind;         /* for a message: enum tp_kind */
	/* for a message; for a read and its data: number of the read */
	uint32_t signature;
	uint64_t seq; /* of the message */
	uint64_t len; /* length of the message, or of the data in this frame */
	union {
		/* TCP_FRAME_DATA: offset within the requested range. */
		uint64_t offset;
		/* Other frames: number of the last message of this class that
		 * the sender of the frame has released (credit). */
		uint64_t consumed;
	};
};

/* Memory of a sender that a peer may read. */
struct tcp_ref {
	uint64_t addr, len;
	uint64_t seal; /* by it, the owner verifies that it has offered this */
};

struct tcp_read_request {
	struct tcp_ref ref;
	uint64_t offset, len;
};

_Static_assert(sizeof(struct tcp_address) == 144 &&
		       sizeof(struct tcp_head) == 32 &&
		       sizeof(struct tcp_read_request) == 40,
	       "as docs/wire.md says");

/* ---- connections ---- */

/*
 * The states of a connection. A put() to the rank returns AGAIN until all
 * connections of the link are TCP_OPEN. Where the link fails, each put() and
 * read() with that rank returns ERR_REMOTE from then on, and broken() names it.
 *
 * The rank that connects: CONNECTING, HELLO_SENT, OPEN. The rank that is
 * connected to: ACCEPTED, ANSWER_SENT, OPEN.
 */
enum tcp_state {
	/* Entered by tcp_join_connect(), at the first connect_out() to the
	 * rank, and at a retry. The kernel connects. Left for TCP_HELLO_SENT
	 * when it has, and a hello is sent. An error of the kernel fails the
	 * link; so does no answer at all for 9 s, or, later than a minute after
	 * open(), for as long as a host may be silent. */
	TCP_CONNECTING,
	/* A hello is sent, an answer is awaited. Left for TCP_OPEN at the right
	 * answer, if that is welcome: a confirm is sent. If it is crossed, all
	 * connections of the link are dropped, and those of the peer are
	 * awaited; if it is refused, the link fails. At an end, or an answer
	 * that proves nothing, this one is dropped and connects again after 100
	 * ms; after 20 such attempts the link fails. */
	TCP_HELLO_SENT,
	/* Entered when the listener accepts it. It belongs to no link, and a
	 * hello is awaited. Left for TCP_ANSWER_SENT at the right hello, unless
	 * that is crossed or refused: then it is dropped after the answer. It
	 * is dropped, too, at a wrong hello, after 10 s, and when there are too
	 * many of its kind; no link notices. */
	TCP_ACCEPTED,
	/* An answer is sent, and it belongs to a link. The hello was genuine,
	 * or a copy of one: a confirm is awaited, which nobody can copy. Left
	 * for TCP_OPEN at the right confirm. At a wrong one, an end, or after
	 * 600 s it is dropped, and the link is free for another hello. */
	TCP_ANSWER_SENT,
	/* Both sides have proved who they are. When all connections of the link
	 * are open, put() returns SUCCESS, or AGAIN while the kernel has no
	 * room. An end before TCP_FRAME_CLOSE, an invalid frame and a silent
	 * host fail the link. After TCP_FRAME_CLOSE by all connections, put()
	 * returns ERR_REMOTE, and an end only drops it. */
	TCP_OPEN,
	/* Entered by tcp_socket_drop(): the descriptor is closed, and it
	 * belongs to no link any more. Freed at the end of the poll. */
	TCP_CLOSED
};

/* Memory that is being sent, piece by piece, to the peer that reads it. */
struct tcp_reply {
	struct tcp_head head; /* head of the next piece */
	const uint8_t *at;    /* memory that is still to be sent */
	uint64_t left;        /* bytes left to send */
};
#define TCP_REPLIES (TP_CLASSES * FRAMED_READS)

struct tcp_link;
struct tcp_seal;
struct tcp_conn {
	struct tp_device *dev;
	struct tcp_link *link; /* NULL: the peer has not sent its proof yet */
	uint32_t index;        /* index among the connections of the link */
	int fd;
	enum tcp_state state;
	uint32_t events; /* for which epoll watches */
	uint64_t deadline_ms;
	struct tcp_conn *next, **at; /* all of the device */

	/* handshake.h; NULL: open, or closed */
	struct tcp_handshake *handshake;
	struct stranger stranger; /* until its hello has proved its rank */

	/* send.c: it has ended, and why */
	void (*lost)(struct tcp_conn *c, int error);
	/* Output queue, in sending order: 1. tail of a partly sent
	 * message, 2. rest of a partly sent piece of a reply, 3. control
	 * frames, 4. further pieces of replies. */
	uint8_t *tail;
	uint32_t tail_begin, tail_end;
	uint8_t control[TCP_CONTROL_BYTES];
	uint32_t control_begin, control_end;
	struct tcp_reply *replies; /* a ring buffer */
	uint32_t reply_first, reply_count;
	/* head of the partly sent piece of replies[reply_first] */
	struct tcp_head piece;
	uint64_t piece_sent, piece_len;
	bool piece_open;
	/* a put() returned AGAIN: its message is sent before further pieces */
	bool put_waits;
	bool blocked; /* the kernel had no room */

	/* receive.c */
	uint8_t input[TCP_INPUT_BYTES];
	uint32_t input_begin, input_end;
	struct tcp_head
		head;  /* head of the frame whose body is being received */
	uint8_t *body; /* place of its next byte; NULL: the body is dropped */
	uint64_t body_left;
	bool close_received; /* TCP_FRAME_CLOSE, by this connection */

	/* watch.c */
	uint64_t checked_ms, answered_ms;

	struct tcp_seal *seal; /* NULL: the connection is not sealed */
};

/* To one rank. */
struct tcp_link {
	struct framed_link base;
	struct tcp_address *address; /* address of the peer; NULL: not known */
	bool initiator;              /* this rank has connected */
	bool retry;                  /* it connects again at retry_ms */
	uint32_t count;              /* connections; 0: none yet */
	uint32_t open;
	bool ready;        /* all connections are open */
	uint32_t attempts; /* connects that ended before an answer */
	uint64_t retry_ms;
	struct tcp_conn *conn[TCP_CONNECTIONS];
	bool announce[TP_CLASSES]; /* TCP_FRAME_CHANNEL has to be sent */
	bool close_sent[TCP_CONNECTIONS];
	/* number of TCP_FRAME_CLOSE received, one by each connection */
	uint32_t closes;
	bool close_acked;
	bool ack_due; /* the peer has closed, and needs TCP_FRAME_CLOSE_ACK */
	bool closed;  /* no connection is accepted any more */
};

/*
 * The thread that holds the lock owns the whole device: the thread that uses
 * it, the progress thread, or a thread that aborts.
 */
struct tp_device {
	struct framed base;
	uint64_t opened_ms;
	uint64_t silent_ms; /* how long a host may not answer; 0: for ever */
	enum tcp_protection protection;
	/* number of connections of a link that this rank makes */
	uint32_t connections;
	char listen[80];
	struct sockaddr_storage listens; /* the same */
	bool loopback;
	int epoll, listener; /* -1: none */
	bool paused;         /* the listener pauses for lack of descriptors */
	struct progress_entry progress;

	struct tcp_link *links;          /* base.links */
	struct tcp_conn *conns, *closed; /* closed: to be freed */
	struct strangers strangers;
	_Atomic uint32_t open; /* connections; tcp_memory() reads it, too */
	/* Of connections that have ended; of all when that was last counted */
	uint64_t ended_retransmits;
	_Atomic uint64_t retransmits;
	/* Handshakes in progress, connects to retry, and a paused listener: if
	 * there are any, tcp_join_tick() has work. */
	uint32_t pending;
	uint64_t tick_ms; /* the next tcp_join_tick() */
	bool polled;      /* something moved in a poll since the last wait() */
	/* Polls so far; wait() and the progress thread set it. */
	_Atomic uint32_t polls;
};

extern const struct framed_ops tcp_ops;

/* The seal of a reference that this rank offers. */
static inline uint64_t tcp_ref_seal(const struct tp_device *dev,
				    const struct tcp_ref *ref)
{
	return framed_read_seal(&dev->base, ref,
				offsetof(struct tcp_ref, seal));
}

/* The lock is held for all that follows. */

/* ---- socket.c: sockets, and what epoll looks for ---- */

/* Listen, and make the epoll set on which wait() sleeps. */
dicomm_result_t tcp_socket_open(struct tp_device *dev);
void tcp_socket_close(struct tp_device *dev);
/* Stop listening: peers that connect from now on are refused. */
void tcp_socket_stop_listening(struct tp_device *dev);
/* Make a connection of a descriptor. On failure, closes the descriptor and
 * returns NULL. */
struct tcp_conn *tcp_socket_add(struct tp_device *dev, int fd,
				enum tcp_state state, uint32_t events);
/* Close it. tcp_socket_free_closed() frees it at the end of the poll, because
 * events of epoll may still point to it. */
void tcp_socket_drop(struct tcp_conn *c);
void tcp_socket_free_closed(struct tp_device *dev);
void tcp_socket_watch(struct tcp_conn *c, uint32_t events);
/* Begin to connect; -1 and errno. */
int tcp_socket_connect(const struct tp_device *dev, const char *to);
/* Accept a connection; -1: there is none, or no free descriptor. Without a
 * descriptor, the oldest connection without a proof is closed. If there is
 * none, the listener pauses until tcp_socket_resume(). */
int tcp_socket_accept(struct tp_device *dev);
void tcp_socket_resume(struct tp_device *dev);
/* Return the number of bytes moved; 0: the kernel has no room, or no bytes; -1:
 * the connection has ended, with the reason in errno, 0 if the peer has closed
 * it. */
ssize_t tcp_socket_send(struct tcp_conn *c, struct iovec *v, int n);
ssize_t tcp_socket_receive(struct tcp_conn *c, struct iovec *v, int n);

/* ---- join.c: how two ranks make a connection ---- */

/* Connect to that rank, unless one of the two has connected already. */
void tcp_join_connect(struct tcp_link *link);
void tcp_join_accept(struct tp_device *dev);
/* Epoll has an event of a connection that is not open yet. */
void tcp_join_advance(struct tcp_conn *c);
/* Drop handshakes that take too long; retry connects. */
void tcp_join_tick(struct tp_device *dev, uint64_t now_ms);

/* ---- link.c: the state of a link ---- */

/* All connections are open: send TCP_FRAME_CHANNEL for the channels that were
 * begun. */
void tcp_link_ready(struct tcp_link *link);
/* A connection has ended, with this errno; 0: the peer has closed it. */
void tcp_link_lost(struct tcp_conn *c, int error);
/* A connection has received TCP_FRAME_CLOSE. */
void tcp_link_on_close(struct tcp_conn *c);
/* Send TCP_FRAME_CLOSE by all connections, unless it was sent. */
void tcp_link_say_close(struct tcp_link *link);
/* The peer has acknowledged the close, or is gone. */
bool tcp_link_is_quiet(const struct tcp_link *link);
/* Close its connections. */
void tcp_link_drop(struct tcp_link *link);
/* Send announcements and acknowledgements that could not be sent before. */
void tcp_link_flush_deferred(struct tp_device *dev);

/* ---- send.c: sends by a connection ---- */

/* lost() is called when sending fails, unless the peer has closed: what it has
 * sent before may still be received. */
dicomm_result_t tcp_send_open(struct tcp_conn *c,
			      void (*lost)(struct tcp_conn *c, int error));
/* SUCCESS: the caller may change the body. AGAIN: nothing happened, or the
 * connection has broken. */
dicomm_result_t tcp_send_message(struct tcp_conn *c,
				 const struct tcp_head *head, const void *body,
				 uint64_t len);
/* The same for a control frame, which queues up if it cannot be sent now. */
dicomm_result_t tcp_send_control(struct tcp_conn *c,
				 const struct tcp_head *head, const void *body,
				 size_t len);
/* Reply to a read: send memory that stays valid until the peer has received it;
 * head->offset is its offset in the requested range. False: there are too many
 * replies. */
bool tcp_send_reply(struct tcp_conn *c, const struct tcp_head *head,
		    const void *memory, uint64_t len);
/* Send what is queued; true if some of it was sent. */
bool tcp_send_more(struct tcp_conn *c);
bool tcp_send_is_pending(const struct tcp_conn *c);
/* Is a frame partly sent? */
bool tcp_send_is_amid_frame(const struct tcp_conn *c);

/* ---- receive.c: receives by a connection ---- */

/* Receive what has arrived; true if something had. */
bool tcp_receive(struct tcp_conn *c);

/* ---- watch.c: what the kernel tells of connections ---- */

/* Fail links to hosts that no longer answer. */
void tcp_watch(struct tp_device *dev);
/* An open connection is about to be closed: count what it sent again. */
void tcp_watch_end(struct tcp_conn *c);
/* Operation of struct transport, without the lock */
uint64_t tcp_watch_retransmits(struct tp_device *dev);

#endif
