// Package transcript runs the commands of a document and compares what they print with what the document says.
//
// A block of commands begins with ```sh, and the block after it, which begins with ```text, is what they print, errors
// too. Ages (0s, 12m) are equal to each other.
package transcript

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Step is a block of commands with its output.
type Step struct{ Script, Output string }

// Read returns the steps in a section of a document.
func Read(file, section string) ([]Step, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	_, text, found := strings.Cut(string(content), "\n## "+section+"\n")
	if !found {
		return nil, fmt.Errorf("%s has no section %q", file, section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var steps []Step
	for _, m := range regexp.MustCompile("(?s)\n```sh\n(.*?)```\n\n```text\n(.*?)```\n").FindAllStringSubmatch(text, -1) {
		steps = append(steps, Step{m[1], m[2]})
	}
	if n := strings.Count(text, "```sh\n"); n != len(steps) {
		return nil, fmt.Errorf("%d of %d blocks of commands in %q have no output", n-len(steps), n, section)
	}
	return steps, nil
}

// Run runs the commands with bash for at most a minute, with environment variables of the form NAME=value, and returns
// what they print.
func (s Step) Run(ctx context.Context, environment ...string) string {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-c", s.Script)
	c.Env = append(os.Environ(), environment...)
	c.WaitDelay = time.Second
	out, err := c.CombinedOutput()
	if ctx.Err() != nil {
		return fmt.Sprintf("%s\nnot within a minute: %v", out, err)
	}
	return string(out)
}

var age = regexp.MustCompile(`\b\d+(ms|s|m)\b( *)`)

// Differs returns how an output differs from that of the document, "" if it does not.
func (s Step) Differs(output string) string {
	want, got := lines(s.Output), lines(output)
	if slices.Equal(want, got) {
		return ""
	}
	return fmt.Sprintf("$ %s\nprints\n%s\nnot\n%s", s.Script, strings.Join(got, "\n"), strings.Join(want, "\n"))
}

func lines(text string) []string {
	return strings.Split(age.ReplaceAllString(strings.TrimSpace(text), "0s"), "\n")
}
