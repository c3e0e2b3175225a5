/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An interpreter of PTX: the part that reads a module.
 *
 * Registers, constants and special registers of a kernel become entries of one
 * array of 64-bit words, so that every operand of an instruction is an index.
 */
#include "tests/kernels/ptx.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/hash.h"
#include "tests/kernels/ptx_code.h"

#define NAME_LEN 64

struct reader {
	const char *at; /* rest of the text */
	int line;
	struct ptx *module;
	char **names; /* of the words of the kernel that is read */
	int *places;  /* words by their names, plus 1; twice the room */
	size_t names_room;
	struct label {
		char name[NAME_LEN];
		int target; /* -1: not yet seen */
	} * labels;
	int nlabels;
	char *why;
	size_t why_len;
};

static bool fail(struct reader *r, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static bool fail(struct reader *r, const char *format, ...)
{
	int used = snprintf(r->why, r->why_len, "line %d: ", r->line);
	va_list args;

	va_start(args, format);
	if (used >= 0 && (size_t)used < r->why_len)
		vsnprintf(r->why + used, r->why_len - (size_t)used, format,
			  args);
	va_end(args);
	return false;
}

/* ---- types and forms of instructions ---- */

static const struct {
	const char *name;
	struct ptx_type type;
} types[] = {
	{"pred", {PTX_PREDICATE, 1}}, {"b8", {PTX_BITS, 8}},
	{"b16", {PTX_BITS, 16}},      {"b32", {PTX_BITS, 32}},
	{"b64", {PTX_BITS, 64}},      {"u8", {PTX_UNSIGNED, 8}},
	{"u16", {PTX_UNSIGNED, 16}},  {"u32", {PTX_UNSIGNED, 32}},
	{"u64", {PTX_UNSIGNED, 64}},  {"s8", {PTX_SIGNED, 8}},
	{"s16", {PTX_SIGNED, 16}},    {"s32", {PTX_SIGNED, 32}},
	{"s64", {PTX_SIGNED, 64}},    {"f16", {PTX_FLOAT, 16}},
	{"f32", {PTX_FLOAT, 32}},     {"f64", {PTX_FLOAT, 64}},
};

static bool type_parse(const char *name, struct ptx_type *type)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (!strcmp(name, types[i].name)) {
			*type = types[i].type;
			return true;
		}
	return false;
}

#define B (1u << PTX_BITS)
#define U (1u << PTX_UNSIGNED)
#define S (1u << PTX_SIGNED)
#define F (1u << PTX_FLOAT)
#define P (1u << PTX_PREDICATE)

/* What may come before the type, which types, how many operands. */
static const struct form {
	const char *prefix;
	enum ptx_op op;
	unsigned classes;
	int out, in;
} forms[] = {
	{"mov.", PTX_MOV, B | U | S | F | P, 1, 1},
	{"cvta.to.global.", PTX_MOV, U, 1, 1},
	{"add.", PTX_ADD, U | S, 1, 2},
	{"sub.", PTX_SUB, U | S, 1, 2},
	{"mul.lo.", PTX_MUL, U | S, 1, 2},
	{"mul.wide.", PTX_MUL_WIDE, U | S, 1, 2},
	{"mad.lo.", PTX_MAD, U | S, 1, 3},
	{"div.", PTX_DIV, U | S, 1, 2},
	{"add.rn.", PTX_FADD, F, 1, 2},
	{"mul.rn.", PTX_FMUL, F, 1, 2},
	{"and.", PTX_AND, B | P, 1, 2},
	{"or.", PTX_OR, B | P, 1, 2},
	{"xor.", PTX_XOR, B | P, 1, 2},
	{"not.", PTX_NOT, B | P, 1, 1},
	{"neg.", PTX_NEG, S, 1, 1},
	{"shl.", PTX_SHL, B, 1, 2},
	{"shr.", PTX_SHR, B | U | S, 1, 2},
	{"bfe.", PTX_BFE, U | S, 1, 3},
	{"bfi.", PTX_BFI, B, 1, 4},
	{"prmt.", PTX_PRMT, B, 1, 3},
	{"min.", PTX_MIN, U | S, 1, 2},
	{"max.", PTX_MAX, U | S, 1, 2},
	{"selp.", PTX_SELP, B | U | S | F, 1, 3},
	{"setp.eq.", PTX_EQ, B | U | S | F, 1, 2},
	{"setp.ne.", PTX_NE, B | U | S, 1, 2},
	{"setp.lt.", PTX_LT, U | S | F, 1, 2},
	{"setp.le.", PTX_LE, U | S | F, 1, 2},
	{"setp.gt.", PTX_GT, U | S | F, 1, 2},
	{"setp.ge.", PTX_GE, U | S | F, 1, 2},
	{"ld.param.", PTX_LD_PARAM, B | U, 1, 1},
	{"ld.global.", PTX_LD, B | U | S | F, 1, 1},
	{"ld.global.v2.", PTX_LD, B | U | S | F, 2, 1},
	{"ld.global.v4.", PTX_LD, B | U | S | F, 4, 1},
	{"st.global.", PTX_ST, B | U | S | F, 0, 2},
	{"st.global.v2.", PTX_ST, B | U | S | F, 0, 3},
	{"st.global.v4.", PTX_ST, B | U | S | F, 0, 5},
};

