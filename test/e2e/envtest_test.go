package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// suiteVersions are the versions of controller-runtime whose own suites run, the newest patch of each minor.
var suiteVersions = []string{"v0.25.2", "v0.24.1"}

// suitePackages are the packages of controller-runtime whose suites use an API server most.
var suitePackages = []string{"envtest", "client", "cache", "manager", "controller", "webhook"}

// TestEnvtestSuites runs the suites of controller-runtime, unmodified, on the programs that `keelson envtest install`
// writes, and on kube-apiserver with etcd. What passes there has to pass on Keelson. The log has a table with the times.
// KEELSON_SUITES is a regular expression of VERSION/PACKAGE.
func TestEnvtestSuites(t *testing.T) {
	selected := regexp.MustCompile(os.Getenv("KEELSON_SUITES"))
	assets := map[string]string{"kube-apiserver": realAssets(t), "keelson": keelsonAssets(t)}
	table := []string{"| suite | specs | kube-apiserver + etcd | Keelson |", "| --- | --- | --- | --- |"}
	for _, v := range suiteVersions {
		var source string
		for _, pkg := range suitePackages {
			if !selected.MatchString(v + "/" + pkg) {
				continue
			}
			if source == "" {
				source = controllerRuntime(t, v)
			}
			program := filepath.Join(t.TempDir(), pkg+".test")
			compile := exec.Command("go", "test", "-c", "-o", program, "./pkg/"+pkg)
			compile.Dir = source
			if out, err := compile.CombinedOutput(); err != nil {
				t.Fatalf("compiling pkg/%s of %s: %v\n%s", pkg, v, err, out)
			}
			dir := filepath.Join(source, "pkg", pkg)
			want := runSuite(t, program, dir, assets["kube-apiserver"])
			got := runSuite(t, program, dir, assets["keelson"])
			for _, spec := range slices.Sorted(maps.Keys(want.passed)) {
				if !got.passed[spec] && !passesAgain(t, program, dir, assets["keelson"], spec) {
					t.Errorf("%s pkg/%s: %q passes on kube-apiserver and does not on Keelson\n%s", v, pkg, spec, got.output)
				}
			}
			table = append(table, fmt.Sprintf("| %s pkg/%s | %d | %d passed, %s | %d passed, %s |",
				v, pkg, want.specs, len(want.passed), want.times(), len(got.passed), got.times()))
		}
	}
	t.Log("wall time and processor time of the tests and the servers\n" + strings.Join(table, "\n"))
}

// keelsonAssets returns a directory that `keelson envtest install` has written.
func keelsonAssets(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	install := exec.Command(program(t, "keelson"), "envtest", "install", dir, "--kubectl", program(t, "kubectl"))
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// realAssets returns a directory with the programs of Kubernetes and etcd.
func realAssets(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"kube-apiserver", "etcd", "kubectl"} {
		if err := os.Symlink(program(t, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// controllerRuntime returns a copy of a version of controller-runtime from the Go module proxy.
func controllerRuntime(t *testing.T, version string) string {
	t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", "sigs.k8s.io/controller-runtime@"+version).Output()
	var module struct{ Dir, Error string }
	if parseErr := json.Unmarshal(out, &module); err != nil || parseErr != nil || module.Dir == "" {
		t.Skipf("controller-runtime %s cannot be downloaded: %v %s", version, err, module.Error)
	}
	dir := filepath.Join(t.TempDir(), "controller-runtime")
	if err := os.CopyFS(dir, os.DirFS(module.Dir)); err != nil {
		t.Fatal(err)
	}
	// The module cache is read-only, and some tests write beside their files.
	if out, err := exec.Command("chmod", "-R", "u+w", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	return dir
}

// passesAgain repeats a spec. Some depend on which of two things comes first.
func passesAgain(t *testing.T, program, dir, assets, spec string) bool {
	t.Helper()
	t.Logf("once more: %s", spec)
	r := runSuite(t, program, dir, assets, "--ginkgo.focus="+regexp.QuoteMeta(spec)+"$")
	return r.passed[spec]
}

// suiteResult is the result of one run of a suite.
type suiteResult struct {
	specs     int
	passed    map[string]bool
	wall, cpu time.Duration
	output    string
}

func (r suiteResult) times() string {
	return fmt.Sprintf("%.1f s, %.1f s", r.wall.Seconds(), r.cpu.Seconds())
}

// runSuite runs a compiled suite of Ginkgo in the directory of its package.
func runSuite(t *testing.T, program, dir, assets string, flags ...string) suiteResult {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.json")
	var output bytes.Buffer
	flags = append(flags, "-test.timeout=15m", "--ginkgo.no-color", "--ginkgo.json-report="+report)
	run := exec.CommandContext(t.Context(), program, flags...)
	run.Dir, run.Stdout, run.Stderr = dir, &output, &output
	run.Env = append(os.Environ(), "KUBEBUILDER_ASSETS="+assets)
	began := time.Now()
	_ = run.Run() // the report says which specs failed
	r := suiteResult{passed: map[string]bool{}, wall: time.Since(began)}
	r.cpu = run.ProcessState.UserTime() + run.ProcessState.SystemTime() // with those of the servers, which it waits for
	content, err := os.ReadFile(report)
	if err != nil {
		t.Fatalf("the suite in %s has written no report: %v\n%s", dir, err, &output)
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts           []string
			LeafNodeType, LeafNodeText, State string
		}
	}
	if err := json.Unmarshal(content, &suites); err != nil {
		t.Fatal(err)
	}
	for _, suite := range suites {
		for _, s := range suite.SpecReports {
			if s.LeafNodeType != "It" || s.State == "pending" || s.State == "skipped" {
				continue
			}
			r.specs++
			if s.State == "passed" {
				r.passed[strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")] = true
			}
		}
	}
	if i := bytes.Index(output.Bytes(), []byte("Summarizing")); i >= 0 {
		r.output = output.String()[i:]
	}
	return r
}
