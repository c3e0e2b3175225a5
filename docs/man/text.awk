# SPDX-License-Identifier: BSD-3-Clause
# Text for man pages, into the file "page"; for functions.awk and tool.awk.

# Text in which no character means anything to a man page.
function plain(text) {
	gsub(/\\/, "\\e", text)
	gsub(/-/, "\\-", text)
	sub(/^[.']/, "\\\\\\&&", text)
	return text
}

# Writes text in lines of a bearable length, none of which begins as a request.
function fill(text,    words, count, i, line) {
	count = split(text, words, " ")
	for (i = 1; i <= count; i++) {
		if (line != "" && length(line) + length(words[i]) > 75) {
			print plain(line) >page
			line = ""
		}
		line = line (line == "" ? "" : " ") words[i]
	}
	if (line != "")
		print plain(line) >page
}
