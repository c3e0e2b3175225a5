/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/comm/metrics_text.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* ---- text ---- */

/* Returns the bytes of the character of UTF-8 that is there; 0: none. */
static size_t character(const unsigned char *s)
{
	size_t n = s[0] < 0x80 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;

	if (n > 1 && (s[0] < 0xc2 || s[0] > 0xf4))
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	/* Too long for what they say, halves of pairs of UTF-16, too large */
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

void metrics_text_copy(char *to, size_t room, const char *from)
{
	size_t n = 0;

	while (*from) {
		size_t len = character((const unsigned char *)from);

		if (n + (len ? len : 1) >= room)
			break;
		if (len)
			memcpy(to + n, from, len);
		else
			to[n] = '?';
		n += len ? len : 1;
		from += len ? len : 1;
	}
	to[n] = '\0';
}

static void put_label(FILE *f, const char *name, const char *value)
{
	fprintf(f, "%s=\"", name);
	for (; *value; value++) {
		if (*value == '\n') {
			fputs("\\n", f);
			continue;
		}
		if (*value == '"' || *value == '\\')
			fputc('\\', f);
		fputc(*value, f);
	}
	fputc('"', f);
}

/* ---- metrics ---- */

enum kind { NUMBER, MS, BY_TRANSPORT };

/* offset: in struct metrics_counts; has: for BY_TRANSPORT, of the mask */
struct metric {
	const char *name, *type, *help;
	size_t offset;
	enum kind kind;
	size_t has;
};

#define AT(field) offsetof(struct metrics_counts, field)

static const struct metric metrics[] = {
	{"dicomm_operations_total", "counter",
	 "Collectives, sends, receives and local reductions begun.",
	 AT(operations), NUMBER, 0},
	{"dicomm_messages_sent_total", "counter", "Messages sent to peers.",
	 AT(messages_sent), NUMBER, 0},
	{"dicomm_messages_received_total", "counter",
	 "Messages received from peers.", AT(messages_received), NUMBER, 0},
	{"dicomm_sent_bytes_total", "counter", "Payload sent to peers.",
	 AT(sent_bytes), NUMBER, 0},
	{"dicomm_received_bytes_total", "counter",
	 "Payload received from peers.", AT(received_bytes), NUMBER, 0},
	{"dicomm_staged_bytes_total", "counter",
	 "Payload of devices that passed through host memory.",
	 AT(staged_bytes), NUMBER, 0},
	{"dicomm_faults_total", "counter", "Communicators that have failed.",
	 AT(faults), NUMBER, 0},
	{"dicomm_retransmits_total", "counter",
	 "Packets that the kernel has sent again.", AT(retransmits),
	 BY_TRANSPORT, AT(has_retransmits)},
	{"dicomm_communicators", "gauge", "Communicators that there are.",
	 AT(communicators), NUMBER, 0},
	{"dicomm_waiting_seconds", "gauge",
	 "How long the call under way has waited for another rank.",
	 AT(waiting_ms), MS, 0},
	{"dicomm_peers", "gauge", "Peers that are connected.", AT(peers),
	 BY_TRANSPORT, AT(has_peers)},
};

static uint64_t number(const struct metrics_counts *c, size_t offset)
{
	return *(const uint64_t *)((const char *)c + offset);
}

static unsigned mask(const struct metrics_counts *c, size_t offset)
{
	return *(const unsigned *)((const char *)c + offset);
}

static void put_labels(FILE *f, const struct metric *m,
		       const struct metrics_series *s, const char *host,
		       const char *transport)
{
	fprintf(f, "%s{", m->name);
	put_label(f, "comm", s->name);
	if (s->rank >= 0)
		fprintf(f, ",rank=\"%d\"", s->rank);
	fputc(',', f);
	put_label(f, "host", host);
	fprintf(f, ",pid=\"%d\"", (int)getpid());
	if (transport)
		fprintf(f, ",transport=\"%s\"", transport);
	fputs("} ", f);
}

/* No decimal point of the C library: it depends on the locale. */
static void put_series(FILE *f, const struct metric *m,
		       const struct metrics_series *s, const char *host)
{
	uint64_t n = number(&s->now, m->offset);

	if (m->kind != BY_TRANSPORT) {
		put_labels(f, m, s, host, NULL);
		if (m->kind == MS)
			fprintf(f, "%" PRIu64 ".%03u\n", n / 1000,
				(unsigned)(n % 1000));
		else
			fprintf(f, "%" PRIu64 "\n", n);
		return;
	}
	for (size_t i = 0; transports[i]; i++) {
		if (!(mask(&s->now, m->has) & 1u << i))
			continue;
		put_labels(f, m, s, host, transports[i]->name);
		fprintf(f, "%" PRIu64 "\n",
			number(&s->now, m->offset + i * sizeof(uint64_t)));
	}
}

/* All of a metric are together, as the format has it. */
void metrics_text_write(FILE *f, const struct metrics_series *first,
			const char *host)
{
	for (size_t i = 0; i < sizeof(metrics) / sizeof(*metrics); i++) {
		const struct metric *m = &metrics[i];

		fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", m->name, m->help,
			m->name, m->type);
		for (const struct metrics_series *s = first; s; s = s->next)
			put_series(f, m, s, host);
	}
}