#undef B
#undef U
#undef S
#undef F
#undef P

static bool convert_parse(const char *rest, struct ptx_insn *insn)
{
	char to[8], from[8], end;
	bool rounds = strncmp(rest, "rn.", 3) == 0;
	bool floats;

	if (sscanf(rest + (rounds ? 3 : 0), "%7[a-z0-9].%7[a-z0-9]%c", to, from,
		   &end) != 2 ||
	    !type_parse(to, &insn->type) || !type_parse(from, &insn->from))
		return false;
	insn->op = PTX_CVT;
	floats = insn->type.kind == PTX_FLOAT || insn->from.kind == PTX_FLOAT;
	/* Integers among each other; to float32; float16 from and to it */
	if (!floats)
		return !rounds;
	if (insn->from.kind != PTX_FLOAT)
		return rounds && insn->type.bits == 32;
	if (insn->type.kind != PTX_FLOAT)
		return false;
	return rounds ? insn->type.bits == 16 && insn->from.bits == 32
		      : insn->type.bits == 32 && insn->from.bits == 16;
}

static bool opcode_parse(struct reader *r, const char *opcode,
			 struct ptx_insn *insn, int *out, int *in)
{
	const char *last = strrchr(opcode, '.');

	if (!strcmp(opcode, "ret")) {
		insn->op = PTX_RET;
		*out = *in = 0;
		return true;
	}
	*out = *in = 1;
	if (!strncmp(opcode, "cvt.", 4) && convert_parse(opcode + 4, insn))
		return true;
	for (size_t i = 0; last && i < sizeof(forms) / sizeof(*forms); i++) {
		const struct form *f = &forms[i];
		size_t len = strlen(f->prefix);

		if ((size_t)(last + 1 - opcode) != len ||
		    strncmp(opcode, f->prefix, len) ||
		    !type_parse(last + 1, &insn->type) ||
		    !(f->classes & 1u << insn->type.kind))
			continue;
		insn->op = f->op;
		*out = f->out;
		*in = f->in;
		return true;
	}
	return fail(r, "unknown instruction %s", opcode);
}

/* ---- operands ---- */

static struct ptx_kernel *current(struct reader *r)
{
	return &r->module->kernels[r->module->nkernels - 1];
}

/* Where the word of a name is, or would be: one place is free at least. */
static int *place(struct reader *r, const char *name)
{
	uint64_t at = hash_bytes(HASH_START, name, strlen(name));
	int *p;

	do
		p = &r->places[at++ % (2 * r->names_room)];
	while (*p && strcmp(r->names[*p - 1], name));
	return p;
}

static void make_room(struct reader *r)
{
	struct ptx_kernel *k = current(r);

	r->names_room = r->names_room ? 2 * r->names_room : 256;
	r->names = realloc(r->names, r->names_room * sizeof(*r->names));
	k->words = realloc(k->words, r->names_room * sizeof(*k->words));
	free(r->places);
	r->places = calloc(2 * r->names_room, sizeof(*r->places));
	if (!r->names || !k->words || !r->places)
		abort();
	for (int i = 0; i < k->nwords; i++)
		*place(r, r->names[i]) = i + 1;
}

