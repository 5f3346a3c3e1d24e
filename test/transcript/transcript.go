// Package transcript runs the commands of a document and compares what they print with what the document says.
//
// A block of commands begins with ```sh, and the block after it, which begins with ```text, is what they print, errors
// too. Ages (0s, 12m) are equal to each other, and so are runs of two spaces or more within a line. What else is different
// each time (times, revisions, UIDs) is learned from the outputs: see Values.
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

var spaces = regexp.MustCompile(`(\S) {2,}`)

func lines(text string) []string {
	text = spaces.ReplaceAllString(age.ReplaceAllString(strings.TrimSpace(text), "0s"), "$1  ")
	return strings.Split(text, "\n")
}

// Values has, for times, revisions and UIDs in a document, those that the commands really printed. A document may use a value of
// one output in a later command, and has to show it as the same value in later outputs.
type Values map[string]string

// value finds times, UIDs, the revision after a time in a table, and the resourceVersion in YAML.
var value = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z(?: +\d+\b)?` +
	`|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|resourceVersion: "\d+"`)

// Learn remembers which values an output has in the places of those in the document. It learns nothing if there are more or
// fewer of them.
func (v Values) Learn(document, output string) {
	want, got := value.FindAllString(document, -1), value.FindAllString(output, -1)
	if len(want) != len(got) {
		return
	}
	for i := range want {
		was, is := strings.Fields(want[i]), strings.Fields(got[i])
		if len(was) != len(is) {
			return
		}
		for j := range was {
			was, is := strings.Trim(was[j], `"`), strings.Trim(is[j], `"`)
			if _, known := v[was]; !known {
				v[was] = is
			}
		}
	}
}

// In returns a step with the values that were learned.
func (v Values) In(s Step) Step {
	return Step{v.replace(s.Script), v.replace(s.Output)}
}

func (v Values) replace(text string) string {
	return word.ReplaceAllStringFunc(text, func(w string) string {
		if is, known := v[w]; known {
			return is
		}
		return w
	})
}

// word finds what may be a value.
var word = regexp.MustCompile(`[\w.:-]+`)
