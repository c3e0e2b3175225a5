# SPDX-License-Identifier: BSD-3-Clause
# Writes the pages of section 3 from the comments of include/dicomm.h: one for
# each function, dicomm_types(3) with the types and constants as they are
# declared, and dicomm(3) with what holds for all of them. Called as
#     awk -v folder=FOLDER -v version=VERSION -f text.awk -f functions.awk dicomm.h

# Code as it stands.
function code(text,    out, i, c) {
	for (i = 1; i <= length(text); i++) {
		c = substr(text, i, 1)
		if (c == "\t")
			do out = out " "; while (length(out) % 8)
		else
			out = out c
	}
	return plain(out)
}

function begin_page(name, summary) {
	page = folder "/" name ".3"
	printf ".TH %s 3 \"\" \"libdicomm %s\" \"Library functions\"\n" \
		".nh\n.ad l\n.SH NAME\n", toupper(name), version >page
	fill(name " - " summary)
	print ".SH SYNOPSIS\n.nf\n.B #include <dicomm.h>" >page
}

function end_page(also) {
	printf ".SH SEE ALSO\n%s\n", also >page
	close(page)
}

# A paragraph; "Threads: any." and, where parts are long, "Threads. ..." begin
# with what they are about.
function paragraph(text, headed,    label) {
	if (headed && match(text, /^[A-Z][a-z]+\. /)) {
		print ".SS " substr(text, 1, RLENGTH - 2) >page
		text = substr(text, RLENGTH + 1)
	} else if (!fresh) {
		print ".PP" >page
	}
	fresh = 0
	if (match(text, /^[A-Z][A-Za-z]*( [A-Z]+)?: /)) {
		label = substr(text, 1, RLENGTH - 1)
		print ".B " label >page
		text = substr(text, RLENGTH + 1)
	}
	fill(text)
}

function item(text) {
	print ".IP \\(bu 2" >page
	fill(text)
}

# The lines first to last of lines[]: paragraphs, " - " items, indented code.
function body(first, last, headed,    i, text, kind, open) {
	for (i = first; i <= last + 1; i++) {
		if (i <= last && lines[i] ~ /^    / && !(text != "" && kind)) {
			if (text != "")
				paragraph(text, headed)
			text = ""
			if (!open)
				print ".PP\n.in +4\n.nf" >page
			open = 1
			print code(substr(lines[i], 5)) >page
			continue
		}
		if (open)
			print ".fi\n.in" >page
		open = 0
		if (i > last || lines[i] == "" || lines[i] ~ /^ *- /) {
			if (text != "" && kind)
				item(text)
			else if (text != "")
				paragraph(text, headed)
			text = ""
			kind = i <= last && lines[i] ~ /^ *- /
			if (kind)
				text = substr(lines[i], index(lines[i], "-") + 2)
			continue
		}
		# What is not indented is no longer part of an item.
		if (kind && lines[i] !~ /^ /) {
			item(text)
			text = kind = ""
		}
		sub(/^ +/, "", lines[i])
		text = text (text == "" ? "" : " ") lines[i]
	}
}

# "@param NAME TEXT" and "@retval NAME, NAME TEXT"
function tag(text,    names) {
	sub(/^@[a-z]+ +/, "", text)
	match(text, /^[A-Za-z_0-9]+(, *[A-Z_0-9]+)*/)
	names = substr(text, 1, RLENGTH)
	text = substr(text, RLENGTH + 1)
	sub(/^ +/, "", text)
	printf ".TP\n.B %s\n", names >page
	fill(text)
}

function tags(kind, title, first, last,    i, text, seen) {
	for (i = first; i <= last + 1; i++) {
		if (i <= last && lines[i] !~ /^@/) {
			sub(/^ +/, "", lines[i])
			text = text " " lines[i]
			continue
		}
		if (text ~ "^" kind) {
			if (!seen++)
				print ".SH " title >page
			if (kind == "@return ")
				fill(substr(text, 9))
			else
				tag(text)
		}
		text = lines[i]
	}
}