/* The index of a word by its name; it is made at first sight. */
static int word(struct reader *r, const char *name, uint64_t value)
{
	struct ptx_kernel *k = current(r);
	int *p;

	if ((size_t)k->nwords == r->names_room)
		make_room(r);
	p = place(r, name);
	if (!*p) {
		r->names[k->nwords] = strdup(name);
		k->words[k->nwords] = value;
		*p = ++k->nwords;
	}
	return *p - 1;
}

static bool value_parse(struct reader *r, const char *text, int *index)
{
	uint64_t value = 0;
	char *end = NULL;

	if (*text == '%') {
		*index = word(r, text, 0);
		return true;
	}
	if (!strncmp(text, "0f", 2) || !strncmp(text, "0d", 2))
		value = strtoull(text + 2, &end, 16);
	else if (*text == '-')
		value = (uint64_t)strtoll(text, &end, 0);
	else if (isdigit((unsigned char)*text))
		value = strtoull(text, &end, 0);
	if (!end || *end)
		return fail(r, "operand %s", text);
	*index = word(r, text, value);
	return true;
}

/* "[%rd1+16]", "[kernel_param_2]" */
static bool address_parse(struct reader *r, char *text, struct ptx_insn *insn,
			  int *index)
{
	struct ptx_kernel *k = current(r);
	size_t len = strlen(text);
	char prefix[NAME_LEN + 8];
	char *plus = strchr(text, '+');

	if (text[0] != '[' || text[len - 1] != ']')
		return fail(r, "operand %s: no address", text);
	text[len - 1] = '\0';
	text++;
	if (insn->op == PTX_LD_PARAM) {
		char *end;
		long i;

		snprintf(prefix, sizeof(prefix), "%s_param_", k->name);
		len = strlen(prefix);
		if (strncmp(text, prefix, len))
			return fail(r, "parameter %s", text);
		i = strtol(text + len, &end, 10);
		if (*end || i < 0 || i >= k->nparams)
			return fail(r, "parameter %s", text);
		*index = (int)i;
		return true;
	}
	if (plus) {
		insn->offset = strtoll(plus + 1, NULL, 0);
		*plus = '\0';
	}
	return *text == '%' ? value_parse(r, text, index)
			    : fail(r, "address %s", text);
}

static int label_index(struct reader *r, const char *name)
{
	for (int i = 0; i < r->nlabels; i++)
		if (!strcmp(r->labels[i].name, name))
			return i;
	r->labels = realloc(r->labels,
			    ((size_t)r->nlabels + 1) * sizeof(*r->labels));
	if (!r->labels)
		abort();
	snprintf(r->labels[r->nlabels].name, NAME_LEN, "%s", name);
	r->labels[r->nlabels].target = -1;
	return r->nlabels++;
}

/* The next operand of a list, without blanks and the braces of a vector. */
static char *operand(char **list)
{
	char *start = *list + strspn(*list, " \t{");
	char *end = start + strcspn(start, ",");

	if (!*start)
		return NULL;
	*list = *end ? end + 1 : end;
	while (end > start && strchr(" \t}", end[-1]))
		end--;
	*end = '\0';
	return start;
}

static bool operands_parse(struct reader *r, char *list, struct ptx_insn *insn,
			   int out, int in)
{
	bool memory = insn->op == PTX_LD || insn->op == PTX_ST ||
		      insn->op == PTX_LD_PARAM;
	int address = insn->op == PTX_ST ? 0 : out; /* which operand */
	char *text;

	insn->nout = out;
	insn->nin = in;
	for (int i = 0; i < out + in; i++) {
		int *index = i < out ? &insn->out[i] : &insn->in[i - out];

		text = operand(&list);
		if (!text)
			return fail(r, "%d operands wanted", out + in);
		if (i < out && *text != '%')
			return fail(r, "operand %s: no register", text);
		if (memory && i == address) {
			if (!address_parse(r, text, insn, index))
				return false;
		} else if (!value_parse(r, text, index)) {
			return false;
		}
	}
	text = operand(&list);
	return text ? fail(r, "too many operands") : true;
}

