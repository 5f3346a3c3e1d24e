package kubectlhistory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/api/history"
)

func TestBlame(t *testing.T) {
	for name, c := range map[string]struct {
		versions []string // the newest first; a leading ! is a creation
		want     string   // the fields with the number of their version, 0 being the newest
		read     int      // how many versions are read
	}{
		"created only":     {[]string{"!{a: 1, b: {c: 2}}"}, ".a 0 .b.c 0", 1},
		"two changes":      {[]string{"{a: 1, b: 2}", "{a: 1, b: 1}", "!{a: 0, b: 1}"}, ".a 1 .b 0", 3},
		"added later":      {[]string{"{a: 1, b: 2}", "{a: 1, b: 2}", "!{a: 1}"}, ".a 2 .b 1", 3},
		"there and back":   {[]string{"{a: 1}", "{a: 2}", "!{a: 1}"}, ".a 0", 2},
		"older":            {[]string{"{a: 1, b: 2}", "{a: 1, b: 1}"}, ".a ? .b 0", 2},
		"items by name":    {[]string{"{l: [{name: two}, {name: one}]}", "!{l: [{name: one}]}"}, ".l[name=one].name 1 .l[name=two].name 0", 2},
		"all have changed": {[]string{"{a: 2}", "{a: 1}", "!{a: 0}"}, ".a 0", 2},
	} {
		var b *blame
		read := 0
		for i, text := range c.versions {
			text, created := strings.CutPrefix(text, "!")
			change := &history.Change{Type: history.Updated, ResourceVersion: fmt.Sprint(i)}
			if created {
				change.Type = history.Created
			}
			more := false
			if o := parse(t, text).Object; b == nil {
				b = newBlame(o, change)
				more = b.open > 0
			} else {
				more = b.add(o, change)
			}
			if read++; !more {
				break
			}
		}
		var got []string
		for _, f := range b.fields {
			version := "?"
			if f.change != nil {
				version = f.change.ResourceVersion
			}
			got = append(got, f.Path+" "+version)
		}
		if strings.Join(got, " ") != c.want || read != c.read {
			t.Errorf("%s: %s, %d read, want %s, %d", name, got, read, c.want, c.read)
		}
	}
}

func TestValueText(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{{"a b", "a b"}, {"", `""`}, {int64(1), "1"}, {[]any{}, "[]"}, {nil, "null"}, {strings.Repeat("x", 70), strings.Repeat("x", 60) + "..."}} {
		if got := valueText(c.value); got != c.want {
			t.Errorf("%v: %s", c.value, got)
		}
	}
}