function summary_of(first,    text, i) {
	for (i = first; i <= n && lines[i] != "" && lines[i] !~ /^@/; i++)
		text = text (text == "" ? "" : " ") lines[i]
	sub(/[.:;] .*/, "", text)
	sub(/\.$/, "", text)
	return tolower(substr(text, 1, 1)) substr(text, 2)
}

function function_page(    name, i, described) {
	name = declaration
	sub(/\(.*/, "", name)
	sub(/.*[ *]/, "", name)
	gsub(/"Status" above/, "\"Status\" in dicomm(3)", doc)
	n = split(doc, lines, "\n") - 1
	summaries[++functions] = summary_of(1)
	names[functions] = name
	begin_page(name, summaries[functions])
	printf "\n%s.fi\n.SH DESCRIPTION\n", declaration_code >page
	fresh = 1
	for (described = 0; described < n; described++)
		if (lines[described + 1] ~ /^@/)
			break
	body(1, described)
	tags("@param", "ARGUMENTS", described + 1, n)
	tags("@retval", "RETURN VALUE", described + 1, n)
	tags("@return ", "RETURN VALUE", described + 1, n)
	end_page(".BR dicomm (3),\n.BR dicomm_types (3)")
}

# --- reading the header ------------------------------------------------------

/^\/\*/ {
	in_comment = 1
	doc = raw = ""
	documents = /^\/\*\*/
	long = !/\*\//
}
in_comment {
	raw = raw $0 "\n"
	text = $0
	sub(/^\/\*\*? ?/, "", text)
	sub(/ *\*\/$/, "", text)
	if (FNR > 1)
		sub(/^ \* ?/, "", text)
	if (text != "" || doc != "")
		doc = doc text "\n"
	if (!/\*\//)
		next
	in_comment = 0
	if (doc ~ /^@file/) {
		sub(/^@file[^\n]*\n/, "", doc)
		overview = doc
		doc = raw = ""
	} else if (!documents && long) {
		overview = overview "\n" doc
		doc = raw = ""
	} else if (!documents) {
		doc = raw = ""
	}
	next
}

# A function: its declaration ends with a semicolon.
declaration == "" && !in_type && /^[a-z]/ && !/^(typedef|extern)/ {
	declaration = " "
	declaration_code = ""
}
declaration != "" {
	declaration = declaration " " $0
	declaration_code = declaration_code code($0) "\n"
	if (/;/) {
		function_page()
		declaration = doc = raw = ""
	}
	next
}

# A type or constant, with its comment
/^typedef/ || (/^#define DICOMM_/ && $2 != "DICOMM_H") {
	types = types raw
	raw = doc = ""
	in_type = /^typedef/ ? "};" : "define"
}
in_type {
	types = types $0 "\n"
	if (in_type == "define" ? !/\\$/ : (/^}.*;/ || /^typedef.*;/))
		in_type = ""
	next
}
/^$/ { types = types (types ~ /\n\n$/ ? "" : "\n") }

END {
	begin_page("dicomm_types", "types and constants of libdicomm")
	print "" >page
	n = split(types, lines, "\n") - 1
	for (i = 1; i <= n; i++)
		print code(lines[i]) >page
	print ".fi" >page
	end_page(".BR dicomm (3)")

	begin_page("dicomm", "collective communication between unlike devices")
	print "\n.B cc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs dicomm)\n" \
		".fi\n.SH DESCRIPTION" >page
	fresh = 1
	n = split(overview, lines, "\n") - 1
	body(1, n, 1)
	print ".SH FUNCTIONS" >page
	for (i = 1; i <= functions; i++) {
		printf ".TP\n.BR %s (3)\n", names[i] >page
		fill(summaries[i])
	}
	end_page(".BR dicomm_types (3),\n.BR dicomm\\-info (1),\n" \
		".BR dicomm\\-perf (1)")
}
