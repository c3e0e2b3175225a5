/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Somebody in between changes, drops, repeats or injects bytes on a connection
 * of the control plane, at every place of it in turn. Each rank then has an
 * error that says why, in bounded time, or the right data; never wrong data.
 */
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/boot/control/control.h"
#include "src/boot/net/conn.h"
#include "src/boot/net/listener.h"
#include "tests/support/meet.h"
#include "tests/support/runner.h"

#define BOUND_MS 1000 /* of joining, and of a gather, under attack */
#define CALM_MS 10000 /* the same without an attack, on a busy machine */
#define LATE_MS 10000 /* what a busy machine may add to the bounds */
#define LEN 300       /* bytes of each rank in a gather */
#define PLACES 12     /* of attack, on each direction of each connection */

enum attack { CHANGE, DROP, REPEAT, INJECT, ATTACKS };

/* The connections of a rank that joins, and their directions. If rank 0 serves
 * the id, the first one becomes that to its hub. */
enum { TO_SERVER, TO_HUB, CONNECTIONS };
enum { TO_RANK, FROM_RANK, DIRECTIONS };

static struct {
	enum attack attack;
	int connection, direction;
	size_t at; /* byte of that direction; SIZE_MAX: no attack */
} plan;

/* Bytes that have passed, [connection][direction]; of a run without attack. */
static _Atomic size_t passed[CONNECTIONS][DIRECTIONS];
static size_t usual[CONNECTIONS][DIRECTIONS];
static bool is_elsewhere; /* the id is served by another process */
static atomic_bool is_counted;
static atomic_bool is_attacked; /* that byte has come, in this run, */
static atomic_bool is_over;     /* while this rank still gathered */
static _Atomic int connections; /* of the victim, in this run */
static _Thread_local bool is_victim;

struct proxy {
	int near, far; /* the rank, and whom it wants to reach */
	int number;    /* of the connection */
};

int __real_connect(int fd, const struct sockaddr *address, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t len);

static bool send_all(int fd, const uint8_t *data, size_t len)
{
	return !len || send(fd, data, len, MSG_NOSIGNAL) == (ssize_t)len;
}

/* Pass n bytes on, the first of them number `first` of this direction. */
static bool pass_on(int fd, uint8_t *data, size_t n, size_t first)
{
	static const uint8_t zeros[25];
	size_t at = plan.at - first, left;

	if (plan.at < first || at >= n)
		return send_all(fd, data, n);
	atomic_store(&is_attacked, !atomic_load(&is_over));
	left = n - at;
	switch (plan.attack) {
	case CHANGE:
		data[at] ^= 0x10;
		return send_all(fd, data, n);
	case DROP:
		left = left < 25 ? left : 25;
		return send_all(fd, data, at) &&
		       send_all(fd, data + at + left, n - at - left);
	case REPEAT:
		left = left < 25 ? left : 25;
		return send_all(fd, data, at + left) &&
		       send_all(fd, data + at, n - at);
	default:
		return send_all(fd, data, at) &&
		       send_all(fd, zeros, sizeof(zeros)) &&
		       send_all(fd, data + at, n - at);
	}
}

static bool pump(const struct proxy *p, int direction)
{
	int from = direction == FROM_RANK ? p->near : p->far;
	int to = direction == FROM_RANK ? p->far : p->near;
	_Atomic size_t *count = NULL;
	uint8_t data[4096];
	ssize_t n = recv(from, data, sizeof(data), 0);

	if (n <= 0) {
		shutdown(to, SHUT_WR);
		return false;
	}
	if (p->number < CONNECTIONS)
		count = &passed[p->number][direction];
	if (p->number == plan.connection && direction == plan.direction)
		pass_on(to, data, (size_t)n, atomic_load(count));
	else
		send_all(to, data, (size_t)n);
	if (count)
		atomic_fetch_add(count, (size_t)n);
	return true;
}

