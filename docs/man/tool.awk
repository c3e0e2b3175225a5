# SPDX-License-Identifier: BSD-3-Clause
# Writes the page of a tool from its source, DICOMM-TOOL.1.in: a man page with
# lines that stand for what the tool itself says:
#     @options TOOL [COMMAND]@   the options that its --help lists
#     @words TOOL [COMMAND]@     what else --help lists with two spaces before it
# Called as awk -v version=VERSION -v run=FOLDER -f text.awk -f tool.awk SOURCE,
# where FOLDER has the tools; without one, for another machine than this, the
# page has no such lists but names --help.

BEGIN { page = "/dev/stdout" }

# "-b, --minbytes=SIZE" with letters and names bold and the value slanted
function heading(text,    n, parts, i, out, at) {
	n = split(text, parts, ", ")
	for (i = 1; i <= n; i++) {
		at = match(parts[i], /[= ]/)
		if (!at || parts[i] !~ /^-/)
			at = length(parts[i]) + 1
		out = out (i > 1 ? ", " : "") "\\fB" \
			plain(substr(parts[i], 1, at - 1)) "\\fR"
		if (at <= length(parts[i]))
			out = out substr(parts[i], at, 1) "\\fI" \
				plain(substr(parts[i], at + 1)) "\\fR"
	}
	return out
}

function entry(wanted) {
	if (name != "" && (name ~ /^-/) == wanted) {
		print ".TP\n" heading(name)
		fill(about)
		entries++
	}
	name = about = ""
}

# A list of --help: its entries are indented by two spaces or, without a letter,
# by six, and what they mean stands two spaces or more behind.
function list(command, options,    line, at, seen) {
	while ((command | getline line) > 0) {
		seen++
		if (line ~ /^(  |      )[^ ]/ && line !~ /^      [^-]/) {
			entry(options)
			sub(/^ +/, "", line)
			at = match(line, /  +/)
			# One that leaves no room for two spaces
			if (!at && line ~ /^[A-Z_]+ /)
				at = match(line, / /)
			name = at ? substr(line, 1, at - 1) : line
			about = at ? substr(line, at + RLENGTH) : ""
		} else if (line ~ /^   /) {
			sub(/^ +/, "", line)
			about = about " " line
		} else {
			entry(options)
		}
	}
	entry(options)
	if (close(command) != 0 || !seen || !entries) {
		print command ": says nothing of that kind" >"/dev/stderr"
		exit failed = 1
	}
	entries = 0
}

/^@(options|words) .*@$/ {
	options = /^@options/
	tool = substr($0, index($0, " ") + 1)
	sub(/@$/, "", tool)
	if (run == "")
		print ".PP\nSee\n.B " plain(tool " --help") "\n.R ."
	else
		list(run "/" tool " --help", options)
	next
}
{
	gsub(/@VERSION@/, version)
	print
}
