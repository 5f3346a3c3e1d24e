package apiextensions

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// judged is a write of a definition and what kube-apiserver answered: the causes
// of its refusal, none if it accepted the write.
type judged struct {
	Name        string
	Object      json.RawMessage
	Old         json.RawMessage // what an update found; nil for a create
	Subresource string
	Causes      []string
	Warnings    []string // nil where they are not known
}

// TestCauses replays recorded writes, and writes made of those by changing them at
// random, which kube-apiserver's validation judged (generated.jsonl.gz), and some
// that were made for a single rule each (edges.jsonl.gz). Causes of metadata that
// the generic pipeline finds are left out.
func TestCauses(t *testing.T) {
	replay(t, "testdata/causes.jsonl.gz")
	replay(t, "testdata/generated.jsonl.gz")
	replay(t, "testdata/edges.jsonl.gz")
}

func replay(t *testing.T, file string) {
	for c := range readJudged(t, file) {
		t.Run(c.Name, func(t *testing.T) {
			errs, warnings := c.judge(t)
			var got []string
			for _, err := range errs {
				got = append(got, err.Field+": "+err.ErrorBody())
			}
			slices.Sort(got)
			want := slices.DeleteFunc(slices.Clone(c.Causes), isGeneric)
			if !slices.EqualFunc(got, want, sameCause) {
				t.Errorf("refused for\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
			}
			slices.Sort(warnings)
			if c.Warnings != nil && len(c.Causes) == 0 && !slices.Equal(warnings, c.formatWarnings(t)) {
				t.Errorf("warnings %q, want %q", warnings, c.formatWarnings(t))
			}
		})
	}
}

func isGeneric(cause string) bool {
	ours := []string{"metadata.annotations[api-approved.kubernetes.io]", "must be spec.names.plural"}
	return strings.HasPrefix(cause, "metadata.") &&
		!slices.ContainsFunc(ours, func(part string) bool { return strings.Contains(cause, part) })
}

// sameCause compares a cause with a recorded one, whose text is "*" where it has
// random parts.
func sameCause(got, want string) bool {
	place, any := strings.CutSuffix(want, ": *")
	return got == want || any && strings.HasPrefix(got, place+": ")
}

// judge does to the write what the generic pipeline does.
func (j judged) judge(t *testing.T) (field.ErrorList, []string) {
	ctx := context.Background()
	d := decodeDefinition(t, j.Object)
	if j.Old == nil {
		d.Status.StoredVersions, d.Status.Conditions = nil, nil
		d.Status.AcceptedNames = definition{}.Status.AcceptedNames
		recordStoredVersion(d)
		return validate(ctx, d, nil), newWarnings(unrecognizedFormats, d, nil)
	}
	old := decodeDefinition(t, j.Old)
	if j.Subresource == "status" {
		d.Spec = old.Spec
		return validateStatusUpdate(d, old), nil
	}
	d.Status = old.Status
	recordStoredVersion(d)
	return validateUpdate(ctx, d, old), newWarnings(unrecognizedFormats, d, old)
}

func decodeDefinition(t testing.TB, document []byte) *definition {
	d := &definition{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(document, d); err != nil {
		t.Fatal(err)
	}
	defaultDefinition(d)
	return d
}

func (j judged) formatWarnings(t *testing.T) []string {
	var out []string
	for _, w := range j.Warnings {
		text, err := strconv.Unquote(strings.TrimPrefix(w, "299 - "))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(text, "unrecognized format") {
			out = append(out, text)
		}
	}
	return out
}

func readJudged(t testing.TB, file string) func(yield func(judged) bool) {
	return func(yield func(judged) bool) {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		text, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(text)
		for {
			line, err := lines.ReadBytes('\n')
			if errors.Is(err, io.EOF) && len(line) == 0 {
				return
			}
			var c judged
			if err := json.Unmarshal(line, &c); err != nil {
				t.Fatal(err)
			}
			if !yield(c) {
				return
			}
		}
	}
}