static void *run_proxy(void *arg)
{
	struct proxy *p = arg;
	struct pollfd fds[DIRECTIONS] = {{.fd = p->far, .events = POLLIN},
					 {.fd = p->near, .events = POLLIN}};

	while (fds[0].fd >= 0 || fds[1].fd >= 0) {
		poll(fds, DIRECTIONS, -1);
		for (int d = 0; d < DIRECTIONS; d++)
			if (fds[d].revents && !pump(p, d))
				fds[d].fd = -1;
	}
	close(p->near);
	close(p->far);
	free(p);
	return NULL;
}

/* The victim reaches a proxy instead, which reaches the right address. */
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t len)
{
	struct sockaddr_in here = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t here_len = sizeof(here);
	struct proxy *p;
	pthread_t t;
	int listener, result, err;

	if (!is_victim)
		return __real_connect(fd, address, len);
	p = calloc(1, sizeof(*p));
	listener = socket(AF_INET, SOCK_STREAM, 0);
	p->far = socket(AF_INET, SOCK_STREAM, 0);
	p->number = atomic_fetch_add(&connections, 1);
	if (bind(listener, (struct sockaddr *)&here, here_len) ||
	    listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&here, &here_len) ||
	    __real_connect(p->far, address, len)) {
		err = errno;
		close(listener);
		close(p->far);
		free(p);
		errno = err;
		return -1;
	}
	result = __real_connect(fd, (struct sockaddr *)&here, here_len);
	err = errno;
	p->near = accept(listener, NULL, NULL);
	close(listener);
	pthread_create(&t, NULL, run_proxy, p);
	pthread_detach(t);
	errno = err;
	return result;
}

static int bound_ms(void)
{
	return plan.at == SIZE_MAX ? CALM_MS : BOUND_MS;
}

static void be_tampered(struct meet_rank *r, struct control_config *config)
{
	is_victim = r->rank == 1;
	config->timeout_ms = bound_ms();
}

static uint8_t value(int rank, int gather, size_t i)
{
	return (uint8_t)(rank * 31 + gather * 7 + (int)(i % 251));
}

enum note { GATHERED, WRONG, FAILED };

/* Two gathers; the first error ends it. */
static void gather_twice(struct meet_rank *r)
{
	uint8_t mine[LEN], all[2 * LEN];

	for (int g = 0; g < 2; g++) {
		for (size_t i = 0; i < LEN; i++)
			mine[i] = value(r->rank, g, i);
		if (control_allgather(r->control, mine, all, LEN, bound_ms()) !=
		    DICOMM_SUCCESS) {
			r->note[FAILED] = 1;
			snprintf(r->error, sizeof(r->error), "%s",
				 log_last_error());
			return;
		}
		for (size_t i = 0; i < 2 * LEN; i++)
			if (all[i] != value((int)(i / LEN), g, i % LEN))
				r->note[WRONG]++;
		r->note[GATHERED]++;
	}
	if (is_victim)
		atomic_store(&is_over, true);
	if (plan.at != SIZE_MAX)
		return;
	/* Before the goodbyes of either rank. */
	if (r->rank == 1) {
		for (int i = 0; i < CONNECTIONS * DIRECTIONS; i++)
			usual[i / 2][i % 2] =
				atomic_load(&passed[i / 2][i % 2]);
		atomic_store(&is_counted, true);
	}
	for (int ms = 0; ms < CALM_MS && !atomic_load(&is_counted); ms++)
		usleep(1000);
}

static pid_t serve_elsewhere(struct meet *m)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid) {
		if (id_create(&m->id) != DICOMM_SUCCESS)
			_exit(1);
		atomic_store(&m->flag[0], 1);
		for (;;)
			pause();
	}
	MEET_UNTIL(atomic_load(&m->flag[0]));
	return pid;
}

static int to_hub(void)
{
	return is_elsewhere ? TO_HUB : TO_SERVER;
}

