package main

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// An expectation is a line of known.txt: differences that are intended, with the reason in the comment above it.
type expectation struct {
	line    int
	section string
	pattern string
	match   *regexp.Regexp
	// sometimes is set if the difference may be absent: it depends on time, or on flags of this command.
	sometimes bool
	found     bool
}

// readKnown reads known differences. Each line is "SECTION PATTERN" with a * for any text; PATTERN has to match the path of a
// difference, or its whole line behind the section. "?" in front of SECTION marks a difference that may be absent. A line
// needs a reason: a comment above it, or above the lines before it that have no comment between them.
func readKnown(r io.Reader) ([]*expectation, error) {
	var out []*expectation
	lines := bufio.NewScanner(r)
	reason := false
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			reason = false
			continue
		}
		if strings.HasPrefix(line, "#") {
			reason = true
			continue
		}
		if !reason {
			return nil, fmt.Errorf("line %d has no reason: write it in a comment above the line", n)
		}
		sometimes := strings.HasPrefix(line, "?")
		section, pattern, ok := strings.Cut(strings.TrimPrefix(line, "?"), " ")
		if !ok {
			return nil, fmt.Errorf("line %d is not SECTION PATTERN", n)
		}
		parts := strings.Split(pattern, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		match := regexp.MustCompile("^(?s:" + strings.Join(parts, ".*") + ")$") // valid: all parts are quoted
		out = append(out, &expectation{line: n, section: section, pattern: pattern, match: match, sometimes: sometimes})
	}
	return out, lines.Err()
}

// expected reports whether a difference of a section is known.
func expected(known []*expectation, section string, d difference) bool {
	out := false
	for _, k := range known { // all that match: none of them is out of date
		if k.section == section && (k.match.MatchString(d.path) || k.match.MatchString(d.String())) {
			k.found, out = true, true
		}
	}
	return out
}
