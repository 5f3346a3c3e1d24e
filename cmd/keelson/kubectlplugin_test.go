package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/cmd/keelson/kubectlhistory"
)

// TestKubectlPlugin runs the program by the names with which kubectl runs it: for `kubectl history` and its
// completion.
func TestKubectlPlugin(t *testing.T) {
	dir := t.TempDir()
	run := func(name string, args ...string) (stdout, stderr string, code int) {
		t.Helper()
		link := filepath.Join(dir, name)
		if _, err := os.Lstat(link); err != nil {
			program, err := filepath.Abs(os.Args[0])
			if err == nil {
				err = os.Symlink(program, link)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(link, args...)
		cmd.Env = append(os.Environ(), "KEELSON_TEST_MAIN=1", "KUBECONFIG=/does-not-exist")
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		_ = cmd.Run() // the exit code is read below
		return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
	}
	out, errOut, code := run("kubectl-history", "log", "--help")
	if code != 0 || !strings.Contains(out, "Usage:\n  kubectl history log TYPE NAME [flags]\n") {
		t.Errorf("exit %d, %q, %q", code, out, errOut)
	}
	for args, want := range map[string]string{
		"lgo":                 `unknown command "lgo"; did you mean "log"?`,
		"log":                 "name the resource type, for example deployments or deployments.apps",
		"log pod":             "name one object: pod NAME, or pod/NAME",
		"log pod a --limit x": `--limit: "x" is not a whole number`,
		"log pod a --limits=": "unknown flag: --limits; did you mean --limit?",
		"log pod a":           "there is no kubeconfig; name one with --kubeconfig, or with the variable KUBECONFIG",
	} {
		if _, errOut, code := run("kubectl-history", strings.Fields(args)...); code != 1 || errOut != "kubectl-history: "+want+"\n" {
			t.Errorf("%s: exit %d, %q", args, code, errOut)
		}
	}
	out, errOut, code = run("kubectl_complete-history", "un")
	if code != 0 || !strings.HasPrefix(out, "undelete\t") {
		t.Errorf("exit %d, %q, %q", code, out, errOut)
	}
	if _, errOut, code := keelson("kubectl-history", "lgo"); code != 1 ||
		errOut != "keelson: unknown command \"lgo\" of keelson kubectl-history; did you mean \"log\"?\n" {
		t.Errorf("exit %d, %q", code, errOut)
	}
}

// TestInstallPlugin installs the plug-in, installs it again, and tries a directory with a file of somebody else
// and one that is not on the PATH.
func TestInstallPlugin(t *testing.T) {
	program, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for range 2 {
		var out, errOut bytes.Buffer
		if err := installPlugin(program, dir, []string{"/usr/bin", dir}, &out, &errOut); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), dir) || errOut.Len() > 0 {
			t.Errorf("%q, %q", &out, &errOut)
		}
	}
	for name, args := range map[string][]string{kubectlhistory.Name: {"log", "--help"}, kubectlCompleteName: {"un"}} {
		c := exec.Command(filepath.Join(dir, executable(name)), args...)
		c.Env = append(os.Environ(), "KEELSON_TEST_MAIN=1")
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), map[string]string{
			kubectlhistory.Name: "kubectl history log TYPE NAME", kubectlCompleteName: "undelete",
		}[name]) {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
	var errOut bytes.Buffer
	if err := installPlugin(program, dir, nil, io.Discard, &errOut); err != nil || !strings.Contains(errOut.String(), "export PATH=") {
		t.Errorf("%v, %q", err, &errOut)
	}
	theirs := filepath.Join(t.TempDir(), executable(kubectlCompleteName))
	if err := os.WriteFile(theirs, []byte("mine"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := installPlugin(program, filepath.Dir(theirs), nil, io.Discard, io.Discard); err == nil {
		t.Error("a file of somebody else was replaced")
	}
	if content, err := os.ReadFile(theirs); err != nil || string(content) != "mine" {
		t.Errorf("%q, %v", content, err)
	}
	if _, err := os.Lstat(filepath.Join(filepath.Dir(theirs), executable(kubectlhistory.Name))); err == nil {
		t.Error("one link was made although the other cannot be")
	}
	if err := installPlugin(program, filepath.Join(dir, "none"), nil, io.Discard, io.Discard); err == nil {
		t.Error("a directory that does not exist is no error")
	}
}
