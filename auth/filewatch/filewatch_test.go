package filewatch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestFileIsReadUntilItIsApplied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	var used, failed []string
	broken, busy := errors.New("broken"), errors.New("busy")
	f := &File{
		Path: path,
		Apply: func(content []byte) error {
			used = append(used, string(content))
			switch string(content) {
			case "broken":
				return broken
			case "busy":
				return Retryable(busy)
			}
			return nil
		},
		OnError: func(err error) { failed = append(failed, err.Error()) },
	}
	current := []byte("a")
	for _, step := range []struct {
		content      string // "-" is no file
		used, failed []string
	}{
		{"a", nil, nil},
		{"b", []string{"b"}, nil},
		{"b", nil, nil},
		{"broken", []string{"broken"}, []string{"broken"}},
		{"broken", nil, nil}, // it stays broken
		{"busy", []string{"busy"}, []string{"busy"}},
		{"busy", []string{"busy"}, []string{"busy"}}, // it may not stay busy
		{"-", nil, []string{"open " + path + ": no such file or directory"}},
		{"b", []string{"b"}, nil},
	} {
		used, failed = nil, nil
		if step.content == "-" {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(path, []byte(step.content), 0o600); err != nil {
			t.Fatal(err)
		}
		current = f.check(current)
		if !slices.Equal(used, step.used) || !slices.Equal(failed, step.failed) {
			t.Errorf("%s: used %q, failed %q", step.content, used, failed)
		}
	}
}
