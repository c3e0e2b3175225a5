/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks for tests of a transport: threads of this process, or processes of
 * their own, each with an open device and a peer for every rank.
 *
 * Every wait has a bound. The first thing that goes wrong in any rank ends all
 * of them, and the test that ran them fails with its text.
 */
#ifndef DICOMM_TESTS_TRANSPORTS_RANKS_H
#define DICOMM_TESTS_TRANSPORTS_RANKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "transports/transport.h"

#define RANKS_MAX 16
#define RANKS_SHARED_BYTES 65536

enum ranks_kind { RANKS_THREADS, RANKS_PROCESSES, RANKS_KINDS };

/* Seen by all ranks. */
struct ranks_area {
	struct tp_blob address[RANKS_MAX];
	pid_t pid[RANKS_MAX];
	_Atomic int arrived; /* at barriers, ever */
	_Atomic bool failed;
	char failure[512];
	/* For the test: begins as zero. */
	_Atomic uint64_t flag[RANKS_MAX];
	uint8_t bytes[RANKS_SHARED_BYTES];
};

struct rank {
	const struct transport *t;
	enum ranks_kind kind;
	struct ranks_area *area;
	struct tp_config config;
	int rank, ranks;
	int barriers;
	struct tp_device *dev;
	struct tp_peer *peer[RANKS_MAX]; /* set to NULL once closed */
	struct tp_outbox out[RANKS_MAX][TP_CLASSES];
	struct tp_inbox in[RANKS_MAX][TP_CLASSES];
	/* Bodies of messages in flight; see ranks_try_put(). */
	uint8_t *body[RANKS_MAX][TP_CLASSES];
};

struct ranks_job {
	const struct transport *t;
	enum ranks_kind kind;
	int ranks;
	uint32_t slots, slot_bytes; /* 0: 8 of 4096 bytes */
	void (*run)(struct rank *r);
	int killed; /* rank + 1 that kills itself; 0: none */
};

/* Runs the job; fails the running test if a rank failed. */
void ranks_run(const struct ranks_job *job);

/* In a rank: says where and why, then ends all ranks. */
void ranks_fail(struct rank *r, const char *file, int line, const char *what,
		const char *format, ...)
	__attribute__((noreturn, format(printf, 5, 6)));
#define EXPECT(r, condition, ...) \
	((condition)              \
		 ? (void)0        \
		 : ranks_fail(r, __FILE__, __LINE__, #condition, __VA_ARGS__))
#define EXPECT_OK(r, call)                                                    \
	do {                                                                  \
		dicomm_result_t expect_status = (call);                       \
		if (expect_status != DICOMM_SUCCESS)                          \
			ranks_fail(r, __FILE__, __LINE__, #call, "status %d", \
				   (int)expect_status);                       \
	} while (0)

/* Until a condition holds: RANKS_WAIT(r, flag == 1). */
struct ranks_wait {
	uint64_t deadline_ns, spins;
};
void ranks_wait_turn(struct rank *r, struct ranks_wait *w, const char *file,
		     int line, const char *what);
#define RANKS_WAIT(r, condition)                               \
	for (struct ranks_wait ranks_w = {0, 0}; !(condition); \
	     ranks_wait_turn(r, &ranks_w, __FILE__, __LINE__, #condition))

/* Stops the process of another rank, and returns when all its threads stand:
 * one of them takes the signal, and the others run on until it has a core. */
void ranks_stop(struct rank *r, int peer);

void ranks_barrier(struct rank *r);
/* Has a rank's process ended? Its parent need not have noticed. */
bool ranks_is_dead(const struct rank *r, int rank);
/* Both directions of a class to and from a peer; both sides call it. */
void ranks_connect(struct rank *r, int peer, enum tp_class c);
/* One direction; waits for the other side. */
void ranks_connect_out(struct rank *r, int peer, enum tp_class c);
void ranks_connect_in(struct rank *r, int peer, enum tp_class c);
/* One put, of a copy that stays for as long as the transport may need it.
 * Success also if it is sent later. */
dicomm_result_t ranks_try_put(struct rank *r, int peer, enum tp_class c,
			      uint64_t seq, const void *body, uint64_t len);
/* Waits for credits. */
void ranks_put(struct rank *r, int peer, enum tp_class c, uint64_t seq,
	       const void *body, uint64_t len);
/* Waits for a message; its line and its body. */
const struct tp_line *ranks_get(struct rank *r, int peer, enum tp_class c,
				uint64_t seq, const uint8_t **body);

/* Read from a reference, to the end. */
void ranks_read(struct rank *r, int peer, enum tp_class c, uint64_t seq,
		const struct tp_ref *ref, uint64_t offset, void *dst,
		uint64_t len);

/* Bytes that depend on where and in which message they are. */
void ranks_fill(uint8_t *bytes, uint64_t len, uint64_t seed);
/* First offset that is wrong; len if none is. */
uint64_t ranks_check(const uint8_t *bytes, uint64_t len, uint64_t seed);

#endif
