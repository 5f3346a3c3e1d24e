package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The specs of Kubernetes' end-to-end suite that TestConformance runs: those about admission that need no containers.
const (
	admissionSpecs = `\[sig-api-machinery\] (ValidatingAdmissionPolicy|MutatingAdmissionPolicy|ResourceQuota) |\[sig-scheduling\] LimitRange `
	// Kinds and devices of drivers that are not installed.
	skippedSpecs = `DynamicResourceAllocation`
)

// TestConformance runs specs of Kubernetes' own end-to-end suite with kube-controller-manager, kube-scheduler and the
// nodes of kwok. KEELSON_CONFORMANCE is a regular expression of other specs, KEELSON_SKIP one of those that are left out. KEELSON_SUITE
// is the program of another version of the suite, beside which ginkgo lies, KEELSON_EMULATED_VERSION a minor that all programs emulate.
func TestConformance(t *testing.T) {
	focus := admissionSpecs
	if other := os.Getenv("KEELSON_CONFORMANCE"); other != "" {
		focus = other
	}
	skip := skippedSpecs
	if other := os.Getenv("KEELSON_SKIP"); other != "" {
		skip += "|" + other
	}
	suite := os.Getenv("KEELSON_SUITE")
	if suite == "" {
		suite = program(t, "conformance/e2e.test")
	}
	var emulated []string
	if version := os.Getenv("KEELSON_EMULATED_VERSION"); version != "" {
		emulated = []string{"--emulated-version", version}
	}
	j := join(t, emulated...)
	j.awaitNodes(t, 3)
	log := filepath.Join(j.dir, "conformance.log")
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(suite), "ginkgo"), "--procs=4", "--focus", focus, "--skip", skip,
		"--no-color", "-v", "--timeout=40m", "--junit-report=junit.xml", "--output-dir", j.dir, suite, "--",
		"--kubeconfig", j.admin.kubeconfig, "--provider=skeleton", "--allowed-not-ready-nodes=-1")
	c.Dir, c.Stdout, c.Stderr = j.dir, out, out
	runErr := c.Run()
	var summary string
	var failed []string
	ended := regexp.MustCompile(`^\s+\[(FAIL|PANICKED|TIMEDOUT|INTERRUPTED|ABORTED)\] `)
	read, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	lines := bufio.NewScanner(read)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "Ran "), strings.Contains(line, " Passed | "):
			summary += line + " "
		case ended.MatchString(line):
			failed = append(failed, strings.TrimSpace(line))
		}
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
	t.Log(summary)
	if runErr != nil || !strings.HasPrefix(summary, "Ran ") || strings.HasPrefix(summary, "Ran 0 ") || len(failed) > 0 {
		t.Errorf("%v; see %s\n%s", runErr, log, strings.Join(failed, "\n"))
	}
}
