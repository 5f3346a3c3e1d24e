package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/snapshot"
)

// damagedDir returns a data directory with ConfigMaps of 100 KB, a part of one of which is damaged on the disk.
func damagedDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	p := run(t, "serve", "--data-dir", dir, "--secure-port", "0")
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 150 { // more than a store collects in memory before it writes a table
		text := make([]byte, 100_000)
		for j := range text {
			text[j] = byte('a' + rng.IntN(26))
		}
		status, body := post(t, filepath.Join(dir, "kubeconfig"), "/api/v1/namespaces/default/configmaps",
			fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%03d"},"data":{"k":"%s"}}`, i, text))
		if status != http.StatusCreated {
			t.Fatalf("%d %.300s", status, body)
		}
	}
	p.stop(t)
	tables, err := filepath.Glob(filepath.Join(datadir.StoreDir(dir), "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	var largest string
	var content []byte
	for _, name := range tables {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > len(content) {
			largest, content = name, b
		}
	}
	for i := range 64 {
		content[len(content)/2+i] ^= 0xff
	}
	if err := os.WriteFile(largest, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestDamagedDirectory checks that check prints the lost object, and that a server serves all others and says what
// to do. A snapshot with --skip-damaged and a repaired directory have all but that object, and it can be deleted
// and created again.
func TestDamagedDirectory(t *testing.T) {
	dir := damagedDir(t)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	const list = "/api/v1/namespaces/default/configmaps"

	out, stderr, code := keelson("check", "--data-dir", dir)
	_, lost, found := strings.Cut(out, "lost: /registry/configmaps/default/")
	lost, _, _ = strings.Cut(lost, " ")
	if code != 1 || !found || !strings.Contains(stderr, "wrong with the data in") || strings.Contains(out+stderr, "carrier") {
		t.Fatalf("check: %d\n%.2000s%s", code, out, stderr)
	}

	p := run(t, "serve", "--data-dir", dir, "--secure-port", "0")
	if status, body := get(t, kubeconfig, list); status != http.StatusInternalServerError || !strings.Contains(body, "keelson repair") {
		t.Errorf("a list over damage: %d %.300s", status, body)
	}
	status, body := get(t, kubeconfig, "/readyz?verbose")
	if status != http.StatusOK || !strings.Contains(body, "warn: data on the disk is damaged") {
		t.Errorf("readyz: %d %.2000s", status, body)
	}
	if status, body := post(t, kubeconfig, "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"}}`); status != http.StatusCreated {
		t.Errorf("a write beside damage: %d %.300s", status, body)
	}
	file := filepath.Join(t.TempDir(), "snapshot")
	if _, stderr, code := keelson("snapshot", "save", file, "--data-dir", dir); code != 1 || !strings.Contains(stderr, "--skip-damaged") {
		t.Errorf("a snapshot of the running server: %d %s", code, stderr)
	}
	p.stop(t)

	if out := mustRun(t, "snapshot", "save", file, "--data-dir", dir, "--skip-damaged"); !strings.Contains(out, "default/"+lost+" ") {
		t.Errorf("what a snapshot lacks: %s", out)
	}
	if n := configMapsIn(t, file); n != 149 {
		t.Errorf("the snapshot has %d of the 149 ConfigMaps that can be read", n)
	}
	if out := mustRun(t, "repair", "--data-dir", dir); !strings.Contains(out, "default/"+lost+" ") || !strings.Contains(out, "1 entries") {
		t.Errorf("the repair: %s", out)
	}
	p = run(t, "serve", "--data-dir", dir, "--secure-port", "0")
	if status, body := get(t, kubeconfig, list); status != http.StatusInternalServerError || !strings.Contains(body, "default/"+lost) {
		t.Errorf("a list with a lost object: %d %.300s", status, body)
	}
	const option = "?ignoreStoreReadErrorWithClusterBreakingPotential=true"
	if status, body := ask(t, kubeconfig, http.MethodDelete, list+"/"+lost+option, ""); status != http.StatusOK {
		t.Errorf("deleting the lost object: %d %.300s", status, body)
	}
	if status, body := post(t, kubeconfig, list, `{"metadata":{"name":"`+lost+`"}}`); status != http.StatusCreated {
		t.Errorf("creating it again: %d %.300s", status, body)
	}
	if status, body := get(t, kubeconfig, list); status != http.StatusOK || strings.Count(body, `"uid"`) < 150 {
		t.Errorf("the list afterwards: %d, %d objects", status, strings.Count(body, `"uid"`))
	}
	p.stop(t)
	// The lost version stays in the history until its retention time is over.
	out, stderr, _ = keelson("check", "--data-dir", dir)
	if !strings.Contains(out, "default/"+lost+": its value was lost") || !strings.Contains(stderr, "1 thing is wrong") {
		t.Errorf("check of the repaired directory: %.1000s%s", out, stderr)
	}
}

// configMapsIn returns the number of the test's ConfigMaps in a snapshot.
func configMapsIn(t *testing.T, file string) (n int) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := backup.Verify(f, func(e snapshot.Entry) {
		if strings.HasPrefix(e.Key, "/registry/configmaps/default/c") {
			n++
		}
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestPurge checks that after a purge no file of the data directory has the past of an object, and that the object
// exists.
func TestPurge(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	kubeconfig := filepath.Join(dir, "kubeconfig")
	const secrets = "/api/v1/namespaces/default/secrets"
	p := run(t, "serve", "--data-dir", dir, "--secure-port", "0")
	for _, name := range []string{"deleted", "there"} {
		body := fmt.Sprintf(`{"metadata":{"name":"s-%s"},"stringData":{"k":"password-of-%s"}}`, name, name)
		if status, body := post(t, kubeconfig, secrets, body); status != http.StatusCreated {
			t.Fatalf("%d %.300s", status, body)
		}
	}
	if _, stderr, code := keelson("purge", "--data-dir", dir); code != 1 || !strings.Contains(stderr, "is used by another") {
		t.Errorf("a purge beside a server: %d %s", code, stderr)
	}
	if status, body := ask(t, kubeconfig, http.MethodDelete, secrets+"/s-deleted", ""); status != http.StatusOK {
		t.Fatalf("%d %.300s", status, body)
	}
	p.stop(t)
	has := func(text string) (in []string) {
		if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			if strings.Contains(string(content), text) {
				in = append(in, path)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return in
	}
	if len(has("password-of-deleted")) == 0 {
		t.Error("the deleted Secret is in no file before the purge")
	}
	if out := mustRun(t, "purge", "--data-dir", dir); !strings.Contains(out, "Removed what was before revision ") {
		t.Errorf("%s", out)
	}
	if in := has("password-of-deleted"); len(in) > 0 {
		t.Errorf("after the purge it is in %v", in)
	}
	p = run(t, "serve", "--data-dir", dir, "--secure-port", "0")
	if status, body := get(t, kubeconfig, secrets); status != http.StatusOK || strings.Contains(body, "s-deleted") || !strings.Contains(body, "s-there") {
		t.Errorf("%d %.300s", status, body)
	}
	p.stop(t)
}

// TestLeftCopyIsRemoved checks that the next command, and the start of a server, remove the copy that a killed
// check has left in the data directory. While a server uses the directory, commands do not remove it.
func TestLeftCopyIsRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	left := datadir.RepairedCopy(dir)
	leave := func() {
		t.Helper()
		if err := os.MkdirAll(left, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	leave()
	p := run(t, "serve", "--data-dir", dir, "--secure-port", "0")
	if _, err := os.Stat(left); err == nil {
		t.Error("the start of the server leaves it")
	}
	leave()
	if _, _, code := keelson("check", "--data-dir", dir); code == 0 {
		t.Error("a check of a running server succeeds")
	}
	if _, err := os.Stat(left); err != nil {
		t.Error("a check beside a running server removes it")
	}
	p.stop(t)
	if _, stderr, code := keelson("check", "--data-dir", dir); code != 0 {
		t.Errorf("check: %s", stderr)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("a check leaves it")
	}
}
