package history

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
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
		var b Blame
		read := 0
		for i, text := range c.versions {
			text, created := strings.CutPrefix(text, "!")
			change := &Change{Type: Updated, ResourceVersion: fmt.Sprint(i)}
			if created {
				change.Type = Created
			}
			var object map[string]any
			if err := yaml.Unmarshal([]byte(text), &object); err != nil {
				t.Fatal(err)
			}
			if read++; !b.Add(object, change) {
				break
			}
		}
		var got []string
		answer := b.Answer(false)
		known := map[string]bool{"": true}
		for _, c := range answer.Changes {
			known[c.ResourceVersion] = true
		}
		for _, f := range answer.Fields {
			got = append(got, f.Path+" "+cmp.Or(f.ResourceVersion, "?"))
			if !known[f.ResourceVersion] {
				t.Errorf("%s: the answer lacks the change %s", name, f.ResourceVersion)
			}
		}
		if len(answer.Changes) > 1 && answer.Changes[0].ResourceVersion > answer.Changes[1].ResourceVersion {
			t.Errorf("%s: the newest change is not the first one", name)
		}
		if strings.Join(got, " ") != c.want || read != c.read {
			t.Errorf("%s: %s, %d read, want %s, %d", name, got, read, c.want, c.read)
		}
	}
}
