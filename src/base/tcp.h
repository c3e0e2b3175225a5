/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections by TCP that carry few and short words, for as long as a rank
 * lives. */
#ifndef DICOMM_BASE_TCP_H
#define DICOMM_BASE_TCP_H

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <sys/socket.h>

/* Send small messages at once, and notice within half a minute a host that fell
 * silent, be there data for it or not. */
static inline void tcp_tune(int fd)
{
	int on = 1, idle_s = 10, every_s = 5, count = 4;
	unsigned silent_ms = 30000;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms,
		   sizeof(silent_ms));
}

/* Is this errno of accept() want of descriptors or memory? The listener stays
 * ready then, and trying again at once would only burn the core. */
static inline bool tcp_is_short(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM ||
	       error == ENOBUFS;
}

#endif
