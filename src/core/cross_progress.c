/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank that runs no operation of a communicator may still be needed there. If
 * a NIC fails, its peers need this rank to quiesce the queue pair and to send
 * lost messages again. Peers may also lack credits that this rank had no room
 * to send. A thread that waits in another communicator has time for that.
 *
 * It borrows the data path for a few polls (data_path.h).
 *
 * A rank that has registered a window is served by a thread, dicomm-windows.
 * While something moves, or the rank makes calls, that thread polls and naps.
 * When all has been quiet for a while, it sleeps on the doorbells of the
 * transports: peers ring them over shared memory, and the progress thread of
 * the transports, which sleeps on their descriptors, rings that of the process.
 *
 * Nothing is left behind asleep. The thread arms the doorbells, and then looks
 * once more for messages, so each message is seen or rings (doorbell.h says
 * why, and why it looks a second time). It sleeps only if it was the one that
 * looked last: if the rank itself is in the data path, it naps until that is
 * over. Messages that come while the rank is in the data path ring as others
 * do.
 */
#include "src/core/cross_progress.h"

#include <string.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/doorbell.h"
#include "src/base/log.h"
#include "src/base/thread.h"
#include "src/core/paths.h"

/* Polls of one communicator before the next one gets its turn. */
#define POLLS 8
/* Nanoseconds between two polls by the thread: the least while something moves,
 * then twice as long each time */
#define SERVE_LEAST_NS 20000
#define SERVE_MOST_NS 2000000
/* It sleeps when nothing has moved for so long. A doorbell may ring for what is
 * not its business: messages of calls. So if nothing moved since it rang, it
 * waits twice as long the next time. */
#define QUIET_LEAST_NS UINT64_C(100000)
#define QUIET_MOST_NS UINT64_C(100000000)
/* It asks transports so often whether it may sleep: first after so many
 * nanoseconds, then after twice as many, up to SERVE_MOST_NS. Where threads
 * wait for a core, some milliseconds pass until the answer is yes. */
#define REST_TRIES 64
#define REST_NAP_NS 100000
/* It looks for messages once in so many microseconds of sleep. */
#define SLEEP_MOST_US 500000

/* What a look at a communicator has found: nothing to do; that it is used; that
 * something has moved. */
enum found { NOTHING, USED, MOVED };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dicomm_comm *first; /* the communicators that are ready */
static _Thread_local bool polling;
/* The thread that serves; all guarded by the lock. */
static pthread_cond_t wanted = PTHREAD_COND_INITIALIZER;
static unsigned served; /* communicators in the list */
static bool serving;    /* there is a thread */
/* On which it sleeps; they are armed. */
static doorbell_word *words[DOORBELL_WORDS];
static unsigned nwords;

/* Returns true if the communicator has a network transport. Shared memory makes
 * progress without this rank. */
static bool has_remote_transport(const struct dicomm_comm *comm)
{
	comm_each_transport (w, comm)
		if (!w->transport->intra_node)
			return true;
	return false;
}

/* Needs the lock. */
static void list(struct dicomm_comm *comm)
{
	if (comm->listed)
		return;
	comm->listed = true;
	comm->other = first;
	first = comm;
}

/* Needs the lock. Wakes the thread; what it slept on may go away then. */
static void wake_server(void)
{
	for (unsigned i = 0; i < nwords; i++)
		doorbell_ring_word(words[i]);
	nwords = 0;
}

void cross_progress_add(struct dicomm_comm *comm)
{
	if (!has_remote_transport(comm))
		return;
	pthread_mutex_lock(&lock);
	list(comm);
	pthread_mutex_unlock(&lock);
}

void cross_progress_remove(struct dicomm_comm *comm)
{
	struct dicomm_comm **at = &first;

	pthread_mutex_lock(&lock);
	while (*at && *at != comm)
		at = &(*at)->other;
	if (*at) {
		*at = comm->other;
		if (comm->served)
			wake_server();
		served -= comm->served;
		comm->listed = comm->served = false;
	}
	pthread_mutex_unlock(&lock);
}

/* Nobody polls it any more, or until the rank has called. */
static bool is_stopped(const struct dicomm_comm *comm)
{
	return data_path_has_fault(&comm->path);
}

/* Polls what makes no progress by itself while the thread sleeps, or slept a
 * moment ago: so other transports need not know that it looks. */
