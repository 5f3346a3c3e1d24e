package contract

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// answered returns the result of each step of a scenario with these statuses, whose bodies are the texts.
func answered(s *Scenario, texts ...string) []StepResult {
	var out []StepResult
	for i, body := range texts {
		out = append(out, StepResult{index: i, step: &s.Steps[i], got: Answer{Status: 200, Type: "application/json", Body: body}})
	}
	return out
}

// newRecording writes a recording of 1.37 with a scenario of two steps, and reads it.
func newRecording(t *testing.T) (*Recording, string) {
	t.Helper()
	dir := t.TempDir()
	line := `{"name":"a/b","namespace":false,"steps":[` +
		`{"do":"GET /a","note":"n","expect":{"status":200,"type":"application/json","body":"one"}},` +
		`{"do":"POST /b","body":{"x":1.50,"html":"<&>"},"compare":"status","expect":{"status":200}},` +
		`{"do":"GET /c","compare":"none"}]}`
	if err := writeCompressed(filepath.Join(dir, "a.jsonl.gz"), []byte(line+"\n")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, newestFile), []byte("1.37\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := ReadRecording(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r, dir
}

// put adds the answers of a minor to the two steps that are compared.
func put(t *testing.T, r *Recording, minor string, texts ...string) {
	t.Helper()
	scenarios := r.Requests()
	if _, err := r.Put(minor, scenarios, [][]StepResult{answered(scenarios[0], texts...)}); err != nil {
		t.Fatal(err)
	}
}

// body returns the recorded body of the first step.
func body(t *testing.T, r *Recording, minor string) any {
	t.Helper()
	scenarios, err := r.Scenarios(minor)
	if err != nil {
		t.Fatal(err)
	}
	return scenarios[0].Steps[0].Expect.Body
}

func reread(t *testing.T, r *Recording) (*Recording, string) {
	t.Helper()
	dir := t.TempDir()
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	again, err := ReadRecording(dir)
	if err != nil {
		t.Fatal(err)
	}
	return again, dir
}

// TestOlderMinorKeepsDifferences records 1.36 and 1.35 below 1.37: each file has only what differs from the minor after
// it, and what is read has all answers.
func TestOlderMinorKeepsDifferences(t *testing.T) {
	r, _ := newRecording(t)
	put(t, r, "1.35", "zero", "x")
	put(t, r, "1.36", "zero", "y")
	r, dir := reread(t, r)
	if got := strings.Join(r.Minors(), " "); got != "1.37 1.36 1.35" {
		t.Errorf("minors %s", got)
	}
	for minor, want := range map[string]string{"1.37": "one", "1.36": "zero", "1.35": "zero"} {
		if got := body(t, r, minor); got != want {
			t.Errorf("%s has %v, want %s", minor, got, want)
		}
	}
	// The second step compares only the status.
	if n, m := r.DifferingSteps("1.36"), r.DifferingSteps("1.35"); n != 1 || m != 0 {
		t.Errorf("%d steps of 1.36 and %d of 1.35 differ, want 1 and 0", n, m)
	}
	if !r.Differing("1.36")["a/b"] {
		t.Error("no scenario of 1.36 differs")
	}
	if _, err := r.Scenarios("1.34"); err == nil {
		t.Error("there are answers of 1.34")
	}
	if _, err := os.Stat(filepath.Join(dir, olderFolder, "1.35.jsonl.gz")); err != nil {
		t.Error(err)
	}
}

// TestNewerMinorBecomesBase records 1.38 above 1.37: its answers are the base, and of 1.37 the differences stay.
func TestNewerMinorBecomesBase(t *testing.T) {
	r, _ := newRecording(t)
	put(t, r, "1.36", "zero", "y")
	put(t, r, "1.38", "two", "y")
	r, _ = reread(t, r)
	if r.Newest() != "1.38" {
		t.Errorf("the newest minor is %s", r.Newest())
	}
	for minor, want := range map[string]string{"1.38": "two", "1.37": "one", "1.36": "zero"} {
		if got := body(t, r, minor); got != want {
			t.Errorf("%s has %v, want %s", minor, got, want)
		}
	}
}

// TestRecordingAgain replaces the answers of the newest minor. An older minor keeps its own.
func TestRecordingAgain(t *testing.T) {
	r, _ := newRecording(t)
	put(t, r, "1.36", "one", "y")
	put(t, r, "1.37", "changed", "y")
	r, _ = reread(t, r)
	if got, old := body(t, r, "1.37"), body(t, r, "1.36"); got != "changed" || old != "one" {
		t.Errorf("1.37 has %v, 1.36 %v", got, old)
	}
}

// TestRequestsStay checks that writing keeps requests as they are, and that the same recording gives the same bytes.
func TestRequestsStay(t *testing.T) {
	r, _ := newRecording(t)
	r, first := reread(t, r)
	_, second := reread(t, r)
	a, err := os.ReadFile(filepath.Join(first, "a.jsonl.gz"))
	b, err2 := os.ReadFile(filepath.Join(second, "a.jsonl.gz"))
	if err != nil || err2 != nil || !bytes.Equal(a, b) {
		t.Errorf("two files of one recording differ: %v %v", err, err2)
	}
	steps := r.Requests()[0].Steps
	if got := string(appendJSON(nil, steps[1].Body)); got != `{"html": "<&>", "x": 1.50}` {
		t.Errorf("the body is %s", got)
	}
	if steps[0].Note != "n" || steps[2].Compare != compareNone || steps[0].Expect.Status != 0 {
		t.Errorf("the steps are %+v", steps)
	}
}

// TestPutRefusesFailedRequests: a request without an answer must not become a recording.
func TestPutRefusesFailedRequests(t *testing.T) {
	r, _ := newRecording(t)
	scenarios := r.Requests()
	results := answered(scenarios[0], "x")
	results[0].err = errors.New("cut")
	if _, err := r.Put("1.37", scenarios, [][]StepResult{results}); err == nil || !strings.Contains(err.Error(), "cut") {
		t.Errorf("error %v", err)
	}
	if _, err := r.Put("2.0", nil); err == nil {
		t.Error("2.0 is a minor")
	}
	if got := body(t, r, "1.37"); got != "one" {
		t.Errorf("1.37 has %v", got)
	}
}

// TestSeveralAnswers records in two passes that differ: both answers are right then, also for another minor that gives one of
// them.
func TestSeveralAnswers(t *testing.T) {
	r, _ := newRecording(t)
	scenarios := r.Requests()
	unequal, err := r.Put("1.37", scenarios, [][]StepResult{answered(scenarios[0], "early", "y")},
		[][]StepResult{answered(scenarios[0], "late", "y")})
	if err != nil || len(unequal) != 1 || unequal[0] != "a/b[0]" {
		t.Fatalf("%v %v", unequal, err)
	}
	put(t, r, "1.36", "late", "y")
	r, _ = reread(t, r)
	if n := r.DifferingSteps("1.36"); n != 0 {
		t.Errorf("%d steps of 1.36 differ", n)
	}
	for _, minor := range r.Minors() {
		scenarios, err := r.Scenarios(minor)
		if err != nil {
			t.Fatal(err)
		}
		step := &scenarios[0].Steps[0]
		for body, want := range map[string]bool{"early": true, "late": true, "never": false} {
			got := Answer{Status: 200, Type: "application/json", Body: body}
			if code, ds := compareAny(step.mode(), step.expected(), got); (code && len(ds) == 0) != want {
				t.Errorf("%s: %s is right: %v, want %v", minor, body, !want, want)
			}
		}
	}
	put(t, r, "1.36", "other", "y")
	if n := r.DifferingSteps("1.36"); n != 1 {
		t.Errorf("%d steps of 1.36 differ, want 1", n)
	}
}

func TestAddScenarios(t *testing.T) {
	r, _ := newRecording(t)
	file := filepath.Join(t.TempDir(), "new.jsonl")
	content := `{"name":"new/c","steps":[{"do":"GET /d"}]}` + "\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.AddScenarios(file); err != nil {
		t.Fatal(err)
	}
	if err := r.AddScenarios(file); err == nil {
		t.Error("the same scenario was added twice")
	}
	scenarios := r.Requests()
	if len(scenarios) != 2 || scenarios[1].Name != "new/c" || scenarios[1].index != 1 {
		t.Errorf("scenarios %+v", scenarios)
	}
	results := [][]StepResult{answered(scenarios[0], "one", "y"), answered(scenarios[1], "new")}
	if _, err := r.Put("1.37", scenarios, results); err != nil {
		t.Fatal(err)
	}
	_, dir := reread(t, r)
	if _, err := os.Stat(filepath.Join(dir, "new.jsonl.gz")); err != nil {
		t.Error(err)
	}
}

// TestBrokenRecordings reads recordings that contradict themselves.
func TestBrokenRecordings(t *testing.T) {
	for name, c := range map[string]struct{ file, content, want string }{
		"no newest minor":    {newestFile, "new", "no minor of Kubernetes"},
		"an older newer one": {"older/1.38.jsonl.gz", "", "not earlier"},
		"an unknown step":    {"older/1.36.jsonl.gz", `{"scenario":"a/b","step":3,"expect":{"status":200}}`, "no step 3"},
		"a step that is not compared": {
			"older/1.36.jsonl.gz", `{"scenario":"a/b","step":2,"expect":{"status":200}}`, "not compared",
		},
		"a name twice": {"b.jsonl.gz", `{"name":"a/b","steps":[]}`, "twice"},
	} {
		_, dir := newRecording(t)
		path := filepath.Join(dir, c.file)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if strings.HasSuffix(path, suffix) {
			err = errors.Join(err, writeCompressed(path, []byte(c.content)))
		} else {
			err = errors.Join(err, os.WriteFile(path, []byte(c.content), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReadRecording(dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}
