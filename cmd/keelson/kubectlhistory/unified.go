package kubectlhistory

import (
	"fmt"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
)

// unified returns the unified difference between two texts with three lines of context, "" if they are equal. color marks the
// lines in colours.
func unified(fromName, toName, from, to string, color bool) string {
	if from == to {
		return ""
	}
	const context = 3
	var out strings.Builder
	line := func(code, text string) {
		if !color {
			code = ""
		}
		out.WriteString(colored(code, text) + "\n")
	}
	marked := func(code, mark string, lines []string) {
		for _, text := range lines {
			line(code, mark+printable(text))
		}
	}
	line("1", "--- "+fromName)
	line("1", "+++ "+toName)
	a, b := lines(from), lines(to)
	for _, hunk := range difflib.NewMatcher(a, b).GetGroupedOpCodes(context) {
		first, last := hunk[0], hunk[len(hunk)-1]
		line("36", fmt.Sprintf("@@ -%s +%s @@", lineRange(first.I1, last.I2-first.I1), lineRange(first.J1, last.J2-first.J1)))
		for _, part := range hunk {
			if part.Tag == 'e' { // equal
				marked("", " ", a[part.I1:part.I2])
				continue
			}
			marked("31", "-", a[part.I1:part.I2])
			marked("32", "+", b[part.J1:part.J2])
		}
	}
	return out.String()
}

// lineRange returns a range of lines in the header of a hunk: before is the number of lines before it.
func lineRange(before, count int) string {
	switch count {
	case 0:
		return fmt.Sprintf("%d,0", before)
	case 1:
		return fmt.Sprint(before + 1)
	}
	return fmt.Sprintf("%d,%d", before+1, count)
}

// lines returns the lines of a text without their ends.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}
