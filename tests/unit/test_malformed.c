/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank that sends what none of the library sends. Whoever reads it says so,
 * names that rank, and reads and writes nothing that is not its own. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/core/comm.h"
#include "src/message/channel.h"
#include "src/core/paths.h"
#include "src/window/window.h"
#include "tests/support/job.h"
#include "tests/support/runner.h"

#define EVIL 1
#define BYTES 4096
#define TAG_HEAD UINT32_MAX
#define F64 ((uint32_t)DICOMM_FLOAT64)

/* src/engine/tagged.c */
enum { EAGER, OFFER, READY, TAKEN };

static const char *const variants[] = {"DICOMM_TRANSPORTS=tcp",
				       "DICOMM_TRANSPORTS=shm"};

/* What the victim is in meanwhile */
enum act { WAIT, GET, TAG, ANY, SUM };

struct message {
	const char *name;
	enum act act;
	enum tp_class class;
	uint32_t signature;
	enum tp_kind kind;
	uint64_t len;
	/* Words of the head; a window's: what and window, offset, bytes, signal
	 * and context; of a message with a tag: what and type, tag and number,
	 * count, bytes returned. */
	uint64_t word[4];
	const char *says;
};

#define TWO(low, high) ((uint64_t)(low) | (uint64_t)(high) << 32)
#define WORDS(...)          \
	{                   \
		__VA_ARGS__ \
	}
#define WIN(name, kind, len, words, says)                                  \
	{                                                                  \
		name, WAIT, TP_WINDOW, WINDOW_HEAD, kind, len, words, says \
	}
#define TAGGED(name, kind, len, words, says)                           \
	{                                                              \
		name, TAG, TP_TAGGED, TAG_HEAD, kind, len, words, says \
	}

