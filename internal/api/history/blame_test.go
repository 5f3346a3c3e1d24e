package history

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
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
		"indexes to names": {[]string{"{l: [{name: x}]}", "!{l: [{v: 1}]}"}, ".l[name=x].name 0", 2},
		"names to indexes": {[]string{"{l: [{v: 1}, {v: 2}]}", "!{l: [{v: 1, name: x}]}"}, ".l[0].v 0 .l[1].v 0", 2},
		"longer list":      {[]string{"{l: [1, 2, null]}", "!{l: [1]}"}, ".l[0] 1 .l[1] 0 .l[2] 0", 2},
		"null":             {[]string{"{a: null, b: null}", "!{a: null}"}, ".a 1 .b 0", 2},
		"other kinds":      {[]string{"{a: 1, b: {c: 1}, d: [], e: {}}", "!{a: {c: 1}, b: 1, d: {}, e: {f: 1}}"}, ".a 0 .b.c 0 .d 0 .e 0", 2},
		"empty":            {[]string{"{a: {}, b: []}", "!{a: {}, b: []}"}, ".a 1 .b 1", 2},
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
			more, err := b.Add(object, change)
			if err != nil {
				t.Fatal(err)
			}
			if read++; !more {
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

// TestBlameManyLongPaths has an object of 1 MB with a long list below long names. The paths of all its fields
// would have 400 MiB for each version.
func TestBlameManyLongPaths(t *testing.T) {
	const items, levels = 400_000, 4
	version := func(first int) map[string]any {
		list := make([]any, items)
		for i := range list {
			list[i] = 0
		}
		list[0] = first
		object := map[string]any{"l": list}
		for range levels {
			object = map[string]any{strings.Repeat("a", maxName): object}
		}
		return object
	}
	versions := []map[string]any{version(2), version(1), version(1), version(1)}
	held := 0
	b := Blame{Hold: func(bytes int) error { held += bytes; return nil }}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i, v := range versions {
		if more, err := b.Add(v, &Change{Type: Updated, ResourceVersion: fmt.Sprint(i)}); !more || err != nil {
			t.Fatalf("version %d: %v, %v", i, more, err)
		}
	}
	answer := b.Answer(false)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 128<<20 {
		t.Errorf("%d MiB were allocated", took>>20)
	}
	kept := 0
	for _, f := range answer.Fields {
		kept += len(f.Path)
	}
	if n := len(answer.Fields); kept > maxBlamed || kept < maxBlamed*9/10 || n+answer.MoreFields != items {
		t.Errorf("%d fields with %d bytes of paths and %d more", n, kept, answer.MoreFields)
	}
	if held < kept || held > 4*kept {
		t.Errorf("%d bytes are held for paths of %d bytes", held, kept)
	}
	if f := answer.Fields; f[0].ResourceVersion != "0" || f[1].ResourceVersion != "" || len(answer.Changes) != 1 {
		t.Errorf("%q %q and %d changes", f[0].ResourceVersion, f[1].ResourceVersion, len(answer.Changes))
	}
	refused := errors.New("no memory")
	b = Blame{Hold: func(int) error { return refused }}
	if _, err := b.Add(versions[0], &Change{Type: Created}); !errors.Is(err, refused) {
		t.Errorf("without memory: %v", err)
	}
}
