/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Consensus by flooding, for ranks that die and are seen to. In each round
 * every rank says one word to every other, whether all are ready as far as it
 * knows, and hears one of each or sees it gone. After a round in which nobody
 * was missed who was there before, it has heard all that anybody left knows: it
 * has decided. It says so in the next round, which decides for the others, and
 * goes. Without a death that is one round; each further one takes a death.
 *
 * Two ranks speak over the connection that the higher one makes. The lower one
 * makes one to the refuge of the higher, too, on which nothing is said: it ends
 * if that rank dies, or leaves, before it has connected.
 */
#include "src/boot/settle.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/tcp.h"

/* Words: */
#define READY 1u   /* all are, as far as this rank has heard */
#define DECIDED 2u /* and the others shall take that for the result */

/* Connections beyond those of the ranks; more of them, and the first of those
 * who have not proved who they are makes room: a rank does so at once. */
#define STRANGERS 64
#define PARTING_MS 1000
#define ROUND_MS 2000 /* of a round after the first, at least */

struct greeting {
	uint32_t rank;
	uint8_t proof[AUTH_PROOF];
};

enum line_kind {
	LINE_FREE,
	LINE_GUEST, /* came in; who it is has not been proved */
	LINE_WATCH, /* made by this rank: does the other keep its refuge? */
	LINE_DIAL,  /* made by this rank, to speak over; not connected yet */
	LINE_MADE,  /* the same: connected, and this rank has greeted */
	LINE_TALK   /* both have proved who they are */
};

struct line {
	int fd;
	enum line_kind kind;
	int rank; /* the other end, but of guests */
	uint64_t since_ms;
	size_t got;
	struct greeting greeting;
};

struct member {
	struct line *line; /* LINE_TALK */
	bool missing;
	int heard; /* words, one for each round */
	unsigned word;
};

struct settling {
	const struct settle_config *config;
	uint64_t until_ms;
	int round;
	unsigned word; /* of this rank in this round */
	struct member *members;
	struct line *lines;
	struct pollfd *polls; /* of the lines, then of the refuge */
	int room;
};

static void miss(struct settling *s, int rank)
{
	struct member *m = &s->members[rank];

	if (m->missing)
		return;
	m->missing = true;
	log_debug("settle: rank %d misses rank %d in round %d", s->config->rank,
		  rank, s->round);
}

static void drop(struct settling *s, struct line *l)
{
	enum line_kind kind = l->kind;

	close(l->fd);
	l->kind = LINE_FREE;
	if (kind == LINE_GUEST)
		return;
	/* Who talks needs no watching. */
	if (kind == LINE_WATCH && s->members[l->rank].line)
		return;
	if (kind == LINE_TALK)
		s->members[l->rank].line = NULL;
	miss(s, l->rank);
}

/* A free one, or that of the guest who has been here for longest. */
static struct line *make_line(struct settling *s)
{
	struct line *first = NULL;

	for (int i = 0; i < s->room; i++) {
		struct line *l = &s->lines[i];

		if (l->kind == LINE_FREE)
			return l;
		if (l->kind == LINE_GUEST &&
		    (!first || l->since_ms < first->since_ms))
			first = l;
	}
	if (first)
		drop(s, first);
	return first;
}

static void add(struct settling *s, int fd, enum line_kind kind, int rank)
{
	struct line *l = make_line(s);

	if (!l) {
		close(fd);
		return;
	}
	*l = (struct line){
		.fd = fd, .kind = kind, .rank = rank, .since_ms = clock_ms()};
	tcp_tune(fd);
}

/* Fits into the buffer of any socket, so what is not taken never will be. */
static bool put(const struct line *l, const void *data, size_t len)
{
	return send(l->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT) ==
	       (ssize_t)len;
}

static void nonce_of(int rank, uint8_t nonce[AUTH_NONCE])
{
	memset(nonce, 0, AUTH_NONCE);
	memcpy(nonce, &rank, sizeof(rank));
}

/* The first word goes with it. */
static bool greet(const struct settling *s, const struct line *l,
		  enum auth_role role)
{
	const struct settle_config *c = s->config;
	uint8_t mine[AUTH_NONCE], theirs[AUTH_NONCE];
	uint8_t data[sizeof(struct greeting) + 1];
	struct greeting g = {.rank = (uint32_t)c->rank};

	nonce_of(c->rank, mine);
	nonce_of(l->rank, theirs);
	if (role == AUTH_GUEST)
		auth_prove(c->key, role, theirs, mine, g.proof);
	else
		auth_prove(c->key, role, mine, theirs, g.proof);
	memcpy(data, &g, sizeof(g));
	data[sizeof(g)] = (uint8_t)s->word;
	return put(l, data, sizeof(data));
}