static void poll_near(struct dicomm_comm *comm)
{
	comm_each_transport (w, comm)
		if (w->transport->intra_node)
			w->transport->poll(w->device);
	if (comm->service->poll(comm))
		comm->service_moves++;
}

/* A poll looks at one more rank that has not sent before. */
static int polls_near(const struct dicomm_comm *comm)
{
	return comm->ranks > POLLS ? comm->ranks : POLLS;
}

static enum found poll_one(struct dicomm_comm *comm, bool near)
{
	int polls = near ? polls_near(comm) : POLLS;
	uint64_t moves;
	enum found found;

	if (!data_path_borrow(&comm->path))
		return is_stopped(comm) ? NOTHING : USED;
	moves = comm->service_moves;
	for (int i = 0;
	     i < polls && !data_path_is_used(&comm->path) && !fault_is(comm);
	     i++)
		if (near)
			poll_near(comm);
		else
			comm_poll(comm);
	found = data_path_is_used(&comm->path) ? USED : NOTHING;
	if (comm->service_moves != moves)
		found = MOVED;
	data_path_give_back(&comm->path);
	return found;
}

void cross_progress_poll(void)
{
	/* Another thread is polling already. */
	if (pthread_mutex_trylock(&lock))
		return;
	polling = true;
	for (struct dicomm_comm *c = first; c; c = c->other)
		poll_one(c, false);
	polling = false;
	pthread_mutex_unlock(&lock);
}

void cross_progress_poll_one(struct dicomm_comm *comm)
{
	if (pthread_mutex_trylock(&lock))
		return;
	polling = true;
	poll_one(comm, false);
	polling = false;
	pthread_mutex_unlock(&lock);
}

/* ---- the thread that serves; all of this needs the lock ---- */

static enum found poll_served(bool near)
{
	enum found most = NOTHING, found;

	for (struct dicomm_comm *c = first; c; c = c->other) {
		found = c->served ? poll_one(c, near) : NOTHING;
		if (found > most)
			most = found;
	}
	return most;
}

static bool add_word(doorbell_word *word)
{
	for (unsigned i = 0; i < nwords; i++)
		if (words[i] == word)
			return true;
	if (!word || nwords == DOORBELL_WORDS)
		return false;
	words[nwords++] = word;
	return true;
}

/* Returns true if no transport needs to be polled all the time. */
static bool can_rest(const struct dicomm_comm *comm)
{
	comm_each_transport (w, comm)
		if (!w->transport->rest)
			return false;
	return true;
}

/* Asks all transports; returns false if one of them is not ready yet. */
static bool add_words_of(struct dicomm_comm *comm)
{
	bool all = true;

	comm_each_transport (w, comm)
		all &= add_word(w->transport->rest(w->device));
	return all;
}

static bool add_words(void)
{
	bool all = true;

	for (struct dicomm_comm *c = first; c; c = c->other)
		if (c->served && !is_stopped(c))
			all &= add_words_of(c);
	return all;
}

/* Returns true if it has nothing to do until a message arrives. */
static bool is_at_rest(struct dicomm_comm *comm)
{
	bool idle;

	if (!data_path_borrow(&comm->path))
		return is_stopped(comm);
	idle = !data_path_is_used(&comm->path) && can_rest(comm) &&
	       comm->service->is_idle(comm) && comm_flush(comm);
	data_path_give_back(&comm->path);
	return idle;
}

static bool are_at_rest(void)
{
	for (struct dicomm_comm *c = first; c; c = c->other)
		if (c->served && !is_at_rest(c))
			return false;
	return true;
}

/* Returns true if the thread may sleep on the words, which are armed then. */
static bool arm(void)
{
	nwords = 0;
	if (!add_words())
		return false;
	/* All communicators are broken: others may come. */
	if (!nwords)
		add_word(&doorbell_own);
	if (!doorbell_can_sleep(nwords))
		return false;
	for (unsigned i = 0; i < nwords; i++)
		doorbell_arm(words[i]);
	/* What has come, or who polls again, before they were armed */
	return poll_served(true) == NOTHING && add_words();
}

static void disarm(void)
{
	for (unsigned i = 0; i < nwords; i++)
		doorbell_disarm(words[i]);
	nwords = 0;
}

static bool has_rung(void)
{
	for (unsigned i = 0; i < nwords; i++)
		if (!atomic_load(words[i]))
			return true;
	return !nwords;
}

