/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Consensus by flooding, for ranks that may die and whose deaths others notice.
 *
 * In each round every rank sends one word to every other rank: are all ranks
 * ready, as far as the sender knows? Then it receives one word from each rank,
 * or notices that the rank is gone. If no further rank went missing in a round,
 * the receiver knows everything that any remaining rank knows, so it decides.
 * It sends its decision in the next round, which decides for the others too,
 * and stops. Without a death there is one round; each further round takes a
 * death.
 *
 * The higher of two ranks makes the connection over which the two exchange
 * words. The lower rank also connects to the recovery socket of the higher one
 * and sends nothing there. That connection ends if the higher rank dies or
 * leaves before it has connected, so the lower rank notices.
 */
#include "src/boot/control/commit.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/tcp.h"

/* The bits of a word. */
#define READY 1u   /* the sender knows of no rank that is not ready */
#define DECIDED 2u /* READY is the final result; receivers adopt it */

/* Room for connections beyond those of the ranks. If more arrive, the oldest
 * one whose rank has not proved its identity is closed. A rank proves it at
 * once. */
#define EXTRA_LINKS 64
#define FINISH_MS 1000
/* every round after the first may take at least this long */
#define ROUND_MS 2000

#define GREETING (-1)

/* These two structs have no padding; they are sent as they are. */
struct greeting {
	uint32_t rank;
	uint8_t proof[AUTH_PROOF];
};

struct vote {
	uint8_t word;
	uint8_t proof[AUTH_PROOF]; /* covers sender, receiver, round and word */
};

enum link_kind {
	LINK_FREE,
	/* accepted; the other end has not proved which rank it is */
	LINK_INCOMING,
	/* made by this rank to notice the other's death; carries no data */
	LINK_WATCH,
	/* made by this rank to exchange words; not yet connected */
	LINK_CONNECTING,
	LINK_GREETED, /* connected; this rank has sent its greeting */
	LINK_READY    /* both ends have proved which ranks they are */
};

struct link {
	int fd;
	enum link_kind kind;
	int rank; /* at the other end; unknown while LINK_INCOMING */
	uint64_t since_ms;
	size_t got;
	struct greeting greeting;
	struct vote vote;
};

struct participant {
	struct link *link; /* the link in state LINK_READY, or NULL */
	bool missing;
	int words;     /* number of words received, one per round */
	unsigned word; /* the last word received */
};

struct commit {
	const struct commit_config *config;
	uint64_t until_ms;
	int round;
	unsigned word; /* what this rank sends in this round */
	struct participant *participants;
	struct link *links;
	struct pollfd *polls; /* of the links, then of the recovery socket */
	int room;
};

static void set_missing(struct commit *s, int rank)
{
	struct participant *m = &s->participants[rank];

	if (m->missing)
		return;
	m->missing = true;
	log_debug("commit: rank %d misses rank %d in round %d", s->config->rank,
		  rank, s->round);
}

static void drop(struct commit *s, struct link *l)
{
	enum link_kind kind = l->kind;

	close(l->fd);
	l->kind = LINK_FREE;
	if (kind == LINK_INCOMING)
		return;
	/* The rank's other link, which carries its words, shows its death. */
	if (kind == LINK_WATCH && s->participants[l->rank].link)
		return;
	if (kind == LINK_READY)
		s->participants[l->rank].link = NULL;
	set_missing(s, l->rank);
}

/* Returns a free link. If there is none, closes the oldest incoming link and
 * returns that; NULL if there is none either. */
static struct link *make_link(struct commit *s)
{
	struct link *first = NULL;

	for (int i = 0; i < s->room; i++) {
		struct link *l = &s->links[i];

		if (l->kind == LINK_FREE)
			return l;
		if (l->kind == LINK_INCOMING &&
		    (!first || l->since_ms < first->since_ms))
			first = l;
	}
	if (first)
		drop(s, first);
	return first;
}

