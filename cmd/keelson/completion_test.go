package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompletion loads each script in its shell, if that is installed, and lets bash complete some arguments.
func TestCompletion(t *testing.T) {
	for shell, check := range map[string][]string{"bash": {"-n"}, "zsh": {"-n"}, "fish": {"-n"}, "powershell": nil} {
		out, errOut, code := keelson("completion", shell)
		if code != 0 || !strings.Contains(out, "keelson") {
			t.Errorf("%s: exit %d, %q, %q", shell, code, out, errOut)
			continue
		}
		path := filepath.Join(t.TempDir(), shell)
		if err := os.WriteFile(path, []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
		program, err := exec.LookPath(shell)
		if err != nil || check == nil {
			continue
		}
		if out, err := exec.Command(program, append(check, path)...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
	// The scripts call the program in this way.
	out, errOut, code := keelson("__complete", "envtest", "")
	if code != 0 || !strings.HasPrefix(out, "install\t") {
		t.Errorf("exit %d, %q, %q", code, out, errOut)
	}
	for _, args := range [][]string{{"completion"}, {"completion", "tcsh"}} {
		if _, errOut, code := keelson(args...); code != 1 || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%q: exit %d, %q", args, code, errOut)
		}
	}
}

// TestManPages compares packaging/man with the commands, and checks that each page has its sections and that man can show
// it where it is installed.
func TestManPages(t *testing.T) {
	const committed = "../../packaging/man"
	dir := t.TempDir()
	if _, errOut, code := keelson("man", dir); code != 0 {
		t.Fatalf("exit %d, %q", code, errOut)
	}
	if *update {
		if err := os.RemoveAll(committed); err != nil {
			t.Fatal(err)
		}
		if _, errOut, code := keelson("man", committed); code != 0 {
			t.Fatalf("exit %d, %q", code, errOut)
		}
	}
	names, count := map[string]string{}, 0 // contents by name; number of committed pages
	for _, d := range []string{dir, committed} {
		pages, err := filepath.Glob(filepath.Join(d, "*.1"))
		if err != nil || len(pages) < 10 {
			t.Fatalf("%s has the pages %q: %v", d, pages, err)
		}
		for _, page := range pages {
			content, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			if before, found := names[filepath.Base(page)]; d == committed && (!found || before != string(content)) {
				t.Errorf("%s is not up to date: go test ./cmd/keelson -run TestManPages -update", page)
			}
			if names[filepath.Base(page)] = string(content); d == committed {
				count++
			}
		}
	}
	if count != len(names) {
		t.Errorf("%s has %d pages of %d: go test ./cmd/keelson -run TestManPages -update", committed, count, len(names))
	}
	for _, name := range []string{"keelson.1", "keelson-serve.1", "keelson-envtest-install.1", "keelson-kube-apiserver.1"} {
		if names[name] == "" {
			t.Errorf("there is no page %s", name)
		}
	}
	man, noMan := exec.LookPath("man")
	for name, content := range names {
		for _, section := range []string{
			"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "SIGNALS", "EXIT STATUS", "SEE ALSO",
		} {
			if _, text, found := strings.Cut(content, "\n.SH "+section+"\n"); !found || text == "" || strings.HasPrefix(text, ".nf\n\n") {
				t.Errorf("%s has nothing in the section %s", name, section)
			}
		}
		// The pages are equal to the committed ones, so man only needs to check them when they are written.
		if noMan != nil || !*update {
			continue
		}
		show := exec.Command(man, "--warnings", "-l", filepath.Join(dir, name))
		show.Env = append(os.Environ(), "MANPAGER=cat", "LC_ALL=C.UTF-8", "MANWIDTH=120")
		if out, err := show.CombinedOutput(); err == nil && strings.Contains(string(out), "warning:") {
			t.Errorf("%s: %.2000s", name, out)
		}
	}
	for _, section := range []string{"\n.SH FILES\n", "\n.SH ENVIRONMENT\n", `\-\-data\-dir string`} {
		if !strings.Contains(names["keelson-serve.1"], section) {
			t.Errorf("keelson-serve.1 has no %q", section)
		}
	}
}
