package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompletion loads each script in its shell, where the shell is installed, and lets bash complete something.
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
	// What the scripts ask the program for.
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

// TestManPages checks that each command has a page, and that man can show it where it is installed.
func TestManPages(t *testing.T) {
	dir := t.TempDir()
	if _, errOut, code := keelson("man", dir); code != 0 {
		t.Fatalf("exit %d, %q", code, errOut)
	}
	for _, name := range []string{"keelson.1", "keelson-serve.1", "keelson-envtest-install.1", "keelson-kube-apiserver.1"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, section := range []string{".TH ", ".SH NAME\n", ".SH SYNOPSIS\n", ".SH OPTIONS\n", `\-\-help`} {
			if !strings.Contains(string(content), section) {
				t.Errorf("%s has no %q", name, section)
			}
		}
		man, err := exec.LookPath("man")
		if err != nil {
			continue
		}
		show := exec.Command(man, "--warnings", "-l", filepath.Join(dir, name))
		show.Env = append(os.Environ(), "MANPAGER=cat", "LC_ALL=C.UTF-8", "MANWIDTH=120")
		if out, err := show.CombinedOutput(); err == nil && strings.Contains(string(out), "warning:") {
			t.Errorf("%s: %.2000s", name, out)
		}
	}
}