static void add(struct commit *s, int fd, enum link_kind kind, int rank)
{
	struct link *l = make_link(s);

	if (!l) {
		close(fd);
		return;
	}
	*l = (struct link){
		.fd = fd, .kind = kind, .rank = rank, .since_ms = clock_ms()};
	tcp_tune(fd);
}

/* Returns false if the link is broken. A greeting and a word fit into any
 * socket buffer, so this includes a short send. */
static bool send_bytes(const struct link *l, const void *data, size_t len)
{
	return send(l->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT) ==
	       (ssize_t)len;
}

/* Makes the proof of a greeting (number GREETING) or of a word from one rank to
 * another. */
static void prove(const struct commit_config *c, int from, int to, int number,
		  unsigned word, uint8_t proof[AUTH_PROOF])
{
	const uint32_t statement[] = {(uint32_t)from, (uint32_t)to,
				      (uint32_t)number, word};

	auth_prove(c->key, "dicomm commit", statement, sizeof(statement),
		   proof);
}

static bool is_right(const struct commit_config *c, int from, int number,
		     unsigned word, const uint8_t proof[AUTH_PROOF])
{
	const uint32_t statement[] = {(uint32_t)from, (uint32_t)c->rank,
				      (uint32_t)number, word};

	return auth_check(c->key, "dicomm commit", statement, sizeof(statement),
			  proof);
}

/* Makes the word that this rank sends after `number` rounds. */
static struct vote make_vote(const struct commit *s, int to, int number)
{
	struct vote v = {.word = (uint8_t)s->word};

	prove(s->config, s->config->rank, to, number, s->word, v.proof);
	return v;
}

/* Sends this rank's proof, followed by its first word. */
static bool send_greeting(const struct commit *s, const struct link *l)
{
	const struct commit_config *c = s->config;
	struct greeting g = {.rank = (uint32_t)c->rank};
	struct vote v = make_vote(s, l->rank, 0);
	uint8_t data[sizeof(g) + sizeof(v)];

	prove(c, c->rank, l->rank, GREETING, 0, g.proof);
	memcpy(data, &g, sizeof(g));
	memcpy(data + sizeof(g), &v, sizeof(v));
	return send_bytes(l, data, sizeof(data));
}

/* Returns true if the greeting is valid. The higher rank must have made the
 * link, and must not have another one. */
static bool is_proved(const struct commit *s, const struct link *l)
{
	const struct commit_config *c = s->config;
	const struct greeting *g = &l->greeting;

	if (g->rank >= (uint32_t)c->ranks || s->participants[g->rank].link ||
	    s->participants[g->rank].missing)
		return false;
	if (l->kind == LINK_GREETED ? (int)g->rank != l->rank
				    : (int)g->rank <= c->rank)
		return false;
	return is_right(c, (int)g->rank, GREETING, 0, g->proof);
}

static bool receive_greeting(struct commit *s, struct link *l)
{
	bool came = l->kind == LINK_INCOMING;

	if (!is_proved(s, l))
		return false;
	l->rank = (int)l->greeting.rank;
	l->kind = LINK_READY;
	l->got = 0;
	s->participants[l->rank].link = l;
	return !came || send_greeting(s, l);
}

/* A word that was changed or repeated on the way ends its link, as if the
 * sender had died. */
static bool receive_word(struct commit *s, struct link *l)
{
	struct participant *p = &s->participants[l->rank];
	const struct vote *v = &l->vote;

	l->got = 0;
	if (v->word > (READY | DECIDED) ||
	    !is_right(s->config, l->rank, p->words, v->word, v->proof)) {
		log_warn("commit: rank %d sent a word that is not its own",
			 l->rank);
		return false;
	}
	p->word = v->word;
	p->words++;
	return true;
}

/* Returns true if this round's word of that rank has not arrived. A word of the
 * next round stays in the socket. */
