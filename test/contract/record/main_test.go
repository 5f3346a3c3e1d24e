package main

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fake is a server of a minor that answers GET /version and GET /a.
func fake(t *testing.T, minor, answer string) string {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/version":
			_, _ = w.Write([]byte(`{"major":"1","minor":"99","emulationMajor":"1","emulationMinor":"` + minor + `"}`))
		case answer == "":
			panic(http.ErrAbortHandler)
		default:
			_, _ = w.Write([]byte(answer))
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// recording writes a recording of 1.37 with one scenario.
func recording(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(`{"name":"a/b","namespace":false,"steps":[{"do":"GET /a","expect":{"status":200,` +
		`"type":"application/json","body":{"v":"one"}}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"a.jsonl.gz": b.Bytes(), "newest.txt": []byte("1.37\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// record runs the command on a recording that it replaces.
func record(t *testing.T, dir, server string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := run(t.Context(), append([]string{"--server", server, "--token", "secret", "--in", dir, "--out", dir}, args...), &out)
	return out.String(), err
}

// TestRecordThenReplay records an older and a newer minor; each is then replayed without a difference, and a server that
// answers otherwise is found.
func TestRecordThenReplay(t *testing.T) {
	dir := recording(t)
	older, newer := fake(t, "36", `{"v":"zero"}`), fake(t, "38", `{"v":"two"}`)
	for _, server := range []string{older, newer} {
		if out, err := record(t, dir, server); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for _, server := range []string{older, newer, fake(t, "37", `{"v":"one"}`)} {
		if out, err := record(t, dir, server, "--replay"); err != nil || !strings.Contains(out, "1 steps, 0 scenarios differ") {
			t.Errorf("%v\n%s", err, out)
		}
	}
	out, err := record(t, dir, fake(t, "37", `{"v":"two"}`), "--replay")
	if err == nil || !strings.Contains(out, `.v: want "one" got "two"`) {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := record(t, dir, fake(t, "35", `{}`), "--replay"); err == nil || !strings.Contains(err.Error(), "1.35") {
		t.Errorf("error %v", err)
	}
}

// TestSameAnswersAreStoredOnce records a minor that answers as the one after it.
func TestSameAnswersAreStoredOnce(t *testing.T) {
	dir := recording(t)
	out, err := record(t, dir, fake(t, "36", `{"v":"one"}`))
	if err != nil || !strings.Contains(out, "1.36: 0 steps differ") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestBrokenServer: nothing is written if a request got no answer.
func TestBrokenServer(t *testing.T) {
	dir := recording(t)
	if out, err := record(t, dir, fake(t, "38", "")); err == nil {
		t.Errorf("no error: %s", out)
	}
	content, err := os.ReadFile(filepath.Join(dir, "newest.txt"))
	if err != nil || string(content) != "1.37\n" {
		t.Errorf("%q %v", content, err)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{
		{}, {"--server", "x"}, {"--server", "x", "--reference", "y", "--etcd", "z", "--out", "o"}, {"--reference", "y", "--out", "o"},
		{"--server", "x", "--out", "o", "more"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v are accepted", args)
		}
	}
}
