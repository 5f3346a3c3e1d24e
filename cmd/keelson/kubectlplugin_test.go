package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestKubectlPlugin runs the program under the names under which kubectl runs it: `kubectl history`, and the completion of it.
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
		_ = cmd.Run() // the exit code says it
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
