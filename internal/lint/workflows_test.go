package lint

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// workflow is what the tests read of a workflow of GitHub.
type workflow struct {
	Permissions map[string]string `json:"permissions"`
	Jobs        map[string]struct {
		Permissions map[string]string `json:"permissions"`
		Timeout     int               `json:"timeout-minutes"`
		Strategy    struct {
			Matrix map[string][]string `json:"matrix"`
		} `json:"strategy"`
		Steps []struct {
			Uses string `json:"uses"`
			Run  string `json:"run"`
		} `json:"steps"`
	} `json:"jobs"`
}

func readWorkflow(t *testing.T, name string) workflow {
	t.Helper()
	var w workflow
	content, err := os.ReadFile(filepath.Join(root, ".github", "workflows", name))
	if err == nil {
		err = yaml.Unmarshal(content, &w)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return w
}

// TestWorkflows checks that jobs end some time, and may only read by default; that CI compiles what releases are built for; and that
// a release has its provenance before it is published.
func TestWorkflows(t *testing.T) {
	files, err := os.ReadDir(filepath.Join(root, ".github", "workflows"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		w := readWorkflow(t, file.Name())
		if !maps.Equal(w.Permissions, map[string]string{"contents": "read"}) {
			t.Errorf("%s: the permissions of all jobs are %v, want only to read the contents", file.Name(), w.Permissions)
		}
		for name, job := range w.Jobs {
			if job.Timeout == 0 {
				t.Errorf("%s: the job %s has no timeout-minutes", file.Name(), name)
			}
		}
	}

	script, err := os.ReadFile(filepath.Join(root, "packaging", "release.sh"))
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`platforms=\(\{([\w,]+)\}/\{([\w,]+)\}\)`).FindStringSubmatch(string(script))
	if list == nil {
		t.Fatal("packaging/release.sh has no list of platforms")
	}
	checked := readWorkflow(t, "ci.yml").Jobs["platforms"].Strategy.Matrix["platform"]
	for os := range strings.SplitSeq(list[1], ",") {
		for arch := range strings.SplitSeq(list[2], ",") {
			if p := os + "/" + arch; p != "linux/amd64" && !slices.Contains(checked, p) { // which .ci/run checks
				t.Errorf("ci.yml does not compile for %s, which releases are built for", p)
			}
		}
	}

	release := readWorkflow(t, "release.yml").Jobs["release"]
	attested, published := -1, -1
	for i, step := range release.Steps {
		if strings.HasPrefix(step.Uses, "actions/attest-build-provenance@") && attested < 0 {
			attested = i
		}
		if strings.Contains(step.Run, "gh release create") {
			published = i
		}
	}
	if attested < 0 || published < attested || release.Permissions["id-token"] != "write" || release.Permissions["attestations"] != "write" {
		t.Errorf("the files of a release have no provenance before they are published (steps %d and %d, permissions %v)",
			attested, published, release.Permissions)
	}
}

// TestAllPartsRun: the workflow runs every part of .ci/run.
func TestAllPartsRun(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`parts=\(([a-z ]+)\)`).FindStringSubmatch(string(script))
	if all == nil {
		t.Fatal(".ci/run has no list of its parts")
	}
	jobs := strings.Join(readWorkflow(t, "ci.yml").Jobs["ci"].Strategy.Matrix["parts"], " ")
	sorted := func(words string) []string { return slices.Sorted(slices.Values(strings.Fields(words))) }
	if got, want := sorted(jobs), sorted(all[1]); !slices.Equal(got, want) {
		t.Errorf("ci.yml runs the parts %q of .ci/run, which has %q", got, want)
	}
}

// TestPlatformPackagesExist checks the packages that .ci/platform tests.
func TestPlatformPackagesExist(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, ".ci", "platform"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(` \./([\w/]+)`).FindAllStringSubmatch(string(script), -1)
	if len(named) < 10 {
		t.Errorf(".ci/platform names %d packages", len(named))
	}
	for _, m := range named {
		if info, err := os.Stat(filepath.Join(root, filepath.FromSlash(strings.TrimSuffix(m[1], "/")))); err != nil || !info.IsDir() {
			t.Errorf(".ci/platform names %s, which does not exist", m[1])
		}
	}
}
