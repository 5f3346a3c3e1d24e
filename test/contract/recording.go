package contract

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The folder of a recording has these files beside those of the scenarios, AREA.jsonl.gz, which have the answers of the
// newest minor.
const (
	newestFile = "newest.txt" // the newest minor, as 1.37
	// olderFolder has a file MINOR.jsonl.gz for each earlier minor, with the steps whose answers differ from those of the
	// minor after it.
	olderFolder = "older"
	suffix      = ".jsonl.gz"
)

// A Recording has the answers of one or more minors of Kubernetes to the same scenarios.
type Recording struct {
	files  []recordedFile // sorted by name
	minors []string       // newest first; at least one
	// answers are complete for each minor: they have every step that is compared and was answered. A step has several
	// answers if kube-apiserver did not answer equally whenever it was recorded.
	answers map[string]map[place][]Answer
}

// recordedFile is a file of scenarios. Their expected answers are not used; Recording.answers has those.
type recordedFile struct {
	name      string
	scenarios []*Scenario
}

// A place is a step of all scenarios.
type place struct {
	scenario string
	step     int
}

// differingStep is a line of a file of an earlier minor.
type differingStep struct {
	Scenario string   `json:"scenario"`
	Step     int      `json:"step"`
	Expect   Answer   `json:"expect"`
	Also     []Answer `json:"also,omitempty"`
}

// ReadRecording reads the recording in dir. It fails if two scenarios have the same name.
func ReadRecording(dir string) (*Recording, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no recordings in %s", dir)
	}
	newest, err := os.ReadFile(filepath.Join(dir, newestFile))
	if err != nil {
		return nil, err
	}
	r := &Recording{minors: []string{strings.TrimSpace(string(newest))}, answers: map[string]map[place][]Answer{}}
	if _, err := minorNumber(r.Newest()); err != nil {
		return nil, fmt.Errorf("%s: %w", newestFile, err)
	}
	base := map[place][]Answer{}
	r.answers[r.Newest()] = base
	for _, path := range paths {
		scenarios, err := readScenarios(path)
		if err != nil {
			return nil, err
		}
		if err := r.add(filepath.Base(path), scenarios); err != nil {
			return nil, err
		}
		for _, s := range scenarios {
			for i := range s.Steps {
				if st := &s.Steps[i]; st.mode() != compareNone && st.Expect.Status != 0 {
					base[place{s.Name, i}] = st.expected()
				}
			}
		}
	}
	return r, r.readOlder(dir)
}

// add adds scenarios to a file, which need not exist.
func (r *Recording) add(file string, scenarios []*Scenario) error {
	names := map[string]bool{}
	for _, s := range r.all() {
		names[s.Name] = true
	}
	for _, s := range scenarios {
		if names[s.Name] {
			return fmt.Errorf("%s is there twice", s.Name)
		}
		names[s.Name] = true
	}
	for i := range r.files {
		if r.files[i].name == file {
			r.files[i].scenarios = append(r.files[i].scenarios, scenarios...)
			return nil
		}
	}
	r.files = append(r.files, recordedFile{file, scenarios})
	slices.SortFunc(r.files, func(a, b recordedFile) int { return cmp.Compare(a.name, b.name) })
	return nil
}

// all returns the scenarios of all files, in order.
func (r *Recording) all() (out []*Scenario) {
	for _, f := range r.files {
		out = append(out, f.scenarios...)
	}
	return out
}

