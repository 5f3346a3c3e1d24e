package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// transcript returns the blocks of commands in a section of the README, without their indentation.
func transcript(t *testing.T, section string) (blocks []string) {
	t.Helper()
	content, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(content), "\n## "+section+"\n")
	if !found {
		t.Fatalf("the README has no section %q", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var block strings.Builder
	for line := range strings.Lines(text + "\n") {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			block.WriteString(command)
			continue
		}
		if strings.HasPrefix(block.String(), "$ ") {
			blocks = append(blocks, block.String())
		}
		block.Reset()
	}
	return blocks
}

// TestReadme runs what the section "Five minutes" of the README tells a newcomer to type: the first block starts a
// server and shows what it prints, the second one is typed in another terminal.
func TestReadme(t *testing.T) {
	blocks := transcript(t, "Five minutes")
	if len(blocks) != 2 {
		t.Fatalf("the section has %d blocks of commands, want 2", len(blocks))
	}
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not on the PATH; install it to run the commands of the README")
	}
	start, printed, _ := strings.Cut(blocks[0], "\n")
	if start != "$ go run ./cmd/keelson" {
		t.Errorf("the server is started with %q", start)
	}
	t.Chdir(t.TempDir()) // the data directory is below the current one
	server := run(t, "--secure-port", "0")
	port := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	if got := strings.Join(server.lines, "\n") + "\n"; port.ReplaceAllString(got, "127.0.0.1:6443") != printed {
		t.Errorf("the server prints\n%s\nand the README says\n%s", got, printed)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	script := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", "trap 'kill $(jobs -p)' EXIT\n"+shellScript(blocks[1]))
	script.Env = append(os.Environ(), "HOME="+t.TempDir(), "PATH="+filepath.Dir(kubectl)+":"+os.Getenv("PATH"))
	script.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	script.Cancel = func() error { return syscall.Kill(-script.Process.Pid, syscall.SIGKILL) }
	var output bytes.Buffer
	script.Stdout, script.Stderr = &output, &output
	if err := script.Run(); err != nil {
		t.Errorf("%v\n%s\n%s", err, &output, server.stderr)
	}
	for _, want := range []string{"deployment.apps/web created", "colour: blue", `namespace "demo" deleted`} {
		if !strings.Contains(output.String(), want) {
			t.Errorf("nothing printed %q:\n%s", want, &output)
		}
	}
	server.stop(t)
}

// shellScript returns the commands of a block, each printed before it runs.
func shellScript(block string) string {
	var out strings.Builder
	for line := range strings.Lines(block) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			line = "echo " + quoted("$ "+strings.TrimSpace(command)) + "\n" + command
		}
		out.WriteString(line)
	}
	return out.String()
}

// quoted returns text as one word of a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
