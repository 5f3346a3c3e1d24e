package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// Results of a spec on a server.
const (
	passed = "pass"
	failed = "fail"
	notRun = "-"
)

// columns are the servers in the list.
var columns = map[string]int{"kube-apiserver": 0, "keelson": 1}

// spec is one line of the list.
type spec struct {
	name    string
	results [2]result // by columns
}

type result struct {
	outcome string // passed, failed or notRun
	seconds string // notRun if the spec was not run
}

const listHeader = "# spec\tkube-apiserver\tseconds\tKeelson\tseconds"

func readList(path string) ([]*spec, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var specs []*spec
	for i, line := range strings.Split(strings.TrimSuffix(string(content), "\n"), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != 5 {
			return nil, fmt.Errorf("%s:%d: %d fields instead of 5", path, i+1, len(f))
		}
		specs = append(specs, &spec{f[0], [2]result{{f[1], f[2]}, {f[3], f[4]}}})
	}
	return specs, nil
}

func writeList(path string, specs []*spec) error {
	var b strings.Builder
	fmt.Fprintln(&b, listHeader)
	for _, s := range specs {
		a, k := s.results[0], s.results[1]
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\t%s\n", s.name, a.outcome, a.seconds, k.outcome, k.seconds)
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// specReport is what ginkgo reports about one spec.
type specReport struct {
	ContainerHierarchyTexts []string
	LeafNodeText            string
	LeafNodeType            string
	State                   string
	RunTime                 time.Duration
	Failure                 struct{ Message string }
}

func (r *specReport) name() string {
	return strings.Join(append(r.ContainerHierarchyTexts[:len(r.ContainerHierarchyTexts):len(r.ContainerHierarchyTexts)],
		r.LeafNodeText), " ")
}

// readReport returns the specs that ran, also those that skipped themselves.
func readReport(path string) ([]specReport, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var suites []struct{ SpecReports []specReport }
	if err := json.Unmarshal(content, &suites); err != nil {
		return nil, err
	}
	var ran []specReport
	for _, s := range suites {
		for _, r := range s.SpecReports {
			// Specs that the focus excludes are "skipped" without a message.
			excluded := (r.State == "skipped" || r.State == "pending") && r.Failure.Message == ""
			if r.LeafNodeType == "It" && !excluded {
				ran = append(ran, r)
			}
		}
	}
	return ran, nil
}

// record writes the results into one column of the specs. It returns the failures of specs that pass on kube-apiserver.
func record(specs []*spec, reports []specReport, column int) (worse []string) {
	byName := map[string]*spec{}
	for _, s := range specs {
		byName[s.name] = s
	}
	for i := range reports {
		r := &reports[i]
		s := byName[r.name()]
		if s == nil {
			continue
		}
		s.results[column] = result{passed, fmt.Sprintf("%.0f", r.RunTime.Seconds())}
		if r.State == "passed" {
			continue
		}
		s.results[column].outcome = failed
		if s.results[columns["kube-apiserver"]].outcome == passed {
			worse = append(worse, fmt.Sprintf("%s\n    %s: %s", s.name, r.State, shorten(r.Failure.Message, 400)))
		}
	}
	return worse
}

func shorten(text string, most int) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = text[:most] + "..."
	}
	return text
}

func summary(specs []*spec, reports []specReport, column int) string {
	counts := map[string]int{}
	for _, s := range specs {
		counts[s.results[column].outcome]++
	}
	var total time.Duration
	for i := range reports {
		total += reports[i].RunTime
	}
	return fmt.Sprintf("%d specs ran, in %.0f s of spec time; of the whole list %d pass, %d fail, %d were not run\n",
		len(reports), total.Seconds(), counts[passed], counts[failed], counts[notRun])
}