/* Made by the higher rank, of which there is no other line yet. */
static bool is_proved(const struct settling *s, const struct line *l)
{
	const struct settle_config *c = s->config;
	uint8_t mine[AUTH_NONCE], theirs[AUTH_NONCE];
	const struct greeting *g = &l->greeting;

	if (g->rank >= (uint32_t)c->ranks || s->members[g->rank].line ||
	    s->members[g->rank].missing)
		return false;
	nonce_of(c->rank, mine);
	nonce_of((int)g->rank, theirs);
	if (l->kind == LINE_MADE)
		return (int)g->rank == l->rank &&
		       auth_check(c->key, AUTH_LISTENER, theirs, mine,
				  g->proof);
	return (int)g->rank > c->rank &&
	       auth_check(c->key, AUTH_GUEST, mine, theirs, g->proof);
}

static bool take_greeting(struct settling *s, struct line *l)
{
	bool came = l->kind == LINE_GUEST;

	if (!is_proved(s, l))
		return false;
	l->rank = (int)l->greeting.rank;
	l->kind = LINE_TALK;
	s->members[l->rank].line = l;
	return !came || greet(s, l, AUTH_LISTENER);
}

static bool take_word(struct settling *s, const struct line *l, uint8_t word)
{
	struct member *m = &s->members[l->rank];

	m->word = word;
	m->heard++;
	return word <= (READY | DECIDED);
}

/* No more than one word of each in a round; the next one waits. */
static bool is_awaited(const struct settling *s, int rank)
{
	const struct member *m = &s->members[rank];

	return rank != s->config->rank && !m->missing && m->heard < s->round;
}

/* False: this line is of no more use. */
static bool take(struct settling *s, struct line *l)
{
	uint8_t *to = (uint8_t *)&l->greeting + l->got, word;
	ssize_t n;

	if (l->kind == LINE_DIAL) {
		l->kind = LINE_MADE;
		return greet(s, l, AUTH_GUEST);
	}
	if (l->kind == LINE_TALK || l->kind == LINE_WATCH)
		n = recv(l->fd, &word, 1, MSG_DONTWAIT);
	else
		n = recv(l->fd, to, sizeof(l->greeting) - l->got, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n <= 0 || l->kind == LINE_WATCH)
		return false;
	if (l->kind == LINE_TALK)
		return take_word(s, l, word);
	l->got += (size_t)n;
	return l->got < sizeof(l->greeting) || take_greeting(s, l);
}

static void let_in(struct settling *s)
{
	int fd;

	while ((fd = refuge_accept(s->config->refuge)) >= 0)
		add(s, fd, LINE_GUEST, -1);
}

static bool is_over(const struct settling *s)
{
	for (int r = 0; r < s->config->ranks; r++)
		if (is_awaited(s, r))
			return false;
	return true;
}

static void wait_some(struct settling *s, uint64_t now)
{
	int n = s->room;

	/* The kernel refuses to look at more than may be open, be they none.
	 * Lines are taken from the first on. */
	while (n && s->lines[n - 1].kind == LINE_FREE)
		n--;
	for (int i = 0; i < n; i++) {
		const struct line *l = &s->lines[i];
		bool wanted = l->kind != LINE_FREE &&
			      (l->kind != LINE_TALK || is_awaited(s, l->rank));

		s->polls[i].fd = wanted ? l->fd : -1;
		s->polls[i].events = l->kind == LINE_DIAL ? POLLOUT : POLLIN;
		s->polls[i].revents = 0;
	}
	s->polls[n].fd = refuge_fd(s->config->refuge);
	s->polls[n].events = POLLIN;
	s->polls[n].revents = 0;
	if (poll(s->polls, (nfds_t)n + 1, (int)(s->until_ms - now)) < 0)
		return;
	for (int i = 0; i < n; i++)
		if (s->polls[i].revents && !take(s, &s->lines[i]))
			drop(s, &s->lines[i]);
	if (s->polls[n].revents)
		let_in(s);
}

static void hear_all(struct settling *s)
{
	uint64_t now;

	while (!is_over(s)) {
		now = clock_ms();
		if (now >= s->until_ms)
			break;
		wait_some(s, now);
	}
	for (int r = 0; r < s->config->ranks; r++)
		if (is_awaited(s, r))
			miss(s, r);
}

/* That one does not listen any more shows when it is heard: it may have left
 * with the result. */
