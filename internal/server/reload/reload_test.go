package reload

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/background"
	"github.com/keelson-dev/keelson/internal/server/certs"
	"github.com/keelson-dev/keelson/internal/server/filewatch"
)

// TestPartsThatAreLoadedLateAreFollowed loads a part after Start.
func TestPartsThatAreLoadedLateAreFollowed(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	files, work := New(time.Hour, log, metrics.New(nil, metrics.Options{})), background.New(log)
	t.Cleanup(func() { work.Stop(context.Background()) })
	files.Start(work)
	applied, path := make(chan string, 10), filepath.Join(t.TempDir(), "f")
	write := func(content string) { // writes the whole file at once, because it is being followed
		t.Helper()
		if err := certs.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	for range 2 { // two files of one flag
		_, err := files.Load(Part{Flag: "--some-file", Path: path, Apply: func(read filewatch.Read) error {
			content, err := read(path)
			applied <- string(content)
			return err
		}})
		if err != nil || wait.Receive(t, "the first content", applied) != "one" {
			t.Fatal(err)
		}
	}
	write("second")
	files.Check()
	for range 2 {
		if got := wait.Receive(t, "the second content", applied); got != "second" {
			t.Error(got)
		}
	}
}

// TestErrorsNameTheField checks that an error names the field that a flag sets, or the flag if it sets none.
func TestErrorsNameTheField(t *testing.T) {
	cause := errors.New("cause")
	for flag, want := range map[string]string{"--token-auth-file": "--token-auth-file: cause", "--other": "--other: cause"} {
		if err := OfField(flag, cause); config.CommandLine(err) != want || !errors.Is(err, cause) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