// readOlder reads the answers of the earlier minors, the newest of them first.
func (r *Recording) readOlder(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, olderFolder, "*"+suffix))
	if err != nil {
		return err
	}
	steps := map[place]*Step{}
	for _, s := range r.all() {
		for i := range s.Steps {
			steps[place{s.Name, i}] = &s.Steps[i]
		}
	}
	for _, path := range paths {
		minor := strings.TrimSuffix(filepath.Base(path), suffix)
		if _, err := minorNumber(minor); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if compareMinors(minor, r.Newest()) >= 0 {
			return fmt.Errorf("%s is not earlier than the newest minor, %s", path, r.Newest())
		}
		r.minors = append(r.minors, minor)
	}
	slices.SortFunc(r.minors, func(a, b string) int { return compareMinors(b, a) })
	for i, minor := range r.minors[1:] {
		r.answers[minor] = maps.Clone(r.answers[r.minors[i]]) // i is the position of the minor after it
		path := filepath.Join(dir, olderFolder, minor+suffix)
		err := readLines(path, func(d *json.Decoder) error {
			var s differingStep
			if err := d.Decode(&s); err != nil {
				return err
			}
			at := place{s.Scenario, s.Step}
			if st := steps[at]; st == nil || st.mode() == compareNone {
				return fmt.Errorf("there is no step %d of %s, or it is not compared", s.Step, s.Scenario)
			}
			r.answers[minor][at] = append([]Answer{s.Expect}, s.Also...)
			for _, a := range r.answers[minor][at] {
				resort(a.Body)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// minorNumber returns the number after the point of a minor such as 1.37.
func minorNumber(minor string) (int, error) {
	number, ok := strings.CutPrefix(minor, "1.")
	n, err := strconv.Atoi(number)
	if !ok || err != nil {
		return 0, fmt.Errorf("%q is no minor of Kubernetes, as 1.37", minor)
	}
	return n, nil
}

// compareMinors compares two minors that are valid.
func compareMinors(a, b string) int {
	x, _ := minorNumber(a) // valid
	y, _ := minorNumber(b) // valid
	return cmp.Compare(x, y)
}

// Newest returns the newest minor.
func (r *Recording) Newest() string { return r.minors[0] }

// Minors returns the minors of which there are answers, newest first. The caller must not change it.
func (r *Recording) Minors() []string { return r.minors }

// Scenarios returns copies of all scenarios with the answers of a minor. It fails if there are none of that minor.
func (r *Recording) Scenarios(minor string) ([]*Scenario, error) {
	answers, ok := r.answers[minor]
	if !ok {
		return nil, fmt.Errorf("there are no answers of %s, only of %s", minor, strings.Join(r.minors, ", "))
	}
	return r.withAnswers(answers), nil
}

// Requests returns copies of all scenarios without answers.
func (r *Recording) Requests() []*Scenario { return r.withAnswers(nil) }

func (r *Recording) withAnswers(answers map[place][]Answer) []*Scenario {
	var out []*Scenario
	for i, s := range r.all() {
		c := *s
		c.index, c.Steps = i, slices.Clone(s.Steps)
		for j := range c.Steps {
			c.Steps[j].Expect, c.Steps[j].Also = Answer{}, nil
			if all := answers[place{s.Name, j}]; len(all) > 0 {
				c.Steps[j].Expect, c.Steps[j].Also = all[0], all[1:]
			}
		}
		out = append(out, &c)
	}
	return out
}

// Differing returns the names of the scenarios that an earlier minor answers otherwise than the minor after it.
func (r *Recording) Differing(minor string) map[string]bool {
	out := map[string]bool{}
	for _, s := range r.differences(minor) {
		out[s.Scenario] = true
	}
	return out
}

// DifferingSteps returns the number of steps that an earlier minor answers otherwise than the minor after it.
func (r *Recording) DifferingSteps(minor string) int { return len(r.differences(minor)) }

// differences returns the steps of an earlier minor whose answers differ from those of the minor after it, in the
// order of the scenarios.
func (r *Recording) differences(minor string) (out []differingStep) {
	i := slices.Index(r.minors, minor)
	if i < 1 {
		return nil
	}
	older, newer := r.answers[minor], r.answers[r.minors[i-1]]
	for _, s := range r.all() {
		for j := range s.Steps {
			at := place{s.Name, j}
			if all := older[at]; len(all) > 0 && !overlap(s.Steps[j].mode(), newer[at], all) {
				out = append(out, differingStep{s.Name, j, all[0], all[1:]})
			}
		}
	}
	return out
}

// AddScenarios reads scenarios without answers from a file NAME.jsonl, one a line, and adds them to the file
// NAME.jsonl.gz. A scenario whose name is there already is an error.
func (r *Recording) AddScenarios(path string) error {
	name, ok := strings.CutSuffix(filepath.Base(path), ".jsonl")
	if !ok {
		return fmt.Errorf("the name of %s does not end in .jsonl", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	scenarios, err := decodeScenarios(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return r.add(name+suffix, scenarios)
}

// Put makes the answers in passes the answers of a minor. Each pass has the results of all scenarios, passes[i][j] those of
// scenarios[j]; passes must be made on servers without data of other passes. Answers of scenarios that are not among them
// stay. It fails, and changes nothing, if a request of a scenario failed. It returns the steps that were not answered
// equally in all passes, as SCENARIO[STEP].
func (r *Recording) Put(minor string, scenarios []*Scenario, passes ...[][]StepResult) (unequal []string, err error) {
	if _, err := minorNumber(minor); err != nil {
		return nil, err
	}
	if err := failedRequests(scenarios, passes); err != nil {
		return nil, err
	}
	if r.answers[minor] == nil {
		r.minors = append(r.minors, minor)
		slices.SortFunc(r.minors, func(a, b string) int { return compareMinors(b, a) })
		near := r.minors[max(0, slices.Index(r.minors, minor)-1)]
		if near == minor { // the newest
			near = r.minors[1]
		}
		r.answers[minor] = maps.Clone(r.answers[near])
	}
	for i, s := range scenarios {
		for j := range s.Steps {
			delete(r.answers[minor], place{s.Name, j})
		}
		for _, results := range passes {
			for j := range results[i] {
				r.putAnswer(minor, place{s.Name, results[i][j].index}, &results[i][j])
			}
		}
		for j := range s.Steps {
			at := place{s.Name, j}
			if len(r.answers[minor][at]) > 1 {
				unequal = append(unequal, fmt.Sprintf("%s[%d]", s.Name, j))
			}
			r.share(minor, at, s.Steps[j].mode())
		}
	}
	return unequal, nil
}

// failedRequests returns an error with all requests that got no answer.
func failedRequests(scenarios []*Scenario, passes [][][]StepResult) error {
	var failed []error
	for _, results := range passes {
		for i, s := range scenarios {
			for j := range results[i] {
				if res := &results[i][j]; res.err != nil {
					failed = append(failed, fmt.Errorf("%s[%d] %s: %w", s.Name, res.index, res.step.Do, res.err))
				}
			}
		}
	}
	return errors.Join(failed...)
}

// putAnswer adds the answer in a result, unless the step has it already.
func (r *Recording) putAnswer(minor string, at place, result *StepResult) {
	answer := result.got
	if result.step.mode() == compareStatus {
		answer = Answer{Status: answer.Status}
	}
	all := r.answers[minor][at]
	if !contains(result.step.mode(), all, answer) {
		r.answers[minor][at] = append(slices.Clip(all), answer)
	}
}

// share gives a step the answers that other minors have for it too, if they have one in common: what a server answers
// then depends on time, not on the minor.
func (r *Recording) share(minor string, at place, mode string) {
	all := r.answers[minor][at]
	for _, other := range r.minors {
		theirs := r.answers[other][at]
		if other == minor || len(all) == 1 && len(theirs) == 1 || !overlap(mode, all, theirs) {
			continue
		}
		for _, a := range theirs {
			if !contains(mode, all, a) {
				all = append(slices.Clip(all), a)
			}
		}
	}
	for _, other := range r.minors {
		if overlap(mode, all, r.answers[other][at]) {
			r.answers[other][at] = all
		}
	}
}

func contains(mode string, all []Answer, a Answer) bool {
	if len(all) == 0 {
		return false
	}
	code, ds := compareAny(mode, all, a)
	return code && len(ds) == 0
}

// overlap reports whether two lists have an answer in common.
func overlap(mode string, a, b []Answer) bool {
	return slices.ContainsFunc(b, func(x Answer) bool { return contains(mode, a, x) })
}

// Write writes the recording to dir, which need not exist. The same recording is always written as the same bytes.
func (r *Recording) Write(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, olderFolder), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, newestFile), []byte(r.Newest()+"\n"), 0o644); err != nil {
		return err
	}
	scenarios := r.withAnswers(r.answers[r.Newest()])
	for _, f := range r.files {
		n := len(f.scenarios)
		if err := writeLines(filepath.Join(dir, f.name), scenarios[:n]); err != nil {
			return err
		}
		scenarios = scenarios[n:]
	}
	for _, minor := range r.minors[1:] {
		if err := writeLines(filepath.Join(dir, olderFolder, minor+suffix), r.differences(minor)); err != nil {
			return err
		}
	}
	return nil
}

// writeLines writes values as JSON, one a line, compressed.
func writeLines[T any](path string, values []T) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, v := range values {
		if err := e.Encode(v); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return writeCompressed(path, b.Bytes())
}

func writeCompressed(path string, content []byte) error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(content); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// readLines calls f with a decoder for each line of a compressed file.
func readLines(path string, f func(*json.Decoder) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := eachLine(z, f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func eachLine(r io.Reader, f func(*json.Decoder) error) error {
	const longestLine = 16 << 20
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		d := json.NewDecoder(strings.NewReader(lines.Text()))
		d.UseNumber()
		if err := f(d); err != nil {
			return err
		}
	}
	return lines.Err()
}

// Select returns the scenarios whose names match a regular expression.
func Select(scenarios []*Scenario, pattern *regexp.Regexp) (out []*Scenario) {
	for _, s := range scenarios {
		if pattern.MatchString(s.Name) {
			out = append(out, s)
		}
	}
	return out
}
