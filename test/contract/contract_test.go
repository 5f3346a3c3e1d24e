package contract

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
)

var (
	update = flag.Bool("update", false, "rewrite the lists of known failures and README.md")
	only   = flag.String(
		"only", "", "replay the scenarios whose name matches the regular expression, and show all that differs",
	)
)

const (
	knownFile  = "testdata/known_failures.txt"
	readmeFile = "README.md"
)

// TestRecorded replays the recorded scenarios. A scenario that fails must be listed in known_failures.txt, and a
// listed scenario must fail.
func TestRecorded(t *testing.T) {
	scenarios := selected(t, readAll(t))
	results := replayAll(t, scenarios, "", knownFile)
	if *update && !testing.Short() && *only == "" {
		writeFile(t, readmeFile, readme(t, scenarios, results))
	}
}

// TestRecordedOlder replays, for each earlier minor that is recorded, the scenarios that it answers otherwise than the
// minor after it, on a server that emulates it. Known failures have a list of their own.
func TestRecordedOlder(t *testing.T) {
	r, err := ReadRecording("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, minor := range r.Minors()[1:] {
		t.Run(minor, func(t *testing.T) {
			scenarios, err := r.Scenarios(minor)
			if err != nil {
				t.Fatal(err)
			}
			differing := r.Differing(minor)
			scenarios = slices.DeleteFunc(selected(t, scenarios), func(s *Scenario) bool { return !differing[s.Name] })
			replayAll(t, scenarios, minor, filepath.Join("testdata", olderFolder, minor+".known_failures.txt"))
		})
	}
}

