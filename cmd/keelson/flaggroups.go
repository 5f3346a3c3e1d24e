package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// keelsonGroup has the flags that kube-apiserver does not have.
const keelsonGroup = "Keelson"

// flagGroup is a group of flags in the help.
type flagGroup struct {
	title string
	flags *pflag.FlagSet
}

// groupFlags returns the flags by group, in the order of the help.
func groupFlags(f *pflag.FlagSet) []flagGroup {
	titles, texts := parseFlagTexts()
	of, groups := map[string]int{}, make([]flagGroup, len(titles))
	for i, title := range titles {
		groups[i] = flagGroup{title, pflag.NewFlagSet(title, pflag.ContinueOnError)}
	}
	for _, text := range texts {
		of[text.name] = slices.Index(titles, text.group)
	}
	f.VisitAll(func(flag *pflag.Flag) {
		i, found := of[flag.Name]
		if !found {
			i = slices.Index(titles, keelsonGroup)
		}
		groups[i].flags.AddFlag(flag)
	})
	return groups
}

// nearest returns the name that is most similar to an unknown one, "" if none is similar enough.
func nearest(name string, names []string) string {
	best, least := "", len(name)/3+1
	for _, candidate := range names {
		d := distance(name, candidate)
		if len(name) > 3 && strings.HasPrefix(candidate, name) {
			d = min(d, 1)
		}
		if d < least {
			best, least = candidate, d
		}
	}
	return best
}

// distance returns the least number of edits that turn a into b: a character is inserted, removed or replaced, or
// two neighbours are exchanged.
func distance(a, b string) int {
	// row[j] is the distance between the first i+1 characters of a and b[:j]; before and earlier are the rows
	// before it.
	earlier, before, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		earlier, before, row = before, row, earlier
		row[0] = i + 1
		for j := range len(b) {
			replaced := before[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, before[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], earlier[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
