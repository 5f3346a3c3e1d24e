// Package contract replays requests whose responses were recorded from kube-apiserver, and compares the responses.
// A scenario is a list of steps in one namespace; a later step may refer to the responses to earlier ones.
// README.md has the results.
package contract

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// A Scenario is one line of a recorded file.
type Scenario struct {
	Name string `json:"name"` // area/what
	// Namespace is false if the scenario needs no namespace of its own.
	Namespace *bool  `json:"namespace,omitempty"`
	Steps     []Step `json:"steps"`

	// index is the scenario's position among all scenarios.
	index int
}

// A Step is one request and its expected response.
type Step struct {
	ID      string         `json:"id,omitempty"`
	Do      string         `json:"do"` // METHOD path
	Body    any            `json:"body,omitempty"`
	Raw     *string        `json:"raw,omitempty"`
	Type    string         `json:"type,omitempty"`
	Accept  string         `json:"accept,omitempty"`
	As      string         `json:"as,omitempty"`
	Groups  any            `json:"groups,omitempty"`
	Headers map[string]any `json:"headers,omitempty"`
	Wait    float64        `json:"wait,omitempty"`
	Until   map[string]any `json:"until,omitempty"`
	Compare string         `json:"compare,omitempty"`
	Ignore  []string       `json:"ignore,omitempty"`
	Note    string         `json:"note,omitempty"` // for readers
	Expect  Answer         `json:"expect,omitzero"`
	// Also has other responses that are right, if kube-apiserver did not respond equally whenever it was recorded.
	Also []Answer `json:"also,omitempty"`
}

// expected returns all responses that are right.
func (s *Step) expected() []Answer { return append([]Answer{s.Expect}, s.Also...) }

// mode returns how the response is compared.
func (s *Step) mode() string {
	if s.Compare == "" {
		return compareFull
	}
	return s.Compare
}

// area is the first part of a scenario's name.
func (s *Scenario) area() string {
	a, _, _ := strings.Cut(s.Name, "/")
	return a
}

func (s *Scenario) namespaced() bool { return s.Namespace == nil || *s.Namespace }

// waits reports whether the scenario contains a step that waits for some time.
func (s *Scenario) waits() bool {
	for i := range s.Steps {
		if st := &s.Steps[i]; st.Wait > 0 || st.Until != nil || strings.Contains(st.Do, "timeoutSeconds=") {
			return true
		}
	}
	return false
}

// readScenarios reads a file of recorded scenarios.
func readScenarios(path string) ([]*Scenario, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	out, err := decodeScenarios(z)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}

// decodeScenarios reads scenarios, one a line.
func decodeScenarios(r io.Reader) (out []*Scenario, err error) {
	err = eachLine(r, func(d *json.Decoder) error {
		s := &Scenario{}
		if err := d.Decode(s); err != nil {
			return err
		}
		for i := range s.Steps {
			for _, a := range s.Steps[i].expected() {
				resort(a.Body)
			}
		}
		out = append(out, s)
		return nil
	})
	return out, err
}

// resort sorts the causes of a recorded response in the same way as normalize. A message that is not compared stays
// absent.
func resort(v any) {
	switch x := v.(type) {
	case map[string]any:
		for _, e := range x {
			resort(e)
		}
		_, compared := x["message"]
		sortCauses(x)
		if !compared {
			delete(x, "message")
		}
	case []any:
		for _, e := range x {
			resort(e)
		}
	}
}

// An environment has the values that a step may refer to: ${ns} and the responses so far.
type environment map[string]any

var reference = regexp.MustCompile(`\$\{([^}]+)\}`)

func (env environment) value(name string) any {
	if v, ok := env[name]; ok {
		switch v.(type) {
		case map[string]any, []any:
		default:
			return v
		}
	}
	step, path, _ := strings.Cut(name, ".")
	if v, ok := env[step]; ok && path != "" {
		return lookup(v, path)
	}
	return nil
}

// expand replaces references in v. A string that is one reference becomes the value that it refers to; unknown
// references stay.
func (env environment) expand(v any) any {
	switch x := v.(type) {
	case string:
		if m := reference.FindStringSubmatch(x); m != nil && m[0] == x {
			if value := env.value(m[1]); value != nil {
				return value
			}
			return x
		}
		return env.text(x)
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, e := range x {
			out[env.text(k)] = env.expand(e)
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = env.expand(e)
		}
		return out
	}
	return v
}

func (env environment) text(s string) string {
	return reference.ReplaceAllStringFunc(s, func(ref string) string {
		switch v := env.value(ref[2 : len(ref)-1]).(type) {
		case nil:
			return ref
		case string:
			return v
		default:
			return string(appendJSON(nil, v))
		}
	})
}
