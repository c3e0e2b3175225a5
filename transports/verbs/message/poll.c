/* SPDX-License-Identifier: BSD-3-Clause */
/* Polls: they take completions, look for credits, and now and then do
 * everything else. Sleep until there is something to poll for. */
#include "transports/verbs/message/poll.h"

#include <poll.h>

#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/rail.h"
#include "transports/verbs/message/completion.h"
#include "transports/verbs/message/credits.h"
#include "transports/verbs/message/failover.h"

/* Among this many polls that find something, one also does everything else. */
#define BUSY_POLLS_PER_CHECK 16
/* Among this many looks for credits while nothing moves, one poll
 * does everything. */
#define CHECKS_PER_FULL_POLL 16
#define CHANNELS_PER_CHECK 16
/* Check sending channels for credits in turn, up to CHANNELS_PER_CHECK of them;
 * with `one`, stop at the first that has a credit. It is not known which
 * channel the engine waits for. A channel whose peer has consumed all messages
 * may still get a credit, for message numbers that were never sent. */
static inline __attribute__((always_inline)) void
look_for_credits(struct tp_device *dev, bool one)
{
	struct verbs_channel *first = dev->credit_cursor, *l = first;

	for (int left = CHANNELS_PER_CHECK; left; left--) {
		l = l->next_out;
		if (__builtin_expect(verbs_credits_check(l), 0)) {
			dev->credit_cursor = l;
			verbs_credits_scan(l);
			if (one)
				return;
		}
		if (l == first)
			return;
	}
	dev->credit_cursor = l;
}

/* Many consecutive polls have found something: do the rest, too. */
static __attribute__((noinline)) void look_around(struct tp_device *dev)
{
	dev->busy = BUSY_POLLS_PER_CHECK - 1;
	if (atomic_load_explicit(&dev->failover, memory_order_relaxed))
		verbs_failover_run(dev);
	if (dev->credit_cursor)
		look_for_credits(dev, false);
}

/* The poll has found no completion: do everything else. */
static __attribute__((noinline)) void idle(struct tp_device *dev)
{
	if (atomic_load_explicit(&dev->failover, memory_order_relaxed))
		verbs_failover_run(dev);
	if (dev->credit_cursor)
		look_for_credits(dev, true);
	if (dev->credits_due)
		verbs_credits_idle(dev);
	if (dev->rails > 1 || !dev->credit_cursor || dev->credits_due ||
	    atomic_load_explicit(&dev->failover, memory_order_relaxed))
		return;
	dev->quick_polls = VERBS_POLLS_PER_CHECK - 1;
	dev->credit_checks = CHECKS_PER_FULL_POLL - 1;
}

static __attribute__((noinline)) bool poll_all(struct tp_device *dev, int n)
{
	verbs_poll_all(dev);
	if (verbs_is_aborted(dev)) {
		verbs_end_aborted(dev, n);
		return false;
	}
	if (!verbs_complete_more(dev, n)) {
		idle(dev);
		return false;
	}
	dev->idle = 0;
	if (__builtin_expect(--dev->busy < 0, 0))
		look_around(dev);
	return true;
}

/* The first queue is empty, and quick polls are used up: look for credits, or
 * do everything. */
static __attribute__((noinline)) bool poll_more(struct tp_device *dev)
{
	if (--dev->credit_checks < 0)
		return poll_all(dev, 0);
	dev->quick_polls = VERBS_POLLS_PER_CHECK - 1;
	look_for_credits(dev, true);
	return false;
}

/* The usual poll finds nothing. */
bool verbs_poll(struct tp_device *dev)
{
	int n = verbs_poll_first(dev);

	if (__builtin_expect(n, 0))
		return poll_all(dev, n);
	if (__builtin_expect(--dev->quick_polls < 0, 0))
		return poll_more(dev);
	return false;
}

bool verbs_flush(struct tp_device *dev)
{
	if (atomic_load_explicit(&dev->aborted, memory_order_relaxed))
		return true;
	verbs_credits_send_all(dev);
	/* Credits may have waited for a word: see whether an earlier write
	 * has arrived. */
	if (dev->credits_due && verbs_complete(dev))
		verbs_credits_send_all(dev);
	return !dev->credits_due;
}

/* An event of a completion queue costs an interrupt and system calls. So a rank
 * asks for events only when it has polled long enough, and acknowledges many at
 * a time. */
void verbs_wait(struct tp_device *dev, unsigned us)
{
	struct timespec t = {.tv_sec = us / 1000000,
			     .tv_nsec = us % 1000000 * 1000L};
	struct pollfd fds[VERBS_RAILS];

	/* The next poll after the sleep does everything. */
	verbs_poll_all(dev);
	if (dev->credits_due &&
	    !atomic_load_explicit(&dev->aborted, memory_order_relaxed))
		verbs_credits_send_all(dev);
	for (uint32_t i = 0; i < dev->rails; i++) {
		const struct verbs_rail *rail = &dev->rail[i];

		/* The descriptor of a removed device is always readable. */
		fds[i] = (struct pollfd){.fd = atomic_load(&rail->nic->removed)
						       ? -1
						       : rail->comp_channel->fd,
					 .events = POLLIN};
		/* An error here means that the NIC has failed, which other
		 * calls report. */
		ibv_req_notify_cq(rail->cq, 0);
	}
	/* There is no event for what arrived before the request for events, nor
	 * for credits. So look once more. */
	if (verbs_poll(dev) || verbs_credits_scan_all(dev) ||
	    ppoll(fds, dev->rails, &t, NULL) <= 0)
		return;
	for (uint32_t i = 0; i < dev->rails; i++)
		if (fds[i].revents & POLLIN)
			verbs_rail_take_event(&dev->rail[i]);
}
