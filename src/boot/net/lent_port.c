/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/boot/net/lent_port.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/descriptors.h"

#define WAITING 4 /* connections that wait to be accepted */
#define GIVE_BACK_MS 1000

static socklen_t name(unsigned port, struct sockaddr_un *at)
{
	int n;

	*at = (struct sockaddr_un){.sun_family = AF_UNIX};
	n = snprintf(at->sun_path + 1, sizeof(at->sun_path) - 1,
		     "dicomm-port/%u", port);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1) +
	       (socklen_t)n;
}

static int local_socket(void)
{
	return descriptors_high(
		socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/* The lock of the loop guards it. A child of fork() lends nothing. */
static struct {
	pid_t pid;
	unsigned port;
	void (*close_port)(void);
} own;

int lent_port_offer(unsigned port, void (*close_port)(void))
{
	struct sockaddr_un at;
	socklen_t len = name(port, &at);
	int fd = local_socket(), err;

	if (fd < 0)
		return -1;
	if (!bind(fd, (struct sockaddr *)&at, len) && !listen(fd, WAITING)) {
		own.pid = getpid();
		own.port = port;
		own.close_port = close_port;
		return fd;
	}
	err = errno;
	close(fd);
	errno = err;
	return -1;
}

bool lent_port_close_own(unsigned first, unsigned last)
{
	if (own.pid != getpid() || own.port < first || own.port > last)
		return false;
	own.pid = 0;
	own.close_port();
	return true;
}

/* This process itself could not answer while it waits. *pid: 0 if that process
 * cannot be seen from here. */
static bool is_other(int fd, pid_t *pid)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len))
		return false;
	*pid = who.pid;
	return who.pid != getpid();
}

static bool has_ended(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t until_ms = clock_ms() + GIVE_BACK_MS, now;
	int n;

	do {
		now = clock_ms();
		n = poll(&p, 1, now < until_ms ? (int)(until_ms - now) : 0);
	} while (n < 0 && errno == EINTR);
	return n > 0;
}

bool lent_port_ask_back(unsigned port, pid_t *silent)
{
	struct sockaddr_un at;
	socklen_t len = name(port, &at);
	int fd = local_socket();
	bool asked, given;

	*silent = 0;
	if (fd < 0)
		return false;
	asked = !connect(fd, (struct sockaddr *)&at, len) &&
		is_other(fd, silent);
	given = asked && has_ended(fd);
	close(fd);
	if (!asked || given)
		*silent = 0;
	return given;
}