static bool is_awaited(const struct commit *s, int rank)
{
	const struct participant *m = &s->participants[rank];

	return rank != s->config->rank && !m->missing && m->words < s->round;
}

/* Reads what has arrived on a link. Returns false if the link must be
 * closed. */
static bool receive(struct commit *s, struct link *l)
{
	bool ready = l->kind == LINK_READY;
	size_t len = ready ? sizeof(l->vote) : sizeof(l->greeting);
	uint8_t *to = ready ? (uint8_t *)&l->vote : (uint8_t *)&l->greeting;
	ssize_t n;

	if (l->kind == LINK_CONNECTING) {
		l->kind = LINK_GREETED;
		return send_greeting(s, l);
	}
	n = recv(l->fd, to + l->got, len - l->got, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n <= 0 || l->kind == LINK_WATCH)
		return false;
	l->got += (size_t)n;
	if (l->got < len)
		return true;
	return ready ? receive_word(s, l) : receive_greeting(s, l);
}

static void accept_links(struct commit *s)
{
	int fd;

	while ((fd = recovery_accept(s->config->recovery)) >= 0)
		add(s, fd, LINK_INCOMING, -1);
}

static bool round_is_over(const struct commit *s)
{
	for (int r = 0; r < s->config->ranks; r++)
		if (is_awaited(s, r))
			return false;
	return true;
}

static void wait_some(struct commit *s, uint64_t now)
{
	int n = s->room;

	/* poll() refuses more entries than the limit of open files, even unused
	 * ones. So leave out the free links at the end. */
	while (n && s->links[n - 1].kind == LINK_FREE)
		n--;
	for (int i = 0; i < n; i++) {
		const struct link *l = &s->links[i];
		bool wanted = l->kind != LINK_FREE &&
			      (l->kind != LINK_READY || is_awaited(s, l->rank));

		s->polls[i].fd = wanted ? l->fd : -1;
		s->polls[i].events =
			l->kind == LINK_CONNECTING ? POLLOUT : POLLIN;
		s->polls[i].revents = 0;
	}
	s->polls[n].fd = recovery_fd(s->config->recovery);
	s->polls[n].events = POLLIN;
	s->polls[n].revents = 0;
	if (poll(s->polls, (nfds_t)n + 1, (int)(s->until_ms - now)) < 0)
		return;
	for (int i = 0; i < n; i++)
		if (s->polls[i].revents && !receive(s, &s->links[i]))
			drop(s, &s->links[i]);
	if (s->polls[n].revents)
		accept_links(s);
}

static void receive_round(struct commit *s)
{
	uint64_t now;

	while (!round_is_over(s)) {
		now = clock_ms();
		if (now >= s->until_ms)
			break;
		wait_some(s, now);
	}
	for (int r = 0; r < s->config->ranks; r++)
		if (is_awaited(s, r))
			set_missing(s, r);
}

/* Ignores errors: a rank that is gone, perhaps with the result, is noticed when
 * its word is received. */
static void send_word(const struct commit *s)
{
	for (int r = 0; r < s->config->ranks; r++) {
		struct vote v;

		if (!s->participants[r].link)
			continue;
		v = make_vote(s, r, s->round);
		send_bytes(s->participants[r].link, &v, sizeof(v));
	}
}

static int count_missing(const struct commit *s)
{
	int n = 0;

	for (int r = 0; r < s->config->ranks; r++)
		n += s->participants[r].missing;
	return n;
}

/* Computes this rank's next word from the words that it has received. */
static unsigned conclude(const struct commit *s, int missed_before)
{
	unsigned word = s->word;

	for (int r = 0; r < s->config->ranks; r++) {
		const struct participant *m = &s->participants[r];

		if (r == s->config->rank || m->missing)
			continue;
		if (m->word & DECIDED)
			return m->word;
		word &= m->word;
	}
	return count_missing(s) == missed_before ? word | DECIDED : 0;
}