static const struct message messages[] = {
	WIN("a head that is a reference", TP_REF, 1 << 20,
	    WORDS(TWO(WINDOW_PUT, 1), 0, (1 << 20) - 32, 1), "as a head"),
	WIN("a head that is a short reference", TP_REF, 40,
	    WORDS(TWO(WINDOW_PUT, 1), 0, 8, 1), "as a head"),
	WIN("a head that says it is longer than memory", TP_REF, UINT64_MAX,
	    WORDS(TWO(WINDOW_PUT, 1), 0, 8, 1), "as a head"),
	WIN("half a head", TP_DATA, 16, WORDS(TWO(WINDOW_PUT, 1)), "as a head"),
	WIN("an empty head", TP_DATA, 0, WORDS(0), "as a head"),
	WIN("a head of no kind", TP_DATA, 40, WORDS(TWO(7, 1), 0, 8, 1),
	    "a head 7"),
	WIN("a window that is none", TP_DATA, 40,
	    WORDS(TWO(WINDOW_PUT, 99), 0, 8, 1), "window 99"),
	WIN("an offset beyond the window", TP_DATA, 40,
	    WORDS(TWO(WINDOW_PUT, 1), BYTES - 7, 8, 1), "offset 4089"),
	WIN("an offset that wraps", TP_DATA, 40,
	    WORDS(TWO(WINDOW_PUT, 1), UINT64_MAX - 3, 8, 1), "offset"),
	WIN("bytes that wrap", TP_DATA, 40,
	    WORDS(TWO(WINDOW_PUT, 1), 8, UINT64_MAX - 3, 1), "offset 8"),
	WIN("other bytes than it says", TP_DATA, 40,
	    WORDS(TWO(WINDOW_PUT, 1), 0, 9, 1), "9 bytes"),
	WIN("a signal that is none", TP_DATA, 32,
	    WORDS(TWO(WINDOW_PUT, 0), 0, 0, DICOMM_SIGNALS), "signal"),
	WIN("a context that is none", TP_DATA, 32,
	    WORDS(TWO(WINDOW_PUT, 0), 0, 0, (uint64_t)60000 << 16), "context"),
	WIN("a reply to no get", TP_DATA, 40,
	    WORDS(TWO(WINDOW_REPLY, 1), 0, 8, 0), "a head 2"),
	WIN("a get beyond the window", TP_DATA, 32,
	    WORDS(TWO(WINDOW_GET, 1), 1, BYTES, 0), "a head 1"),
	WIN("a get with bytes", TP_DATA, 40, WORDS(TWO(WINDOW_GET, 1), 0, 8, 0),
	    "a head 1"),
	{"bytes of no put", WAIT, TP_WINDOW, WINDOW_BYTES, TP_DATA, 8, WORDS(0),
	 "0 to send"},
	{"no bytes of no put", WAIT, TP_WINDOW, WINDOW_BYTES, TP_DATA, 0,
	 WORDS(0), "0 to send"},
	{"a reference of no put", WAIT, TP_WINDOW, WINDOW_BYTES, TP_REF, 8,
	 WORDS(0), "0 to send"},
	{"a window message of no kind", WAIT, TP_WINDOW, 5, TP_DATA, 40,
	 WORDS(0), "signature 0x5"},
	{"a reply of another get", GET, TP_WINDOW, WINDOW_HEAD, TP_DATA, 40,
	 WORDS(TWO(WINDOW_REPLY, 1), 0, 8, TWO(0, 77)), "a head 2"},
	{"a reply of other bytes", GET, TP_WINDOW, WINDOW_HEAD, TP_DATA, 48,
	 WORDS(TWO(WINDOW_REPLY, 1), 0, 16, TWO(0, 1)), "a head 2"},
	TAGGED("a head that is a reference", TP_REF, 4096,
	       WORDS(TWO(EAGER, F64), TWO(5, 0), 508, 0), "as a head"),
	TAGGED("half a head", TP_DATA, 8, WORDS(TWO(EAGER, F64)), "as a head"),
	TAGGED("a long head", TP_DATA, 8000, WORDS(TWO(EAGER, F64)),
	       "as a head"),
	TAGGED("a head of no kind", TP_DATA, 32, WORDS(TWO(9, F64)),
	       "a head 9"),
	TAGGED("a type that is none", TP_DATA, 40,
	       WORDS(TWO(EAGER, 99), TWO(5, 0), 1, 0), "type 99"),
	TAGGED("other bytes than it says", TP_DATA, 40,
	       WORDS(TWO(EAGER, F64), TWO(5, 0), 2, 0), "2 elements"),
	TAGGED("elements that wrap", TP_DATA, 40,
	       WORDS(TWO(EAGER, F64), TWO(5, 0), (UINT64_C(1) << 61) + 1, 0),
	       "elements"),
	TAGGED("an offer with bytes", TP_DATA, 40,
	       WORDS(TWO(OFFER, F64), TWO(5, 0), 1, 0), "as offer"),
	TAGGED("an offer without a number", TP_DATA, 32,
	       WORDS(TWO(OFFER, F64), TWO(5, UINT32_MAX), 1, 0), "as offer"),
	TAGGED("an answer to no offer", TP_DATA, 32,
	       WORDS(TWO(READY, 0), TWO(0, 3), 0, 0), "offer 3"),
	TAGGED("more returned than was lent", TP_DATA, 32,
	       WORDS(TWO(TAKEN, 0), 0, 0, 4096), "returns 4096 of 0"),
	{"bytes of no offer", TAG, TP_TAGGED, 3, TP_DATA, 8, WORDS(0),
	 "offer 3"},
	{"a reference of no offer", TAG, TP_TAGGED, 3, TP_REF, 8, WORDS(0),
	 "offer 3"},
	{"a message of any source", ANY, TP_TAGGED, TAG_HEAD, TP_REF, 99,
	 WORDS(0), "as a head"},
	/* These have the signature of the call. */
	{"a sum that is a reference to nothing", SUM, TP_COLLECTIVE, 0, TP_REF,
	 8, WORDS(8, 8, 8, 8), ""},
	{"a sum of other bytes", SUM, TP_COLLECTIVE, 0, TP_DATA, 9, WORDS(0),
	 "disagree"},
	{"a sum that is a long reference", SUM, TP_COLLECTIVE, 0, TP_REF,
	 UINT64_MAX, WORDS(0), "disagree"},
	{"a sum of no kind", SUM, TP_COLLECTIVE, 0, (enum tp_kind)5, 8,
	 WORDS(0), ""},
};
#define MESSAGES (sizeof(messages) / sizeof(*messages))

static uint8_t body[BYTES * 8];

/* ---- the rank that sends it ---- */

static const struct message *evil;
static const struct transport *honest;
static struct transport changed;

static void make_body(void)
{
	memset(body, 0x5a, sizeof(body));
	memcpy(body, evil->word, sizeof(evil->word));
}

static dicomm_result_t put_evil(struct tp_peer *peer, enum tp_class c,
				uint64_t seq, uint32_t signature,
				enum tp_kind kind, const void *at, uint64_t len)
{
	(void)kind;
	(void)at;
	(void)len;
	return honest->put(peer, c, seq, signature, evil->kind, body,
			   evil->len);
}

/* The thread that serves the window uses the peer, too. Returns false if the
 * communicator is broken: nobody uses a peer of it then. */
static bool enter(dicomm_comm_t comm)
{
	enum data_path_entry entry;

	while ((entry = data_path_enter(&comm->path)) == DATA_PATH_BUSY)
		job_sleep_ms(1);
	return entry == DATA_PATH_ENTERED;
}

static void set_transport(dicomm_comm_t comm, const struct transport *t)
{
	if (!enter(comm))
		return;
	comm->peers[0].transport = t;
	data_path_leave(&comm->path);
}

static void send_sum(dicomm_comm_t comm)
{
	double one = 1, sum;

	honest = comm->peers[0].transport;
	changed = *honest;
	changed.put = put_evil;
	set_transport(comm, &changed);
	dicomm_allreduce(&one, &sum, 1, DICOMM_FLOAT64, DICOMM_SUM, comm, NULL);
	set_transport(comm, honest);
}

