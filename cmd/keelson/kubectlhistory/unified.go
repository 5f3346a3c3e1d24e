package kubectlhistory

import (
	"fmt"
	"strings"
)

// edit is a line of a difference: kept in both texts (' '), only in the first (-), or only in the second (+).
type edit struct {
	op   byte
	line string
}

// edits returns the shortest difference between two lists of lines, by the algorithm of Myers: v[k] is how far in a a path
// with d changes comes on the diagonal k (x-y); trace keeps v for each d, and is followed backwards from the end.
//
// Example: from [a b c] to [a c d]: " a", "-b", " c", "+d".
//
// Texts with more than maxEdits different lines are shown as removed and added, because the memory grows with the square.
func edits(a, b []string) []edit {
	const maxEdits = 2000
	n, m := len(a), len(b)
	limit := n + m
	v := make([]int, 2*limit+2) // the diagonal k has the index k+limit
	var trace [][]int
	found := false
	for d := 0; d <= limit && !found; d++ {
		if d > maxEdits {
			return replaced(a, b)
		}
		// Only the diagonals from -d to d have been written.
		trace = append(trace, append([]int(nil), v[limit-d:limit+d+1]...))
		for k := -d; k <= d; k += 2 {
			x := 0
			if k == -d || k != d && v[limit+k-1] < v[limit+k+1] {
				x = v[limit+k+1]
			} else {
				x = v[limit+k-1] + 1
			}
			y := x - k
			for x < n && y < m && a[x] == b[y] {
				x, y = x+1, y+1
			}
			if v[limit+k] = x; x >= n && y >= m {
				found = true
				break
			}
		}
	}
	var out []edit
	x, y := n, m
	for d := len(trace) - 1; d >= 0; d-- {
		at := func(k int) int {
			if k < -d || k > d {
				return 0
			}
			return trace[d][k+d]
		}
		k := x - y
		previous := k - 1
		if k == -d || k != d && at(k-1) < at(k+1) {
			previous = k + 1
		}
		px := at(previous)
		py := px - previous
		if d == 0 {
			px, py = 0, 0
		}
		for x > px && y > py {
			x, y = x-1, y-1
			out = append(out, edit{' ', a[x]})
		}
		if d > 0 && x == px {
			y--
			out = append(out, edit{'+', b[y]})
		} else if d > 0 {
			x--
			out = append(out, edit{'-', a[x]})
		}
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// replaced returns the difference that removes all lines of a and adds all of b.
func replaced(a, b []string) (out []edit) {
	for _, line := range a {
		out = append(out, edit{'-', line})
	}
	for _, line := range b {
		out = append(out, edit{'+', line})
	}
	return out
}

// unified returns the unified difference between two texts with three lines of context, "" if they are equal. color marks the
// lines in colours.
func unified(fromName, toName, from, to string, color bool) string {
	if from == to {
		return ""
	}
	all := edits(lines(from), lines(to))
	const context = 3
	var out strings.Builder
	line := func(code, text string) {
		if !color {
			code = ""
		}
		out.WriteString(colored(code, text) + "\n")
	}
	line("1", "--- "+fromName)
	line("1", "+++ "+toName)
	fromLine, toLine := 0, 0 // lines before position
	position := 0
	for position < len(all) {
		next := position
		for next < len(all) && all[next].op == ' ' {
			next++
		}
		if next == len(all) {
			break
		}
		begin := max(position, next-context)
		fromLine, toLine = fromLine+begin-position, toLine+begin-position
		// The hunk ends where more than twice the context is unchanged.
		end := next
		for i, kept := next, 0; i < len(all) && kept <= 2*context; i++ {
			if kept++; all[i].op != ' ' {
				kept, end = 0, i+1
			}
		}
		end = min(len(all), end+context)
		fromCount, toCount := 0, 0
		for _, e := range all[begin:end] {
			if e.op != '+' {
				fromCount++
			}
			if e.op != '-' {
				toCount++
			}
		}
		line("36", fmt.Sprintf("@@ -%s +%s @@", lineRange(fromLine, fromCount), lineRange(toLine, toCount)))
		for _, e := range all[begin:end] {
			code := map[byte]string{'-': "31", '+': "32"}[e.op]
			line(code, string(e.op)+printable(e.line))
		}
		fromLine, toLine, position = fromLine+fromCount, toLine+toCount, end
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
