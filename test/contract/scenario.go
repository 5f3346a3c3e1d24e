// Package contract replays requests whose responses were recorded from kube-apiserver 1.36, and compares the
// responses. A scenario is a list of steps in one namespace; a later step may refer to the responses to earlier ones.
// README.md has the results.
package contract

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// A Scenario is one line of a recorded file.
type Scenario struct {
	Name  string `json:"name"` // area/what
	Steps []Step `json:"steps"`
	// Namespace is false if the scenario needs no namespace of its own.
	Namespace *bool `json:"namespace"`

	// index is the scenario's position among all scenarios.
	index int
}

// A Step is one request and its expected response.
type Step struct {
	ID      string         `json:"id"`
	Do      string         `json:"do"` // METHOD path
	Body    any            `json:"body"`
	Raw     *string        `json:"raw"`
	Type    string         `json:"type"`
	Accept  string         `json:"accept"`
	As      string         `json:"as"`
	Groups  any            `json:"groups"`
	Headers map[string]any `json:"headers"`
	Wait    float64        `json:"wait"`
	Until   map[string]any `json:"until"`
	Compare string         `json:"compare"`
	Ignore  []string       `json:"ignore"`
	Expect  Answer         `json:"expect"`
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
	const longestLine = 16 << 20
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, longestLine)
	var out []*Scenario
	for lines.Scan() {
		d := json.NewDecoder(strings.NewReader(lines.Text()))
		d.UseNumber()
		s := &Scenario{}
		if err := d.Decode(s); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for i := range s.Steps {
			resort(s.Steps[i].Expect.Body)
		}
		out = append(out, s)
	}
	return out, lines.Err()
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
