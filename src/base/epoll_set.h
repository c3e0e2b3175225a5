/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sets of descriptors that a thread waits for with epoll. Any thread may call
 * these functions.
 *
 * A child of fork() has a copy of every descriptor. As long as it keeps that
 * copy, epoll still reports events of a descriptor that the parent has closed,
 * with a stale pointer, and a TCP connection stays open. So every descriptor
 * that was added is closed by epoll_set_close(), and nothing else calls
 * epoll_ctl() (tests/style/epoll.sh).
 */
#ifndef DICOMM_BASE_EPOLL_SET_H
#define DICOMM_BASE_EPOLL_SET_H

#include <stdint.h>
#include <sys/epoll.h>

/* These three return -1 and set errno on failure. */
int epoll_set_open(void);
int epoll_set_add(int set, int fd, uint32_t events, epoll_data_t data);
int epoll_set_change(int set, int fd, uint32_t events, epoll_data_t data);
/* Stops watching a descriptor that stays open. */
void epoll_set_remove(int set, int fd);
/* Removes the descriptor, ends its connection and closes it. Events that
 * epoll_wait() has returned already may still name its data. */
void epoll_set_close(int set, int fd);

#endif