/* DICOMM_AGAIN: not sent yet. */
static dicomm_result_t try_evil(struct peer *peer)
{
	dicomm_result_t status;

	peer->transport->poll(peer->device);
	status = channel_connect_out(peer, evil->class);
	if (status == DICOMM_SUCCESS)
		status = peer->transport->put(peer->tp, evil->class, 1,
					      evil->signature, evil->kind, body,
					      evil->len);
	return status;
}

static void send_evil(dicomm_comm_t comm)
{
	struct peer *peer;
	double end = job_seconds() + 20;
	dicomm_result_t status;

	make_body();
	JOB_CHECK(enter(comm), "%s: broken too early", evil->name);
	JOB_TRY(comm_peer(comm, 0, &peer));
	data_path_leave(&comm->path);
	if (evil->act == SUM)
		send_sum(comm);
	for (status = DICOMM_AGAIN; evil->act != SUM && status;
	     job_sleep_ms(1)) {
		JOB_CHECK(job_seconds() < end, "%s: no room, %d", evil->name,
			  status);
		if (data_path_enter(&comm->path) != DATA_PATH_ENTERED)
			continue;
		status = try_evil(peer);
		data_path_leave(&comm->path);
	}
	/* The true answer must not come before this one. */
	if (evil->act == GET) {
		if (enter(comm)) {
			peer->channel[TP_WINDOW].out_base = 1;
			data_path_leave(&comm->path);
		}
		job_barrier();
	}
	/* It has to leave this process, and the other rank to tell its own. */
	while (dicomm_comm_get_async_error(comm, &status) == DICOMM_SUCCESS &&
	       status == DICOMM_SUCCESS && job_seconds() < end) {
		if (data_path_enter(&comm->path) == DATA_PATH_ENTERED) {
			peer->transport->poll(peer->device);
			data_path_leave(&comm->path);
		}
		job_sleep_ms(1);
	}
}

/* ---- the rank that reads it ---- */

static dicomm_result_t call(dicomm_comm_t comm, dicomm_window_t win)
{
	dicomm_wait_signal_desc_t want = {1, EVIL, 1, 0};
	double value[2] = {1, 1}, sum;

	switch (evil->act) {
	case WAIT:
		return dicomm_wait_signal(1, &want, comm, NULL);
	case GET:
		job_barrier();
		return dicomm_get(value, 1, DICOMM_FLOAT64, EVIL, win, 0, comm,
				  NULL);
	case TAG:
		return dicomm_recv_tag(value, 1, DICOMM_FLOAT64, EVIL, 5, comm,
				       NULL, NULL);
	case ANY:
		return dicomm_recv_tag(value, 1, DICOMM_FLOAT64,
				       DICOMM_ANY_SOURCE, 5, comm, NULL, NULL);
	default:
		return dicomm_allreduce(value, &sum, 1, DICOMM_FLOAT64,
					DICOMM_SUM, comm, NULL);
	}
}

static void read_evil(dicomm_comm_t comm, dicomm_window_t win)
{
	dicomm_result_t status = call(comm, win);
	const char *text = dicomm_get_last_error(comm);

	JOB_CHECK(status != DICOMM_SUCCESS, "%s: SUCCESS", evil->name);
	JOB_CHECK(strstr(text, "rank 1") && strstr(text, evil->says),
		  "%s: \"%s\" does not say \"%s\" of rank 1", evil->name, text,
		  evil->says);
}

static void one_after_the_other(struct job_rank *me)
{
	for (size_t i = 0; i < MESSAGES; i++) {
		uint8_t *memory = calloc(1, BYTES);
		dicomm_window_t win;
		dicomm_comm_t comm;

		evil = &messages[i];
		job_doing("%s", evil->name);
		JOB_TRY(dicomm_comm_split(me->comm, 0, me->rank, &comm, NULL));
		JOB_TRY(dicomm_comm_window_register(comm, memory, BYTES, &win,
						    DICOMM_WINDOW_DEFAULT));
		/* A rank that still registers serves others, too, and would
		 * read it there. */
		job_barrier();
		if (me->rank == EVIL)
			send_evil(comm);
		else
			read_evil(comm, win);
		dicomm_comm_abort(comm);
		for (size_t b = 0; b < BYTES; b++)
			JOB_CHECK(!memory[b], "%s: byte %zu is %#x", evil->name,
				  b, memory[b]);
		free(memory);
	}
}

START_TEST(who_reads_a_malformed_message_names_its_sender)
{
	job_run(&(struct job){.run = one_after_the_other,
			      .ranks = 2,
			      .env = {variants[_i], "DICOMM_DEBUG=none",
				      "DICOMM_TIMEOUT_MS=30000"},
			      .timeout_s = 90});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("malformed");
	TCase *tcase = tcase_create("malformed");

	tcase_set_timeout(tcase, 100);
	tcase_add_loop_test(
		tcase, who_reads_a_malformed_message_names_its_sender, 0, 2);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
