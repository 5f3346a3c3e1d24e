package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// These placeholders replace values that differ between two runs.
var (
	uuidPattern      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	timePattern      = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	ipPattern        = regexp.MustCompile(`\b10\.0\.\d{1,3}\.\d{1,3}\b`)
	versionPattern   = regexp.MustCompile(`("resourceVersion\\*":\\*")\d+(\\*")`)
	apiAccessPattern = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}\b`)
	revisionPattern  = regexp.MustCompile(`\brevision=\d+\b`)
	nodePortPattern  = regexp.MustCompile(`\b3[012]\d{3}\b`)
	agePattern       = regexp.MustCompile(`^(\d+[smhdy])+$|^<invalid>$`)
	agoPattern       = regexp.MustCompile(`\b(\d+[smhdy])+ ago\b`)
)

// normalize returns v without the values that differ between two runs; ns is the scenario's namespace. Causes of a
// Status are sorted, and if there are several, its message is replaced by their number: kube-apiserver's order is
// arbitrary.
func normalize(v any, ns string) any {
	switch x := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(x))
		generateName, _ := x["generateName"].(string)
		for k, e := range x {
			if known, ok := placeholder(k, e, generateName); ok {
				out[k] = known
			} else if k == "cells" {
				out[k] = normalizeCells(normalize(e, ns))
			} else {
				out[normalizeString(k, ns)] = normalize(e, ns)
			}
		}
		sortCauses(out)
		return out
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = normalize(e, ns)
		}
		return out
	case string:
		return normalizeString(x, ns)
	}
	return v
}

// placeholder replaces values by the names of their members.
func placeholder(key string, v any, generateName string) (any, bool) {
	s, isString := v.(string)
	n, isNumber := v.(json.Number)
	switch key {
	case "uid", "resourceVersion":
		if isString && s != "" || isNumber && isInteger(n) && n != "0" {
			return "<" + key + ">", true
		}
		return v, isString || isNumber && isInteger(n)
	case "creationTimestamp", "deletionTimestamp", "time":
		return "<time>", isString
	case "continue":
		return "<continue>", isString && s != ""
	case "nodePort", "healthCheckNodePort":
		return "<nodeport>", isNumber && isInteger(n) && n != "0"
	case "name":
		return generateName + "<rand>", isString && generateName != "" && strings.HasPrefix(s, generateName)
	}
	return nil, false
}

func normalizeString(s, ns string) string {
	if ns != "" {
		s = strings.ReplaceAll(s, ns, "${ns}")
	}
	s = uuidPattern.ReplaceAllString(s, "<uid>")
	s = timePattern.ReplaceAllString(s, "<time>")
	s = ipPattern.ReplaceAllString(s, "<ip>")
	s = apiAccessPattern.ReplaceAllString(s, "kube-api-access-<rand>")
	s = versionPattern.ReplaceAllString(s, "${1}<resourceVersion>${2}")
	s = revisionPattern.ReplaceAllString(s, "revision=<revision>")
	return nodePortPattern.ReplaceAllString(s, "<nodeport>")
}

// normalizeCells replaces the ages in the cells of a table row.
func normalizeCells(v any) any {
	cells, ok := v.([]any)
	if !ok {
		return v
	}
	for i, c := range cells {
		if s, ok := c.(string); ok {
			if agePattern.MatchString(s) {
				s = "<age>"
			}
			cells[i] = agoPattern.ReplaceAllString(s, "<age> ago")
		}
	}
	return cells
}

func sortCauses(status map[string]any) {
	details, _ := status["details"].(map[string]any)
	causes, ok := details["causes"].([]any)
	if status["kind"] != "Status" || !ok {
		return
	}
	slices.SortStableFunc(causes, func(a, b any) int { return bytes.Compare(appendJSON(nil, a), appendJSON(nil, b)) })
	if len(causes) > 1 {
		status["message"] = fmt.Sprintf("<%d causes>", len(causes))
	}
}

// drop removes the members at a dotted path, also in the elements of lists.
func drop(v any, path []string) {
	switch x := v.(type) {
	case []any:
		for _, e := range x {
			drop(e, path)
		}
	case map[string]any:
		if len(path) == 1 {
			delete(x, path[0])
		} else if e, ok := x[path[0]]; ok {
			drop(e, path[1:])
		}
	}
}

// absentType is the type of a value that cannot come from JSON.
type absentType struct{}

var absent any = absentType{}

// A difference is a place in which a response is not as expected.
type difference struct {
	path      string
	want, got any
}

func (d difference) String() string {
	want, got := fromDifference(text(d.want), text(d.got))
	return fmt.Sprintf("%s: want %s got %s", d.path, shorten(want), shorten(got))
}

// fromDifference removes most of the common beginning of two texts.
func fromDifference(a, b string) (string, string) {
	const kept = 80
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	if same <= kept {
		return a, b
	}
	return "..." + a[same-kept:], "..." + b[same-kept:]
}

// shorten shortens a text for the output of a test.
func shorten(s string) string {
	const most = 300
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// diff returns the places in which got differs from want. Lists of different lengths are one difference; integers and
// fractions are different types.
func diff(path string, want, got any) []difference {
	here := []difference{{path, want, got}}
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return here
		}
		return diffObjects(path, w, g)
	case []any:
		g, ok := got.([]any)
		if !ok {
			return here
		}
		if len(w) != len(g) {
			return []difference{{path + "[]", want, got}}
		}
		var out []difference
		for i := range w {
			out = append(out, diff(fmt.Sprintf("%s[%d]", path, i), w[i], g[i])...)
		}
		return out
	case json.Number:
		if g, ok := got.(json.Number); ok && sameNumber(w, g) {
			return nil
		}
		return here
	}
	switch got.(type) {
	case map[string]any, []any:
		return here
	}
	if want == got {
		return nil
	}
	return here
}

func diffObjects(path string, want, got map[string]any) []difference {
	keys := maps.Clone(want)
	maps.Copy(keys, got)
	var out []difference
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		at := path + "." + k
		w, inWant := want[k]
		g, inGot := got[k]
		switch {
		case !inWant:
			out = append(out, difference{at, absent, g})
		case !inGot:
			out = append(out, difference{at, w, absent})
		default:
			out = append(out, diff(at, w, g)...)
		}
	}
	return out
}

// isZero reports whether a number is the integer 0 or -0.
func isZero(n json.Number) bool { return n == "0" || n == "-0" }

func sameNumber(a, b json.Number) bool {
	if a == b || isZero(a) && isZero(b) {
		return true
	}
	if isInteger(a) || isInteger(b) {
		return false
	}
	x, errX := a.Float64()
	y, errY := b.Float64()
	return errX == nil && errY == nil && x == y
}

// An Answer is a normalized response.
type Answer struct {
	Status     int      `json:"status"`
	Type       string   `json:"type,omitempty"`
	Body       any      `json:"body,omitempty"`
	Warning    []string `json:"warning,omitempty"`
	RetryAfter string   `json:"retryAfter,omitempty"`
}

// These are the modes of comparison.
const (
	compareFull   = "full"
	compareStatus = "status"
	compareNone   = "none"
)

// compare compares a response with the expected one. code is whether the status is right; if it is not, no other
// differences are returned.
func compare(mode string, want, got Answer) (code bool, ds []difference) {
	if want.Status != got.Status {
		return false, nil
	}
	if mode == compareStatus {
		return true, nil
	}
	ds = diff("", want.Body, got.Body)
	if mode != compareFull {
		return true, ds
	}
	if w, g := mediaType(want.Type), mediaType(got.Type); w != g {
		ds = append(ds, difference{"content-type", want.Type, got.Type})
	}
	if !slices.Equal(want.Warning, got.Warning) {
		ds = append(ds, difference{"warning", list(want.Warning), list(got.Warning)})
	}
	if want.RetryAfter != got.RetryAfter {
		ds = append(ds, difference{"retryAfter", want.RetryAfter, got.RetryAfter})
	}
	return true, ds
}

// compareAny compares a response with the expected ones, of which there is at least one. If it is none of them, the
// differences are those from the first.
func compareAny(mode string, want []Answer, got Answer) (code bool, ds []difference) {
	for _, w := range want[1:] {
		if code, ds := compare(mode, w, got); code && len(ds) == 0 {
			return code, ds
		}
	}
	return compare(mode, want[0], got)
}

func mediaType(contentType string) string {
	t, _, _ := strings.Cut(contentType, ";")
	return t
}

func list(texts []string) any {
	out := make([]any, len(texts))
	for i, s := range texts {
		out[i] = s
	}
	return out
}