struct pace {
	uint64_t nap_ns;   /* between this look and the next */
	uint64_t quiet_ns; /* the time since which nothing has moved */
	uint64_t patience_ns;
	unsigned tries; /* to sleep, in a row; the transports are not polled */
	bool rung;      /* nothing has moved since a doorbell rang */
};

static void begin_pace(struct pace *p)
{
	p->nap_ns = SERVE_LEAST_NS;
	p->quiet_ns = clock_ns();
	p->tries = 0;
}

static uint64_t longer(uint64_t nap_ns)
{
	return 2 * nap_ns < SERVE_MOST_NS ? 2 * nap_ns : SERVE_MOST_NS;
}

/* Nothing has moved for long enough. */
static bool try_to_sleep(struct pace *p)
{
	if (!are_at_rest()) {
		p->nap_ns = longer(p->nap_ns);
		p->tries = 0;
		return false;
	}
	if (arm())
		return true;
	disarm();
	p->nap_ns = p->tries ? longer(p->nap_ns) : REST_NAP_NS;
	if (++p->tries < REST_TRIES)
		return false;
	begin_pace(p);
	p->nap_ns = SERVE_MOST_NS;
	p->patience_ns = QUIET_MOST_NS;
	return false;
}

/* Looks once. Returns true if the thread may sleep until a doorbell rings. */
static bool look(struct pace *p)
{
	enum found found = poll_served(p->tries > 0);
	uint64_t now = clock_ns();

	if (found == NOTHING && now - p->quiet_ns >= p->patience_ns)
		return try_to_sleep(p);
	p->nap_ns = longer(p->nap_ns);
	if (found != NOTHING) {
		p->quiet_ns = now;
		p->tries = 0;
	}
	if (found == MOVED) {
		p->nap_ns = SERVE_LEAST_NS;
		p->patience_ns = QUIET_LEAST_NS;
		p->rung = false;
	}
	return false;
}

/* Sleeps until a doorbell has rung. Gives the lock back meanwhile. */
static void sleep_long(struct pace *p)
{
	static doorbell_word *on[DOORBELL_WORDS];
	unsigned n = nwords, us = DOORBELL_SETTLE_US;
	enum found found;

	memcpy(on, words, n * sizeof(*on));
	do {
		pthread_mutex_unlock(&lock);
		doorbell_sleep(on, n, us);
		pthread_mutex_lock(&lock);
		if (has_rung())
			break;
		found = poll_served(true);
		/* A communicator in use has not been looked at. */
		us = found == NOTHING || 2 * us > SLEEP_MOST_US ? SLEEP_MOST_US
								: 2 * us;
	} while (found != MOVED);
	disarm();
	if (p->rung && p->patience_ns < QUIET_MOST_NS)
		p->patience_ns *= 2;
	p->rung = true;
	begin_pace(p);
}

static void nap(uint64_t ns)
{
	const struct timespec t = {0, (long)ns};

	pthread_mutex_unlock(&lock);
	nanosleep(&t, NULL);
	pthread_mutex_lock(&lock);
}

static void *windows_thread(void *arg)
{
	struct pace p = {.patience_ns = QUIET_LEAST_NS};

	(void)arg;
	polling = true;
	begin_pace(&p);
	pthread_mutex_lock(&lock);
	for (;;) {
		while (!served)
			pthread_cond_wait(&wanted, &lock);
		if (look(&p))
			sleep_long(&p);
		else
			nap(p.nap_ns);
	}
	return NULL;
}

dicomm_result_t cross_progress_serve(struct dicomm_comm *comm)
{
	int error = 0;

	pthread_mutex_lock(&lock);
	if (!serving)
		error = thread_start(NULL, "dicomm-windows", windows_thread,
				     NULL);
	serving = !error;
	if (!error && !comm->served) {
		list(comm);
		comm->served = true;
		served++;
		wake_server();
		pthread_cond_signal(&wanted);
	}
	pthread_mutex_unlock(&lock);
	if (error)
		return FAIL(DICOMM_ERR_SYSTEM, "windows: create a thread: %s",
			    strerror(error));
	return DICOMM_SUCCESS;
}

void cross_progress_wait(void)
{
	/* A signal handler has interrupted this thread there. */
	if (polling)
		return;
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
}

void cross_progress_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&wanted, NULL);
	first = NULL;
	served = nwords = 0;
	serving = false;
	doorbell_disarm(&doorbell_own);
}