// replayAll replays scenarios on a server that emulates a minor, the newest if it is empty. It compares the failures with
// the list in a file, and writes the list anew with -update. Without failures there need not be a file.
func replayAll(t *testing.T, scenarios []*Scenario, emulated, listFile string) [][]StepResult {
	t.Helper()
	known := readKnown(t, listFile)
	c := NewClient(startServer(t, emulated), Token)
	defer c.Close()
	results := Replay(t.Context(), c, scenarios)
	failed := map[string]bool{}
	for i, s := range scenarios {
		failures := Failures(results[i])
		if failed[s.Name] = len(failures) > 0; *only != "" || len(failures) > 0 && !known[s.Name] {
			for _, f := range failures {
				t.Errorf("%s%v", s.Name, f)
			}
		} else if known[s.Name] && len(failures) == 0 && !*update {
			t.Errorf("%s passes: take it off the list (go test ./test/contract -update)", s.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if _, ran := failed[name]; !ran && !testing.Short() && *only == "" {
			t.Errorf("%s is listed in %s, but there is no such scenario", name, listFile)
		}
	}
	if *update && !testing.Short() && *only == "" {
		// A scenario that fails without being listed has failed the test above. It is written to the list all the
		// same, where a reviewer of the change sees it.
		writeKnown(t, listFile, scenarios, failed)
	}
	return results
}

func startServer(t *testing.T, emulated string) string {
	t.Helper()
	return keelson.ForTest(t, func(c *config.Config) {
		if err := Configure(c, t.TempDir()); err != nil {
			t.Fatal(err)
		}
		c.API.EmulatedVersion = emulated
	}).URL()
}

func readAll(t *testing.T) []*Scenario {
	t.Helper()
	scenarios, err := Recorded("testdata")
	if err != nil {
		t.Fatal(err)
	}
	return scenarios
}

// selected returns the scenarios of this run.
func selected(t *testing.T, all []*Scenario) []*Scenario {
	t.Helper()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(s *Scenario) bool {
		return !pattern.MatchString(s.Name) || testing.Short() && !s.Sampled()
	})
}

// readKnown reads a list of known failures. A list that does not exist is empty.
func readKnown(t *testing.T, file string) map[string]bool {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, line := range strings.Split(string(content), "\n") {
		if line != "" && !strings.HasPrefix(line, "#") {
			known[line] = true
		}
	}
	return known
}

// writeKnown writes a list of known failures, or removes it if there are none.
func writeKnown(t *testing.T, file string, scenarios []*Scenario, failed map[string]bool) {
	t.Helper()
	b := []byte(
		"# Scenarios that are not answered exactly as recorded yet. The list only shrinks;\n# go test ./test/contract " +
			"-update takes off what passes.\n",
	)
	var names []string
	for _, s := range scenarios {
		if failed[s.Name] {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return
	}
	slices.Sort(names)
	writeFile(t, file, fmt.Appendf(b, "%s\n", strings.Join(names, "\n")))
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// The part of README.md between these lines is generated.
const (
	generatedBegin = "<!-- generated: go test ./test/contract -update -->"
	generatedEnd   = "<!-- end of the generated part -->"
)

// readme returns README.md with a new generated part.
func readme(t *testing.T, scenarios []*Scenario, results [][]StepResult) []byte {
	t.Helper()
	content, err := os.ReadFile(readmeFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(content, []byte(generatedBegin))
	_, after, ok2 := bytes.Cut(rest, []byte(generatedEnd))
	if !ok || !ok2 {
		t.Fatalf("%s has lost the lines around its generated part", readmeFile)
	}
	var b bytes.Buffer
	b.Write(before)
	b.WriteString(generatedBegin + "\n\n")
	b.WriteString(areaTable(scenarios, results))
	b.WriteString("\n" + failureTable(scenarios, results, string(after)) + "\n" + generatedEnd)
	b.Write(after)
	return b.Bytes()
}

// A tally counts the scenarios and steps of an area.
type tally struct{ steps, code, exact, scenarios, passing int }

func (t *tally) add(results []StepResult) {
	t.scenarios++
	if len(Failures(results)) == 0 {
		t.passing++
	}
	for i := range results {
		t.steps++
		if results[i].code {
			t.code++
		}
		if results[i].passed() {
			t.exact++
		}
	}
}

func (t *tally) row(name string) string {
	percent := func(n int) float64 { return 100 * float64(n) / float64(max(t.steps, 1)) }
	return fmt.Sprintf(
		"| %s | %d | %.1f | %.1f | %d of %d |\n", name, t.steps, percent(t.code), percent(t.exact), t.passing, t.scenarios,
	)
}

func areaTable(scenarios []*Scenario, results [][]StepResult) string {
	areas := map[string]*tally{}
	var all tally
	for i, s := range scenarios {
		if areas[s.area()] == nil {
			areas[s.area()] = &tally{}
		}
		areas[s.area()].add(results[i])
		all.add(results[i])
	}
	var b strings.Builder
	b.WriteString(
		"| area | steps | status code right % | exact % | scenarios passing |\n| --- | ---: | ---: | ---: | ---: |\n",
	)
	for _, name := range slices.Sorted(maps.Keys(areas)) {
		b.WriteString(areas[name].row(name))
	}
	b.WriteString(all.row("all"))
	return b.String()
}

// failureTable lists the failed scenarios with their reasons, without those in handKept, whose responses differ on
// purpose.
func failureTable(scenarios []*Scenario, results [][]StepResult, handKept string) string {
	var rows []string
	for i, s := range scenarios {
		failures := Failures(results[i])
		if len(failures) == 0 {
			continue
		}
		why := strings.Join(reasonsOf(results[i]), ", ")
		if strings.Contains(handKept, "`"+s.Name+"`") {
			why = "see below; " + why
		}
		var steps []string
		for _, f := range failures {
			steps = append(steps, fmt.Sprint(f.index))
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s |\n", s.Name, strings.Join(steps, " "), why))
	}
	slices.Sort(rows)
	return "| known failure | steps | reason |\n| --- | --- | --- |\n" + strings.Join(rows, "")
}

// TestScenariosWait checks that the sample has no scenarios that wait.
func TestScenariosWait(t *testing.T) {
	for _, s := range readAll(t) {
		var waited time.Duration
		for i := range s.Steps {
			waited += time.Duration(s.Steps[i].Wait * float64(time.Second))
		}
		if waited > 0 && !s.waits() {
			t.Errorf("%s waits %s", s.Name, waited)
		}
	}
}
