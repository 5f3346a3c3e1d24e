package chaos

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/test/rig"
)

// childDir is an environment variable. It is set for the test binary when it runs as the process that is killed.
const childDir = "KEELSON_CHAOS_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		fmt.Fprintln(os.Stderr, victim(dir))
		os.Exit(1)
	}
	if dir := os.Getenv(manifestDir); dir != "" {
		fmt.Fprintln(os.Stderr, brokenManifest(dir))
		os.Exit(1)
	}
	var err error
	if programs, err = os.MkdirTemp("", "keelson-chaos-*"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(programs) // the system removes what is left
	os.Exit(code)
}

// victim opens the store, writes and watches. For each acknowledged write and each event it prints one line to
// standard output, until it is killed.
func victim(dir string) error {
	s, err := embedded.Open(
		options(embedded.Options{Dir: dir, HistoryWindow: 300 * time.Millisecond, CompactInterval: 20 * time.Millisecond}),
	)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	out := bufio.NewWriter(os.Stdout)
	record := func(n knownChange) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, "%v\n", n)
		out.Flush()
	}
	ctx := context.Background()
	from, err := s.Revision(ctx)
	if err != nil {
		return err
	}
	failed := make(chan error)
	for i := range 8 {
		go func() { failed <- write(ctx, s, i, record) }()
	}
	go func() { failed <- watch(ctx, s, from+1, record) }()
	return <-failed
}

// TestKill kills a process that writes, again and again on the same directory. After each kill, everything that the
// process has printed must be in the store.
func TestKill(t *testing.T) {
	rng := rig.Seeded(t)
	dir := t.TempDir()
	l := newAcknowledgedChanges()
	for round := range rig.Rounds(6, 200) {
		before := l.size()
		runVictim(t, dir, time.Duration(rng.Int64N(int64(400*time.Millisecond))), round%2 == 1, l)
		s, err := embedded.Open(options(embedded.Options{Dir: dir}))
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		verify(t, s, l.copy())
		t.Logf("round %d: %d changes acknowledged, %+v", round, l.size()-before, s.Stats())
		l.forget(floorOf(s))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	if l.size() == 0 {
		t.Error("no change was acknowledged in any round")
	}
}

// runVictim runs a process that writes, and kills it after a time: from its start, so that it may not be through with opening the
// store, or from its first acknowledged change.
func runVictim(t *testing.T, dir string, life time.Duration, fromChange bool, l *acknowledgedChanges) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wait := life
	if fromChange {
		wait = 2 * time.Minute // for a machine that is busy
	}
	timer := time.AfterFunc(wait, func() { cmd.Process.Kill() })
	defer timer.Stop()
	read := bufio.NewReader(stdout)
	for {
		line, err := read.ReadString('\n')
		if err != nil {
			if err != io.EOF {
				t.Fatal(err)
			}
			break // a line without a line feed was not printed completely
		}
		if fromChange {
			timer.Reset(life)
			fromChange = false
		}
		n, err := parseKnownChange(strings.TrimSuffix(line, "\n"))
		if err == nil {
			err = l.add(n)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd.Wait() // returns an error because the process was killed
	if stderr.Len() > 0 {
		t.Fatalf("the process failed by itself: %s", stderr.String())
	}
}

func parseKnownChange(line string) (knownChange, error) {
	f := strings.Split(line, " ")
	if len(f) != 4 {
		return knownChange{}, fmt.Errorf("not a change: %q", line)
	}
	revision, err := strconv.ParseInt(f[0], 10, 64)
	return knownChange{revision: revision, key: f[1], value: f[2], deleted: f[3] == "true"}, err
}
