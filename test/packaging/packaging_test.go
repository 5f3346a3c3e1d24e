// Package packaging checks the files that Keelson is installed with.
package packaging

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestUnit lets systemd verify the unit, where it is installed. The program of the unit is this test's own.
func TestUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	unit := filepath.Join(t.TempDir(), "keelson.service")
	text := strings.ReplaceAll(read(t, "packaging/keelson.service"), "/usr/bin/keelson", os.Args[0])
	if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(analyze, "verify", "--man=no", unit).CombinedOutput()
	if err != nil || strings.Contains(string(out), unit) {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestAction runs the script of the action for GitHub with a go command that installs a program of this test.
func TestAction(t *testing.T) {
	var action struct {
		Runs struct {
			Using string
			Steps []struct{ ID, Shell, Run string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, ".github/actions/envtest/action.yml")), &action); err != nil {
		t.Fatal(err)
	}
	if action.Runs.Using != "composite" || len(action.Runs.Steps) != 1 {
		t.Fatalf("%+v", action.Runs)
	}
	dir := t.TempDir()
	for name, script := range map[string]string{
		"go": `case $1 in
env) [ "$2" = GOBIN ] || echo ` + dir + `/gopath ;;
install) echo "$@" >` + dir + `/installed; mkdir -p ` + dir + `/gopath/bin; cp ` + dir + `/keelson ` + dir + `/gopath/bin/ ;;
esac`,
		"keelson": `[ "$1 $2 $4 $5" = "envtest install --print path" ] && echo "$3"`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/bash\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	run := exec.Command("bash", "-c", action.Runs.Steps[0].Run)
	run.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "VERSION=v9", "RUNNER_TEMP=/work-files",
		"GITHUB_ENV="+dir+"/env", "GITHUB_OUTPUT="+dir+"/output")
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, want := range map[string]string{
		"env": "KUBEBUILDER_ASSETS=/work-files/keelson-envtest\n", "output": "assets=/work-files/keelson-envtest\n",
		"installed": "install -trimpath -ldflags -s -w -tags grpcnotrace github.com/keelson-dev/keelson/cmd/keelson@v9\n",
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q %v, want %q", name, got, err, want)
		}
	}
}

// TestRelease builds a release for this platform twice. It takes some minutes of processor time, so it runs only with
// KEELSON_RELEASE=1.
func TestRelease(t *testing.T) {
	if os.Getenv("KEELSON_RELEASE") == "" {
		t.Skip("set KEELSON_RELEASE=1 to build a release")
	}
	var sums []string
	dir := ""
	for range 2 {
		dir = t.TempDir()
		build := exec.Command("./packaging/release.sh", dir, runtime.GOOS+"/"+runtime.GOARCH)
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		sum, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, string(sum))
	}
	if sums[0] != sums[1] || strings.Count(sums[0], "\n") != 2 {
		t.Errorf("two builds differ:\n%s%s", sums[0], sums[1])
	}
	archives, _ := filepath.Glob(filepath.Join(dir, "*.tar.gz"))
	if len(archives) != 1 {
		t.Fatalf("archives: %q", archives)
	}
	files := unpack(t, archives[0])
	for _, want := range []string{"keelson", "LICENSE", "man/keelson.1", "completions/keelson.bash", "keelson.service"} {
		if files[want] == nil {
			t.Errorf("the archive has no %s", want)
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	program, err := elf.NewFile(bytes.NewReader(files["keelson"]))
	if err != nil {
		t.Fatal(err)
	}
	if libraries, err := program.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Errorf("the program needs %q %v", libraries, err)
	}
}

// unpack returns the files of an archive by their paths below its only directory.
func unpack(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for archive := tar.NewReader(z); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		if files[name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}
