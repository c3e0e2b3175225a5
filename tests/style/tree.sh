#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Each file of the tree is in Makefile.am or a Makefile.include, so that it is
# built and in the tarball, and has a line in the README.md of its folder or in
# docs/architecture.md, which it may share with its header: "log.[ch]  what it
# does". A page of results is linked from the README.md beside it or above it.
# Python's modules need only be listed.
cd "${srcdir:-.}" || exit 99
bad=0
files=0
folders='collectives compat docs examples include perftest planner src tests transports'
listed=" $(
	for list in Makefile.am $(find $folders python -name Makefile.include); do
		sed "s|%D%|${list%/*}|g" "$list"
	done | tr -s '\t\n' ' '
) "

# A test program is named without .c, its source being the default one.
for file in $(find $folders -name '*.[ch]' -o -name '*.cl' -o -name '*.sh' \
	-o -name '*.map' -o -name '*.md' | sort); do
	files=$((files + 1))
	case $file in
	perftest/results/* | planner/results/*) name=${file%/*} ;; # as a whole
	*) name=$file ;;
	esac
	case $listed in
	*" $name "* | *" ${name%.c} "*) ;;
	*)
		echo "no Makefile.include lists $file"
		bad=1
		;;
	esac
	name=${file##*/} readme=${file%/*}/README.md
	case $file in
	*/results/*)
		grep -sqF "$name)" "$readme" "${file%/results/*}/README.md" ||
			[ "$file" = "$readme" ] || {
			echo "no README.md links $file"
			bad=1
		}
		continue
		;;
	esac
	if [ "$file" != "$readme" ] &&
		! grep -qE "^(${file%.*}\.\[ch\]|$file)  *[^ ]" \
			docs/architecture.md &&
		! grep -sqE "^(${name%.*}\.\[ch\]|$name)  *[^ ]" "$readme"; then
		echo "neither $readme nor docs/architecture.md has a line for $file"
		bad=1
	fi
done

for file in $(find python packaging scripts -name '*.py' | sort); do
	case $listed in
	*" $file "*) ;;
	*)
		echo "no Makefile.include lists $file"
		bad=1
		;;
	esac
done

for readme in $(find collectives compat examples perftest planner src tests \
	transports -name README.md); do
	for line in $(grep -oE '^[A-Za-z_0-9]+\.[][a-z]+ ' "$readme"); do
		case $line in
		*.\[ch\]) wanted="${line%.*}.c ${line%.*}.h" ;;
		*) wanted=$line ;;
		esac
		for file in $wanted; do
			if [ -z "$(find "${readme%/*}" -name "$file")" ]; then
				echo "$readme has a line for $file, which is not there"
				bad=1
			fi
		done
	done
done

for line in $(grep -oE '^[a-z_/]+/[A-Za-z_0-9-]+\.[][a-z]+ ' \
	docs/architecture.md); do
	case $line in
	*.\[ch\]) wanted="${line%.*}.c ${line%.*}.h" ;;
	*) wanted=$line ;;
	esac
	for file in $wanted; do
		if [ ! -e "$file" ]; then
			echo "docs/architecture.md has a line for $file," \
				"which is not there"
			bad=1
		fi
	done
done

if [ $files -lt 50 ]; then
	echo "only $files files seen; is this check blind?"
	bad=1
fi
exit $bad