/* ---- statements ---- */

static struct ptx_insn *insn_new(struct reader *r)
{
	struct ptx_kernel *k = current(r);

	/* Full: there is room for a power of two. */
	if (!(k->ninsns & (k->ninsns - 1))) {
		size_t room = k->ninsns ? 2 * (size_t)k->ninsns : 1;

		k->insns = realloc(k->insns, room * sizeof(*k->insns));
		if (!k->insns)
			abort();
	}
	k->insns[k->ninsns] = (struct ptx_insn){.guard = -1};
	return &k->insns[k->ninsns++];
}

/* "@!%p1 bra LABEL", "add.s64 %rd1, %rd2, 3" */
static bool insn_parse(struct reader *r, char *text)
{
	struct ptx_insn *insn = insn_new(r);
	char *opcode, *rest;
	int out, in;

	if (*text == '@') {
		char *guard = ++text;

		if (*guard == '!') {
			insn->guard_negated = true;
			guard++;
		}
		text = guard + strcspn(guard, " \t");
		if (*text)
			*text++ = '\0';
		if (*guard != '%')
			return fail(r, "guard %s", guard);
		insn->guard = word(r, guard, 0);
	}
	opcode = text + strspn(text, " \t");
	rest = opcode + strcspn(opcode, " \t");
	if (*rest)
		*rest++ = '\0';
	rest += strspn(rest, " \t");
	if (!strcmp(opcode, "bra") || !strcmp(opcode, "bra.uni")) {
		insn->op = PTX_BRA;
		insn->target = label_index(r, rest);
		return true;
	}
	/* Two halves of a word */
	if (!strncmp(opcode, "mov.b", 5) && strchr(rest, '{')) {
		bool pack = *rest != '{';

		insn->op = pack ? PTX_PACK : PTX_UNPACK;
		return type_parse(opcode + 4, &insn->type) &&
		       insn->type.bits > 8 &&
		       operands_parse(r, rest, insn, pack ? 1 : 2,
				      pack ? 2 : 1);
	}
	return opcode_parse(r, opcode, insn, &out, &in) &&
	       operands_parse(r, rest, insn, out, in);
}

/* Up to a character of `ends`, which is left; of '}', only where nothing comes
 * before it, since vectors have braces too. Comments are dropped. */
static bool text_until(struct reader *r, const char *ends, char *text,
		       size_t len)
{
	size_t n = 0;

	while (*r->at && (!strchr(ends, *r->at) || (*r->at == '}' && n))) {
		if (r->at[0] == '/' && r->at[1] == '/') {
			r->at += strcspn(r->at, "\n");
			continue;
		}
		if (*r->at == '\n')
			r->line++;
		if (n + 1 == len)
			return fail(r, "statement is too long");
		/* No blanks at the beginning */
		if (n || !isspace((unsigned char)*r->at))
			text[n++] =
				isspace((unsigned char)*r->at) ? ' ' : *r->at;
		r->at++;
	}
	while (n && text[n - 1] == ' ')
		n--;
	text[n] = '\0';
	return *r->at ? true : fail(r, "the text ends");
}

static bool statement(struct reader *r, char *text)
{
	if (!strncmp(text, ".reg ", 5) || !strncmp(text, ".pragma ", 8))
		return true;
	return *text == '.' ? fail(r, "directive %s", text)
			    : insn_parse(r, text);
}

static bool body(struct reader *r)
{
	struct ptx_kernel *k = current(r);
	char text[512];

	for (;;) {
		if (!text_until(r, ";:}", text, sizeof(text)))
			return false;
		if (*r->at == ':') {
			int label = label_index(r, text);

			r->labels[label].target = k->ninsns;
		} else if (*r->at == ';' && !statement(r, text)) {
			return false;
		}
		if (*r->at++ == '}')
			break;
	}
	if (!k->ninsns || k->insns[k->ninsns - 1].op != PTX_RET)
		return fail(r, "%s does not end in ret", k->name);
	for (int i = 0; i < k->ninsns; i++) {
		struct ptx_insn *insn = &k->insns[i];

		if (insn->op != PTX_BRA)
			continue;
		if (r->labels[insn->target].target < 0)
			return fail(r, "no label %s",
				    r->labels[insn->target].name);
		insn->target = r->labels[insn->target].target;
	}
	return true;
}

