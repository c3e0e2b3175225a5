/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/boot/net/inquiry.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/descriptors.h"
#include "src/base/log.h"
#include "src/boot/net/loop.h"

/* That many are answered at a time, and no more for so long, so that asking
 * without end takes no core. */
#define WAITING 16
#define PAUSE_NS 50000000ull

/* The lock of the loop guards it. A child of fork() makes its own. */
struct inquiry {
	struct loop_source source;
	pid_t pid;
	inquiry_answer *answer;
};

static struct inquiry *inquiry;
static char text[INQUIRY_BYTES];

static bool may_ask(int fd)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) &&
	       (who.uid == geteuid() || who.uid == 0);
}

/* The kernel holds all of an answer, whether it is read or not. */
static void reply(const struct inquiry *q, int fd)
{
	size_t n = q->answer(text, sizeof(text));
	ssize_t sent = send(fd, text, n, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (sent != (ssize_t)n)
		log_debug("job info: sent %zd bytes of %zu: %m", sent, n);
}

static void ready(struct loop_source *s, uint32_t events)
{
	(void)events;
	for (int i = 0; i < WAITING; i++) {
		int fd = descriptors_high(
			accept4(s->fd, NULL, NULL, SOCK_CLOEXEC));

		if (fd < 0)
			break;
		if (may_ask(fd))
			reply((struct inquiry *)s, fd);
		close(fd);
	}
	if (loop_watch(s, 0) == DICOMM_SUCCESS)
		loop_deadline(s, clock_ns() + PAUSE_NS);
	else
		loop_drop(s);
}

static void expired(struct loop_source *s)
{
	if (loop_watch(s, EPOLLIN) != DICOMM_SUCCESS)
		loop_drop(s);
}

static int listen_here(void)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int n = snprintf(at.sun_path + 1, sizeof(at.sun_path) - 1,
			 "dicomm-job/%u/%d/%" PRIx64, geteuid(), (int)getpid(),
			 clock_ns());
	socklen_t len =
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1) +
		(socklen_t)n;
	int fd = descriptors_high(
		socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	if (fd < 0)
		return fd;
	if (!bind(fd, (struct sockaddr *)&at, len) && !listen(fd, WAITING))
		return fd;
	log_info("job info: listen at @%s: %m", at.sun_path + 1);
	close(fd);
	return -1;
}

static void released(struct loop_source *s)
{
	if ((struct inquiry *)s == inquiry)
		inquiry = NULL;
	free(s);
}

/* Needs the lock. */
static void open_here(inquiry_answer *answer)
{
	struct inquiry *q = calloc(1, sizeof(*q));

	if (!q)
		return;
	q->pid = getpid();
	q->answer = answer;
	q->source = (struct loop_source){.fd = listen_here(),
					 .ready = ready,
					 .expired = expired,
					 .released = released};
	if (q->source.fd < 0) {
		free(q);
		return;
	}
	inquiry = q;
	loop_add(&q->source);
	if (loop_watch(&q->source, EPOLLIN) != DICOMM_SUCCESS)
		loop_drop(&q->source);
}

void inquiry_open(inquiry_answer *answer)
{
	if (!config_bool(CONFIG_JOB_INFO))
		return;
	log_demote(true);
	if (loop_start() == DICOMM_SUCCESS) {
		loop_lock();
		if (!inquiry || inquiry->pid != getpid())
			open_here(answer);
		loop_unlock();
	}
	log_demote(false);
}

const char *inquiry_text(size_t *len)
{
	if (!inquiry || inquiry->pid != getpid())
		return NULL;
	*len = inquiry->answer(text, sizeof(text));
	return text;
}
