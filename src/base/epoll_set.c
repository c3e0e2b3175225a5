/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/base/epoll_set.h"

#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/descriptors.h"

int epoll_set_open(void)
{
	return descriptors_high(epoll_create1(EPOLL_CLOEXEC));
}

int epoll_set_add(int set, int fd, uint32_t events, epoll_data_t data)
{
	struct epoll_event e = {.events = events, .data = data};

	return epoll_ctl(set, EPOLL_CTL_ADD, fd, &e);
}

int epoll_set_change(int set, int fd, uint32_t events, epoll_data_t data)
{
	struct epoll_event e = {.events = events, .data = data};

	return epoll_ctl(set, EPOLL_CTL_MOD, fd, &e);
}

void epoll_set_remove(int set, int fd)
{
	epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL);
}

void epoll_set_close(int set, int fd)
{
	socklen_t len = sizeof(int);
	int listens = 0;

	epoll_set_remove(set, fd);
	/* The peer of a connection is to see the end, whoever has copies of the
	 * socket. One that listens may go on to listen for who has the copy. */
	getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len);
	if (!listens)
		shutdown(fd, SHUT_RDWR);
	close(fd);
}
