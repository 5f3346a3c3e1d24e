package contract

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
)

var (
	update = flag.Bool("update", false, "rewrite testdata/known_failures.txt and README.md")
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
	known := readKnown(t)
	scenarios := selected(t, readAll(t))
	c := NewClient(startServer(t), Token)
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
			t.Errorf("%s is listed in %s, but there is no such scenario", name, knownFile)
		}
	}
	if *update && !testing.Short() && *only == "" {
		// A scenario that fails without being listed has failed the test above. It is written to the list all the
		// same, where a reviewer of the change sees it.
		writeFile(t, knownFile, knownList(scenarios, failed))
		writeFile(t, readmeFile, readme(t, scenarios, results))
	}
}

func startServer(t *testing.T) string {
	t.Helper()
	return keelson.ForTest(t, func(c *config.Config) {
		if err := Configure(c, t.TempDir()); err != nil {
			t.Fatal(err)
		}
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

func readKnown(t *testing.T) map[string]bool {
	t.Helper()
	content, err := os.ReadFile(knownFile)
	if err != nil && !(os.IsNotExist(err) && *update) {
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

func knownList(scenarios []*Scenario, failed map[string]bool) []byte {
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
	slices.Sort(names)
	return fmt.Appendf(b, "%s\n", strings.Join(names, "\n"))
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

func (a *tally) add(results []StepResult) {
	a.scenarios++
	if len(Failures(results)) == 0 {
		a.passing++
	}
	for i := range results {
		a.steps++
		if results[i].code {
			a.code++
		}
		if results[i].passed() {
			a.exact++
		}
	}
}

func (a *tally) row(name string) string {
	percent := func(n int) float64 { return 100 * float64(n) / float64(max(a.steps, 1)) }
	return fmt.Sprintf(
		"| %s | %d | %.1f | %.1f | %d of %d |\n", name, a.steps, percent(a.code), percent(a.exact), a.passing, a.scenarios,
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