/* The errors of both ranks; true if there was one. */
static bool run_once(char text[2100])
{
	struct meet *m = meet_create(MEET_THREADS, 2);
	uint64_t begin = meet_now_ms(), took;
	bool failed = false;
	pid_t server = is_elsewhere ? serve_elsewhere(m) : 0;

	memset(passed, 0, sizeof(passed));
	connections = 0;
	is_attacked = is_over = false;
	m->adjust = be_tampered;
	m->run = gather_twice;
	meet_run(m);
	took = meet_now_ms() - begin;
	text[0] = '\0';
	for (int i = 0; i < 2; i++) {
		const struct meet_rank *r = &m->rank[i];
		bool error = r->opened != DICOMM_SUCCESS || r->note[FAILED];

		ck_assert_msg(!r->note[WRONG], "rank %d: %d wrong bytes", i,
			      r->note[WRONG]);
		ck_assert_msg(error || r->note[GATHERED] == 2,
			      "rank %d: no error, %d gathers", i,
			      r->note[GATHERED]);
		ck_assert_msg(!error || r->error[0], "rank %d: no reason", i);
		strcat(text, error ? r->error : "fine");
		strcat(text, "; ");
		failed |= error;
	}
	if (server) {
		kill(server, SIGKILL);
		waitpid(server, NULL, 0);
	} else {
		id_forget(&m->id);
	}
	ck_assert_msg(took < 3 * (uint64_t)bound_ms() + LATE_MS, "%d ms: %s",
		      (int)took, text);
	return failed;
}

/* The bytes of the handshake, which is in clear, on each direction. */
static size_t handshake_bytes(int direction)
{
	return direction == FROM_RANK ? 8 + 96 : 8 + 12 + 64 + 8 + 32;
}

START_TEST(tampering_never_gives_wrong_data)
{
	int unnoticed = 0, forged = 0, sealed = 0, runs = 0;
	char text[2100];

	is_elsewhere = _i >= ATTACKS;
	listener_patience_ns = 400000000u;
	plan.at = SIZE_MAX;
	ck_assert_msg(!run_once(text), "without attack: %s", text);
	plan.attack = (enum attack)(_i % ATTACKS);
	/* With two connections at every other place, for the sake of time. */
	for (int i = 0; i < (to_hub() + 1) * DIRECTIONS * PLACES;
	     i += to_hub() + 1) {
		size_t n, clear;

		plan.connection = i / PLACES / DIRECTIONS;
		plan.direction = i / PLACES % DIRECTIONS;
		n = usual[plan.connection][plan.direction];
		clear = handshake_bytes(plan.direction);
		/* Rank 1 may leave the id server before that has answered. */
		ck_assert(n > clear || plan.connection != to_hub());
		plan.at = n * (size_t)(i % PLACES) / PLACES + (size_t)(i % 3);
		if (plan.at >= n)
			continue;
		runs++;
		run_once(text);
		/* A rank leaves the id server once it is with the hub, so on
		 * that connection what comes late may not matter. */
		if (plan.at < clear || plan.connection != to_hub())
			continue;
		/* On a busy machine the victim may be late, give up a
		 * connection, and connect once more where nobody attacks; and
		 * the run without attack may have had more to say, so that this
		 * place is among the goodbyes. */
		if (!atomic_load(&is_attacked) ||
		    connections > plan.connection + 1)
			continue;
		sealed++;
		forged += strstr(text, conn_forged) != NULL;
		unnoticed += !strcmp(text, "fine; fine; ");
	}
	ck_assert_int_eq(unnoticed, 0);
	ck_assert_int_gt(sealed, PLACES / 2);
	/* The last bytes before a pause can be dropped without a sign; then the
	 * time-out tells. */
	ck_assert_msg(plan.attack == DROP ? 4 * forged >= 3 * sealed
					  : forged == sealed,
		      "%d of %d runs, %d forged", sealed, runs, forged);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tamper");
	TCase *tcase = tcase_create("tamper");

	setenv("DICOMM_SOCKET_IFNAME", "lo", 1);
	setenv("DICOMM_DEBUG", "none", 1);
	tcase_set_timeout(tcase, 300);
	tcase_add_loop_test(tcase, tampering_never_gives_wrong_data, 0,
			    2 * ATTACKS);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