static void forget_names(struct reader *r, int n)
{
	for (int i = 0; i < n; i++)
		free(r->names[i]);
	free(r->names);
	free(r->places);
	free(r->labels);
	r->names = NULL;
	r->places = NULL;
	r->names_room = 0;
	r->labels = NULL;
	r->nlabels = 0;
}

/* ".visible .entry NAME(.param .u64 NAME_param_0, ...) {" */
static bool entry(struct reader *r)
{
	struct ptx *p = r->module;
	struct ptx_kernel *k;
	char text[2048], name[NAME_LEN];
	bool good;

	if (!text_until(r, "(", text, sizeof(text)))
		return false;
	if (sscanf(text, ".visible .entry %63s", name) != 1)
		return fail(r, "%s", text);
	r->at++;
	p->kernels = realloc(p->kernels,
			     ((size_t)p->nkernels + 1) * sizeof(*p->kernels));
	if (!p->kernels)
		abort();
	k = &p->kernels[p->nkernels++];
	*k = (struct ptx_kernel){.nparams = 0};
	snprintf(k->name, sizeof(k->name), "%s", name);
	if (!text_until(r, ")", text, sizeof(text)))
		return false;
	r->at++;
	for (char *list = text, *param; (param = operand(&list));) {
		if (strncmp(param, ".param .u64 ", 12))
			return fail(r, "parameter %s", param);
		k->nparams++;
	}
	if (!text_until(r, "{", text, sizeof(text)))
		return false;
	r->at++;
	if (*text && sscanf(text, ".reqntid %u", &k->block) != 1 &&
	    strncmp(text, ".maxntid ", 9))
		return fail(r, "directive %s", text);
	k->tid = word(r, "%tid.x", 0);
	k->ctaid = word(r, "%ctaid.x", 0);
	k->ntid = word(r, "%ntid.x", 0);
	k->nctaid = word(r, "%nctaid.x", 0);
	good = body(r);
	forget_names(r, current(r)->nwords);
	return good;
}

static bool module_parse(struct reader *r)
{
	struct ptx *p = r->module;
	char line[256];

	for (;;) {
		r->at += strspn(r->at, " \t\r");
		if (*r->at == '\n') {
			r->at++;
			r->line++;
			continue;
		}
		if (!*r->at)
			return true;
		if (!strncmp(r->at, "//", 2)) {
			r->at += strcspn(r->at, "\n");
			continue;
		}
		if (!strncmp(r->at, ".visible .entry ", 16)) {
			if (!entry(r))
				return false;
			continue;
		}
		if (!text_until(r, "\n", line, sizeof(line)))
			return false;
		if (sscanf(line, ".version %15s", p->version) != 1 &&
		    sscanf(line, ".target %15s", p->target) != 1 &&
		    strcmp(line, ".address_size 64"))
			return fail(r, "directive %s", line);
	}
}

struct ptx *ptx_load(const char *text, char *why, size_t len)
{
	struct reader r = {.at = text, .line = 1, .why = why, .why_len = len};

	r.module = calloc(1, sizeof(*r.module));
	if (!r.module)
		abort();
	if (module_parse(&r))
		return r.module;
	if (r.names)
		forget_names(&r, current(&r)->nwords);
	ptx_free(r.module);
	return NULL;
}

void ptx_free(struct ptx *p)
{
	for (int i = 0; p && i < p->nkernels; i++) {
		free(p->kernels[i].insns);
		free(p->kernels[i].words);
	}
	if (p)
		free(p->kernels);
	free(p);
}

const char *ptx_version(const struct ptx *p)
{
	return p->version;
}

const char *ptx_target(const struct ptx *p)
{
	return p->target;
}

const char *ptx_kernel(const struct ptx *p, int i)
{
	return i < p->nkernels ? p->kernels[i].name : NULL;
}