/* A rank that entered later waits longer for the dead, and sends its next word
 * only then. Besides, a decision may be in the socket already. */
static void extend_time(struct commit *s)
{
	uint64_t least = clock_ms() + ROUND_MS;

	if (s->until_ms < least)
		s->until_ms = least;
}

static void flood(struct commit *s)
{
	int missed = 0;

	/* The first word was sent with the greeting of each link. */
	s->word = READY;
	for (s->round = 1;; s->round++) {
		receive_round(s);
		s->word = conclude(s, missed);
		send_word(s);
		if (s->word & DECIDED)
			break;
		missed = count_missing(s);
		extend_time(s);
	}
}

/* Receives until the other ends close, then closes. A socket that is closed
 * with unread bytes may discard the last bytes that it sent, if these are still
 * under way. */
static void finish(struct commit *s)
{
	uint64_t now;
	int left = 1;

	for (int i = 0; i < s->room; i++)
		if (s->links[i].kind == LINK_READY)
			shutdown(s->links[i].fd, SHUT_WR);
	s->round = INT_MAX; /* receive whatever arrives */
	s->until_ms = clock_ms() + FINISH_MS;
	while (left && (now = clock_ms()) < s->until_ms) {
		left = 0;
		for (int r = 0; r < s->config->ranks; r++)
			left += s->participants[r].link != NULL;
		if (left)
			wait_some(s, now);
	}
	for (int i = 0; i < s->room; i++)
		if (s->links[i].kind != LINK_FREE)
			close(s->links[i].fd);
	/* The recovery socket stays open, so close the connections that wait
	 * there. */
	recovery_drop_pending(s->config->recovery);
}

static void connect_all(struct commit *s, bool *wanted, int *fds)
{
	const struct commit_config *c = s->config;

	for (int r = 0; r < c->ranks; r++)
		wanted[r] = r != c->rank;
	recovery_connect_all(c->addresses, c->ranks, wanted, fds);
	for (int r = 0; r < c->ranks; r++) {
		if (fds[r] >= 0)
			add(s, fds[r],
			    r < c->rank ? LINK_CONNECTING : LINK_WATCH, r);
		else if (wanted[r])
			set_missing(s, r);
	}
}

static dicomm_result_t result(const struct commit *s)
{
	if (s->word & READY)
		return DICOMM_SUCCESS;
	for (int r = 0; r < s->config->ranks; r++)
		if (s->participants[r].missing)
			return FAIL(DICOMM_ERR_REMOTE,
				    "rank %d died, or gave up, when all others "
				    "were ready",
				    r);
	return FAIL(DICOMM_ERR_REMOTE,
		    "a rank died, or gave up, when all others were ready");
}

dicomm_result_t commit_all(const struct commit_config *config)
{
	size_t ranks = (size_t)config->ranks, room = 3 * ranks + EXTRA_LINKS;
	struct commit s = {.config = config,
			   .until_ms =
				   clock_ms() + (uint64_t)config->timeout_ms,
			   .room = (int)room};
	bool *wanted = calloc(ranks, sizeof(*wanted));
	int *fds = calloc(ranks, sizeof(*fds));
	dicomm_result_t status;
	char why[256];

	s.participants = calloc(ranks, sizeof(*s.participants));
	s.links = calloc(room, sizeof(*s.links));
	s.polls = calloc(room + 1, sizeof(*s.polls));
	if (wanted && fds && s.participants && s.links && s.polls) {
		if (!sock_make_room(2 * (uint32_t)ranks, 0, why, sizeof(why)))
			log_warn("%s", why);
		connect_all(&s, wanted, fds);
		flood(&s);
		status = result(&s);
		finish(&s);
	} else {
		status = FAIL(DICOMM_ERR_NO_MEMORY,
			      "commit: no memory for %d ranks", config->ranks);
	}
	free(wanted);
	free(fds);
	free(s.participants);
	free(s.links);
	free(s.polls);
	return status;
}
