/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/boot/net/lent_port.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

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

int lent_port_offer(unsigned port)
{
	struct sockaddr_un at;
	socklen_t len = name(port, &at);
	int fd = local_socket(), err;

	if (fd < 0)
		return -1;
	if (!bind(fd, (struct sockaddr *)&at, len) && !listen(fd, WAITING))
		return fd;
	err = errno;
	close(fd);
	errno = err;
	return -1;
}

/* This process itself could not answer while it waits. */
static bool is_other(int fd)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) &&
	       who.pid != getpid();
}

bool lent_port_ask_back(unsigned port)
{
	struct sockaddr_un at;
	socklen_t len = name(port, &at);
	struct pollfd p = {.fd = local_socket(), .events = POLLIN};
	bool given;

	if (p.fd < 0)
		return false;
	given = !connect(p.fd, (struct sockaddr *)&at, len) && is_other(p.fd) &&
		poll(&p, 1, GIVE_BACK_MS) > 0;
	close(p.fd);
	return given;
}
