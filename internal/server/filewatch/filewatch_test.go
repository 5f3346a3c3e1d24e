package filewatch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// part is a part of the configuration whose first file may name a second one: "see b".
type part struct {
	dir    string
	busy   string   // why nothing can be applied; "" if it can
	used   []string // contents that are in effect
	tried  int
	report []string
	now    time.Time
	Watch
}

func newPart(t *testing.T) *part {
	p := &part{dir: t.TempDir(), now: time.Unix(1000, 0)}
	p.Watch = Watch{Apply: p.apply, Now: func() time.Time { return p.now }, Report: func(err error) {
		if err == nil {
			p.report = append(p.report, "applied")
		} else {
			p.report = append(p.report, strings.ReplaceAll(err.Error(), p.dir+"/", ""))
		}
	}}
	return p
}

func (p *part) apply(read Read) error {
	p.tried++
	var all []string
	for next := "a"; next != ""; {
		content, err := read(filepath.Join(p.dir, next))
		if err != nil {
			return err
		}
		text := string(content)
		if strings.HasPrefix(text, "bad") {
			return fmt.Errorf("%s is %s", next, text)
		}
		all = append(all, text)
		_, next, _ = strings.Cut(text, "see ")
	}
	if p.busy != "" {
		return errors.New(p.busy)
	}
	p.used = all
	return nil
}

func (p *part) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// expect compares the contents in effect, and the reports since the last call, with the expected ones.
func (p *part) expect(t *testing.T, step, used string, report ...string) {
	t.Helper()
	if got := strings.Join(p.used, "|"); got != used || !slices.Equal(p.report, report) {
		t.Errorf("%s: %q is in effect, not %q; reported %q, not %q", step, got, used, p.report, report)
	}
	p.report = nil
}

func TestChangesAreAppliedAndReportedOnce(t *testing.T) {
	p := newPart(t)
	if p.Load() == nil {
		t.Error("a missing file is no error")
	}
	p.write(t, "a", "one")
	if err := p.Load(); err != nil {
		t.Fatal(err)
	}
	p.expect(t, "load", "one")
	step := func(name, content, used string, report ...string) {
		t.Helper()
		p.write(t, "a", content)
		p.Check()
		p.expect(t, name, used, report...)
	}
	step("the same content", "one", "one")
	if p.tried != 2 {
		t.Errorf("applied %d times: the same content is applied again", p.tried)
	}
	step("a change", "two", "two", "applied")
	step("no change", "two", "two")
	step("a bad file", "bad", "two", "a is bad")
	step("the same bad file", "bad", "two")
	step("another bad file", "bad again", "two", "a is bad again")
	if err := os.Remove(filepath.Join(p.dir, "a")); err != nil {
		t.Fatal(err)
	}
	p.Check()
	p.expect(t, "no file", "two", "open a: no such file or directory")
	p.Check()
	p.expect(t, "still no file", "two")
	step("the file from before", "two", "two", "applied")
}

func TestFilesThatAFileNamesAreFollowed(t *testing.T) {
	p := newPart(t)
	p.write(t, "a", "see b")
	p.write(t, "b", "one")
	if err := p.Load(); err != nil {
		t.Fatal(err)
	}
	p.write(t, "b", "two")
	p.Check()
	p.expect(t, "the second file", "see b|two", "applied")
	p.write(t, "b", "bad")
	p.Check()
	p.expect(t, "the second file is bad", "see b|two", "b is bad")
	p.write(t, "c", "three")
	p.write(t, "a", "see c")
	p.Check()
	p.expect(t, "another second file", "see c|three", "applied")
	p.write(t, "b", "four")
	p.Check()
	p.expect(t, "a file that is not named any more", "see c|three")
}

func TestFailuresOutsideOfTheFilesAreTriedAgain(t *testing.T) {
	p := newPart(t)
	p.write(t, "a", "one")
	if err := p.Load(); err != nil {
		t.Fatal(err)
	}
	p.busy = "busy 1"
	p.write(t, "a", "two")
	p.Check()
	p.expect(t, "busy", "one", "busy 1")
	p.busy = "busy 2"
	p.Check()
	p.expect(t, "another reason at once", "one")
	p.now = p.now.Add(repeatAfter)
	p.Check()
	p.expect(t, "another reason later", "one", "busy 2")
	p.now = p.now.Add(repeatAfter)
	p.Check()
	p.expect(t, "the same reason", "one")
	p.busy = ""
	p.Check()
	p.expect(t, "not busy", "two", "applied")
}

func TestRefreshLooksAtSizeAndTime(t *testing.T) {
	p := newPart(t)
	path := filepath.Join(p.dir, "a")
	p.write(t, "a", "one")
	at := time.Unix(1_000_000, 0)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	if err := p.Load(); err != nil {
		t.Fatal(err)
	}
	p.write(t, "a", "two")
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	p.Refresh()
	p.expect(t, "the same size and time", "one")
	if err := os.Chtimes(path, at, at.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	p.Refresh()
	p.expect(t, "another time", "two", "applied")
	p.write(t, "a", "bad")
	p.Refresh()
	p.expect(t, "bad", "two", "a is bad")
	tried := p.tried
	p.Refresh()
	if p.tried != tried {
		t.Error("a bad file is applied again although nothing has changed")
	}
}

// TestFilesBeingWritten checks beingWritten for files that were changed at different times.
func TestFilesBeingWritten(t *testing.T) {
	p := newPart(t)
	path := filepath.Join(p.dir, "a")
	p.write(t, "a", "one")
	if err := p.Load(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if p.now = info.ModTime(); p.beingWritten() {
		t.Error("a file as it was applied is being written")
	}
	p.write(t, "a", "")
	for age, want := range map[time.Duration]bool{
		0: true, writing - 1: true, writing: false, time.Hour: false, -time.Second: false,
	} {
		at := p.now.Add(-age)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		if p.beingWritten() != want {
			t.Errorf("changed %v ago: %v, not %v", age, !want, want)
		}
	}
}

// TestRunChecksWhenItIsWoken waits for the effect of a signal. The interval is too long to have an effect.
func TestRunChecksWhenItIsWoken(t *testing.T) {
	p := newPart(t)
	p.write(t, "a", "one")
	if err := p.Load(); err != nil {
		t.Fatal(err)
	}
	applied := make(chan error, 1)
	p.Report = func(err error) { applied <- err }
	var wake Signal
	go p.Run(t.Context(), time.Hour, &wake)
	for _, content := range []string{"two", "three"} {
		p.write(t, "a", content)
		wake.Fire()
		select {
		case err := <-applied:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("30 s after the signal %q is not applied", content)
		}
	}
}