static void say_to_all(const struct settling *s)
{
	uint8_t word = (uint8_t)s->word;

	for (int r = 0; r < s->config->ranks; r++)
		if (s->members[r].line)
			put(s->members[r].line, &word, 1);
}

static int count_missing(const struct settling *s)
{
	int n = 0;

	for (int r = 0; r < s->config->ranks; r++)
		n += s->members[r].missing;
	return n;
}

/* What this rank says next, after what it has heard. */
static unsigned conclude(const struct settling *s, int missed_before)
{
	unsigned word = s->word;

	for (int r = 0; r < s->config->ranks; r++) {
		const struct member *m = &s->members[r];

		if (r == s->config->rank || m->missing)
			continue;
		if (m->word & DECIDED)
			return m->word;
		word &= m->word;
	}
	return count_missing(s) == missed_before ? word | DECIDED : 0;
}

/* Who began a little later waits as much longer for the dead, and says its next
 * word only then; and what was decided may lie here already. */
static void give_time(struct settling *s)
{
	uint64_t least = clock_ms() + ROUND_MS;

	if (s->until_ms < least)
		s->until_ms = least;
}

static void flood(struct settling *s)
{
	int missed = 0;

	/* Who is new on a line is greeted with the first word. */
	s->word = READY;
	for (s->round = 1;; s->round++) {
		hear_all(s);
		s->word = conclude(s, missed);
		say_to_all(s);
		if (s->word & DECIDED)
			break;
		missed = count_missing(s);
		give_time(s);
	}
}

/* A socket that is closed with words unread takes back its own last words, if
 * those are still under way. */
static void part(struct settling *s)
{
	uint64_t now;
	int left = 1;

	for (int i = 0; i < s->room; i++)
		if (s->lines[i].kind == LINE_TALK)
			shutdown(s->lines[i].fd, SHUT_WR);
	s->round = INT_MAX; /* whatever they say */
	s->until_ms = clock_ms() + PARTING_MS;
	while (left && (now = clock_ms()) < s->until_ms) {
		left = 0;
		for (int r = 0; r < s->config->ranks; r++)
			left += s->members[r].line != NULL;
		if (left)
			wait_some(s, now);
	}
	for (int i = 0; i < s->room; i++)
		if (s->lines[i].kind != LINE_FREE)
			close(s->lines[i].fd);
	/* The refuge lives on; who waits here in vain must see an end. */
	refuge_send_away(s->config->refuge);
}

static void call_all(struct settling *s, bool *wanted, int *fds)
{
	const struct settle_config *c = s->config;

	for (int r = 0; r < c->ranks; r++)
		wanted[r] = r != c->rank;
	refuge_knock_all(c->addresses, c->ranks, wanted, fds);
	for (int r = 0; r < c->ranks; r++) {
		if (fds[r] >= 0)
			add(s, fds[r], r < c->rank ? LINE_DIAL : LINE_WATCH, r);
		else if (wanted[r])
			miss(s, r);
	}
}

static dicomm_result_t say_result(const struct settling *s)
{
	if (s->word & READY)
		return DICOMM_SUCCESS;
	for (int r = 0; r < s->config->ranks; r++)
		if (s->members[r].missing)
			return FAIL(DICOMM_ERR_REMOTE,
				    "rank %d died, or gave up, when all others "
				    "were ready",
				    r);
	return FAIL(DICOMM_ERR_REMOTE,
		    "a rank died, or gave up, when all others were ready");
}

dicomm_result_t settle(const struct settle_config *config)
{
	size_t ranks = (size_t)config->ranks, room = 3 * ranks + STRANGERS;
	struct settling s = {.config = config,
			     .until_ms =
				     clock_ms() + (uint64_t)config->timeout_ms,
			     .room = (int)room};
	bool *wanted = calloc(ranks, sizeof(*wanted));
	int *fds = calloc(ranks, sizeof(*fds));
	dicomm_result_t status;

	s.members = calloc(ranks, sizeof(*s.members));
	s.lines = calloc(room, sizeof(*s.lines));
	s.polls = calloc(room + 1, sizeof(*s.polls));
	if (wanted && fds && s.members && s.lines && s.polls) {
		sock_make_room(2 * (uint32_t)ranks);
		call_all(&s, wanted, fds);
		flood(&s);
		status = say_result(&s);
		part(&s);
	} else {
		status = FAIL(DICOMM_ERR_NO_MEMORY,
			      "settle: no memory for %d ranks", config->ranks);
	}
	free(wanted);
	free(fds);
	free(s.members);
	free(s.lines);
	free(s.polls);
	return status;
}
