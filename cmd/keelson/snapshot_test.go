package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// progressLine matches the progress that a command prints every ten seconds. On a busy machine, commands take that
// long.
var progressLine = regexp.MustCompile(`(?m)^[A-Z][a-z]+: [0-9][^\n]*\n`)

// mustRun runs a command that must succeed and print nothing on stderr but its progress. It returns stdout.
func mustRun(t *testing.T, args ...string) string {
	t.Helper()
	out, stderr, code := keelson(args...)
	if code != 0 || progressLine.ReplaceAllString(stderr, "") != "" {
		t.Fatalf("keelson %s: exit code %d, %s", strings.Join(args, " "), code, stderr)
	}
	return out
}

func objectVersion(t *testing.T, body string) string {
	t.Helper()
	var o struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal([]byte(body), &o); err != nil {
		t.Fatal(err)
	}
	return o.Metadata.ResourceVersion
}

// TestSaveAndRestore saves a running server and its stopped directory, restores both snapshots, and serves them.
func TestSaveAndRestore(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	const path = "/api/v1/namespaces/default/configmaps"
	p := run(t, "serve", "--data-dir", in("data"), "--secure-port", "0", "--history-window", "1m")
	kubeconfig := filepath.Join(in("data"), "kubeconfig")
	if status, body := post(
		t, kubeconfig, path, `{"metadata":{"name":"a"},"data":{"k":"v"}}`,
	); status != http.StatusCreated {
		t.Fatal(status, body)
	}
	_, list := get(t, kubeconfig, path)
	before := objectVersion(t, list)

	hot := regexp.MustCompile(`^Saved \d+ entries at revision \d+ to .*/hot\n$`)
	if out := mustRun(t, "snapshot", "save", in("hot"), "--data-dir", in("data")); !hot.MatchString(out) {
		t.Errorf("hot: %q", out)
	}
	if out := mustRun(t, "snapshot", "save", in("remote"), "--kubeconfig", kubeconfig); !strings.HasPrefix(out, "Saved ") {
		t.Errorf("by kubeconfig: %q", out)
	}
	if info, err := os.Stat(in("hot")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a snapshot, which has secrets: %v, %v", info, err)
	}
	if _, stderr, code := keelson("check", "--data-dir", in("data")); code != 1 ||
		stderr != "keelson: the data directory "+in("data")+" is used by another process; stop that, or name another directory with --data-dir\n" {
		t.Errorf("check of a running server: %d %q", code, stderr)
	}
	p.stop(t)
	mustRun(t, "snapshot", "save", in("cold"), "--data-dir", in("data"))
	if out := mustRun(t, "check", "--data-dir", in("data")); !strings.HasPrefix(out, "Checked ") {
		t.Errorf("check: %q", out)
	}

	revisions := map[string]int64{} // after the writes of the test, the server itself still writes for a moment
	for _, name := range []string{"hot", "cold"} {
		var status snapshotStatus
		if err := json.Unmarshal([]byte(mustRun(t, "snapshot", "status", in(name), "-o", "json")), &status); err != nil {
			t.Fatal(err)
		}
		revisions[name] = status.Revision
		if at, err := strconv.ParseInt(before, 10, 64); err != nil || status.Revision < at ||
			status.Resources["configmaps"] < 1 || status.Resources["namespaces"] != 4 || len(status.SHA256) != 64 {
			t.Errorf("%s: %+v", name, status)
		}
		if out := mustRun(t, "snapshot", "status", in(name)); !strings.Contains(out, "\n  configmaps ") {
			t.Errorf("%s: %s", name, out)
		}
		restored := in("restored-" + name)
		mustRun(t, "snapshot", "restore", in(name), "--data-dir", restored, "--min-revision", "5000000000000")
		mustRun(t, "check", "--data-dir", restored)
		p := run(t, "serve", "--data-dir", restored, "--secure-port", "0")
		kubeconfig := filepath.Join(restored, "kubeconfig")
		status2, body := get(t, kubeconfig, path+"/a")
		if after := objectVersion(t, body); status2 != http.StatusOK || !strings.Contains(body, `"k":"v"`) ||
			len(after) != 13 {
			t.Errorf("%s: %d %s", name, status2, body)
		}
		// A client that has resourceVersions from before the restore must list again.
		if status, body := get(
			t, kubeconfig, path+"?watch=true&timeoutSeconds=5&resourceVersion="+before,
		); !strings.Contains(body, `"code":410`) {
			t.Errorf("%s: a watch from before: %d %s", name, status, body)
		}
		p.stop(t)
	}

	// With the history the object can be read as it was before the restore.
	if out := mustRun(t, "snapshot", "save", in("history"), "--history", "--data-dir", in("data")); !strings.Contains(out, " records of their history at revision ") {
		t.Errorf("with history: %q", out)
	}
	if out := mustRun(t, "snapshot", "status", in("history")); !strings.Contains(out, "format 2") || !strings.Contains(out, "\nhistory ") {
		t.Errorf("with history: %s", out)
	}
	mustRun(t, "check", "--snapshot", in("history"))
	past := in("restored-history")
	if out := mustRun(t, "snapshot", "restore", in("history"), "--data-dir", past); !strings.Contains(out, " records of their history of revision ") {
		t.Errorf("with history: %q", out)
	}
	p = run(t, "serve", "--data-dir", past, "--secure-port", "0")
	kubeconfig = filepath.Join(past, "kubeconfig")
	_, now := get(t, kubeconfig, path+"/a")
	if status, then := get(t, kubeconfig, path+"/a?asOf="+before); status != http.StatusOK || !strings.Contains(then, `"k":"v"`) ||
		objectVersion(t, then) == objectVersion(t, now) {
		t.Errorf("before the restore: %d %s", status, then)
	}
	if status, changes := get(t, kubeconfig, path+"/a/history"); status != http.StatusOK || !strings.Contains(changes, `"verb":"restore"`) ||
		!strings.Contains(changes, `"type":"Created"`) {
		t.Errorf("the history: %d %s", status, changes)
	}
	p.stop(t)

	exported := in("etcd.db")
	mustRun(t, "snapshot", "export-etcd", exported, "--data-dir", in("data"))
	mustRun(t, "snapshot", "import-etcd", exported, "--data-dir", in("imported"), "--keep-revisions")
	mustRun(t, "check", "--data-dir", in("imported"))
	mustRun(t, "snapshot", "save", in("again"), "--data-dir", in("imported"))
	var status snapshotStatus
	if err := json.Unmarshal([]byte(mustRun(t, "snapshot", "status", in("again"), "-o", "json")), &status); err != nil ||
		status.Revision != revisions["cold"] {
		t.Errorf("there and back: %+v, %v", status, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}

// TestSnapshotErrors checks that each error is one line with exit code 1, and that nothing was changed.
func TestSnapshotErrors(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	p := run(t, "serve", "--data-dir", in("data"), "--secure-port", "0")
	p.stop(t)
	mustRun(t, "snapshot", "save", in("good"), "--data-dir", in("data"))
	good, err := os.ReadFile(in("good"))
	if err != nil {
		t.Fatal(err)
	}
	good[len(good)/2] ^= 1
	for name, content := range map[string][]byte{
		"damaged": good, "short": good[:len(good)-50], "text": []byte("something else entirely"),
	} {
		if err := os.WriteFile(in(name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"snapshot", "save"}, "keelson snapshot save takes one argument, the file"},
		{
			[]string{"snapshot", "save", in("x"), "--data-dir", in("none")},
			"there is no store in the data directory " + in("none"),
		},
		{
			[]string{"snapshot", "save", in("none/x"), "--data-dir", in("data")},
			"cannot write " + in("none/x") + ": no such file or directory",
		},
		{
			[]string{"snapshot", "save", in("x"), "--kubeconfig", in("none")},
			"cannot read the kubeconfig " + in("none") + ": no such file or directory",
		},
		{[]string{"snapshot", "save", in("x"), "--kubeconfig", in("text")}, "the kubeconfig " + in("text") + ": "},
		{[]string{"snapshot", "save", in("x"), "--kubeconfig", in("data/kubeconfig")}, "cannot reach the server: "},
		{[]string{"snapshot", "status", in("none")}, "cannot read " + in("none") + ": no such file or directory"},
		{[]string{"snapshot", "status", in("text")}, in("text") + ": not a Keelson snapshot"},
		{
			[]string{"snapshot", "status", in("damaged")},
			in("damaged") + ": the snapshot is damaged: the checksum of the block at byte ",
		},
		{[]string{"snapshot", "status", in("good"), "-o", "yaml"}, "--output must be json"},
		{[]string{"snapshot", "restore", in("good")}, "--data-dir must name the directory to make"},
		{
			[]string{"snapshot", "restore", in("good"), "--data-dir", in("data")},
			"the data directory " + in("data") + " is not empty: it has kubeconfig",
		},
		{[]string{"snapshot", "restore", in("short"), "--data-dir", in("new")}, in("short") + ": the snapshot is damaged: "},
		{
			[]string{"snapshot", "restore", in("good"), "--data-dir", in("good")},
			"cannot use the data directory " + in("good") + " (--data-dir): not a directory",
		},
		{
			[]string{"snapshot", "import-etcd", in("good"), "--data-dir", in("new")},
			in("good") + ": the file has no SHA-256 at its end",
		},
		{[]string{"snapshot", "import-etcd", in("good"), "--data-dir", in("new"), "--skip-hash-check"}, in("good") + ": "},
		{
			[]string{"serve", "--snapshot-schedule", "1h", "--snapshot-recipient", "age1x", "--data-dir", in("new")},
			`--snapshot-recipient: "age1x" is not a public key of age: `,
		},
		{[]string{"serve", "--snapshot-schedule", "1s", "--data-dir", in("new")}, "--snapshot-schedule must be at least 1m"},
		{[]string{"serve", "--snapshot-keep", "0", "--data-dir", in("new")}, "--snapshot-keep must be at least 1"},
		{
			[]string{"serve", "--snapshot-dir", in("x"), "--data-dir", in("new")},
			"--snapshot-dir and --snapshot-recipient need --snapshot-schedule",
		},
		{[]string{"serve", "--snapshot-history", "--data-dir", in("new")}, "--snapshot-history needs --snapshot-schedule"},
		{
			[]string{"serve", "--snapshot-schedule", "1h", "--etcd-servers", "http://127.0.0.1:1"},
			"--snapshot-schedule is not for data in etcd: save it with `etcdctl snapshot save`",
		},
		{[]string{"check", "--data-dir", in("none")}, "there is no store in the data directory " + in("none")},
		{[]string{"serve", "--history-window", "0s", "--data-dir", in("new")}, "--history-window must be greater than 0"},
	} {
		_, stderr, code := keelson(c.args...)
		if code != 1 || !strings.HasPrefix(stderr, "keelson: "+c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("keelson %s: exit code %d, %q; want %q", strings.Join(c.args, " "), code, stderr, c.want)
		}
	}
	if entries, err := os.ReadDir(in("new")); err != nil || len(entries) != 1 { // the lock
		t.Errorf("a refused restore left %v, %v", entries, err)
	}
	mustRun(t, "snapshot", "restore", in("good"), "--data-dir", in("new"))
}

// TestInterruptedRestore checks that a server does not use the data of a killed restore, and that the restore can be
// run again.
func TestInterruptedRestore(t *testing.T) {
	dir := t.TempDir()
	p := run(t, "serve", "--data-dir", filepath.Join(dir, "data"), "--secure-port", "0")
	p.stop(t)
	file, to := filepath.Join(dir, "file"), filepath.Join(dir, "to")
	mustRun(t, "snapshot", "save", file, "--data-dir", filepath.Join(dir, "data"))
	if err := os.MkdirAll(filepath.Join(to, restoringName, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := keelson("serve", "--data-dir", to, "--secure-port", "0"); code != 1 ||
		!strings.Contains(stderr, "was interrupted: run it again") {
		t.Errorf("serve on what an interrupted restore left: %d %s", code, stderr)
	}
	mustRun(t, "snapshot", "restore", file, "--data-dir", to)
	if _, err := os.Stat(filepath.Join(to, restoringName)); err == nil {
		t.Error("it is still there")
	}
	mustRun(t, "check", "--data-dir", to)
}

// storeOf makes a data directory whose store has the given values, by key.
func storeOf(t *testing.T, values map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	s, err := embedded.Open(embedded.Options{Dir: datadir.StoreDir(dir)})
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range values {
		if _, err := s.Commit(t.Context(), storage.Txn{Ops: []storage.Op{storage.Put(key, value)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// reference returns values that kube-apiserver stored in etcd, by key.
func reference(t *testing.T) map[string][]byte {
	t.Helper()
	f, err := os.Open("../../internal/object/registry/testdata/etcd-dump.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string][]byte{}
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var d struct {
			Key   string
			Value []byte
		}
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
		values[d.Key] = d.Value
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return values
}

// TestCheckOfReferenceData checks that the check accepts the values that kube-apiserver wrote.
func TestCheckOfReferenceData(t *testing.T) {
	values := reference(t)
	out, stderr, code := keelson("check", "--data-dir", storeOf(t, values))
	if code != 0 || !strings.Contains(out, fmt.Sprintf("%d keys", len(values))) {
		t.Errorf("exit code %d, %s%s", code, out, stderr)
	}
}

// TestCheckFinds stores values that do not match their keys, and checks that each is reported.
func TestCheckFinds(t *testing.T) {
	values := reference(t)
	const namespace = "/registry/namespaces/default"
	good := values[namespace]
	if good == nil {
		t.Fatal("there is no namespace in kube-apiserver's data")
	}
	planted := map[string][]byte{
		"/elsewhere":                                     good,
		"/registry/nothing/default/x":                    good,
		"/registry/pods/default/default":                 good,
		"/registry/namespaces/other":                     good,
		"/registry/namespaces/a/b":                       good,
		"/registry/configmaps/lonely":                    good,
		"/registry/namespaces/short":                     good[:len(good)-10],
		"/registry/namespaces/text":                      []byte("text"),
		"/registry/apiregistration.k8s.io/apiservices/x": []byte(`{"kind":"Pod","apiVersion":"v1"}`),
		"/registry/example.com/things/default/x": []byte(
			`{"kind":"Thing","apiVersion":"example.com/v1","metadata":{"name":"y","namespace":"default"}}`,
		),
		"/registry/example.com/things/default/z": []byte(`{`),
		"/registry/secrets/default/sealed":       []byte("k8s:enc:aescbc:v1:key:xxxx"),
	}
	planted[namespace] = good
	one := map[string][]byte{namespace: good, "/elsewhere": good}
	if _, stderr, code := keelson("check", "--data-dir", storeOf(t, one)); code != 1 ||
		!strings.HasPrefix(stderr, "keelson: 1 thing is wrong with the data in ") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	out, stderr, code := keelson("check", "--data-dir", storeOf(t, planted))
	if code != 1 || !strings.HasPrefix(stderr, "keelson: ") ||
		!strings.Contains(stderr, " things are wrong with the data in ") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	for _, want := range []string{
		"key /elsewhere: it is not below /registry/",
		`key /registry/nothing/default/x: "nothing" is not a place of a resource`,
		`key /registry/pods/default/default: its value is a "Namespace" of "v1", not a Pod of v1`,
		`key /registry/namespaces/other: its object is "default"`,
		`key /registry/namespaces/a/b: "a/b" is not the name of an object of namespaces`,
		`key /registry/configmaps/lonely: "lonely" is not the name of an object of configmaps`,
		"key /registry/namespaces/short: its protobuf envelope cannot be read: unexpected EOF",
		"key /registry/namespaces/text: its value is not a protobuf envelope",
		`key /registry/apiregistration.k8s.io/apiservices/x: its value is a "Pod" of "v1",` +
			` not a APIService.apiregistration.k8s.io`,
		`key /registry/example.com/things/default/x: its object is "default/y"`,
		"key /registry/example.com/things/default/z: its value is not a JSON object: unexpected end of JSON input",
		"1 values are encrypted and were not read",
	} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	for _, not := range []string{namespace + ":", "sealed:"} {
		if strings.Contains(out, not) {
			t.Errorf("it complains of %q:\n%s", not, out)
		}
	}
}

// TestScheduledSnapshots starts a server that writes encrypted snapshots, checks and restores the first one, and starts a
// server from it. The restored server has the same keys: a token and a certificate of the first one are valid.
func TestScheduledSnapshots(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	encryption := `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"EncryptionConfiguration","resources":[{"resources":["secrets"],` +
		`"providers":[{"secretbox":{"keys":[{"name":"k","secret":"` + base64.StdEncoding.EncodeToString(make([]byte, 32)) + `"}]}}]}]}`
	for name, content := range map[string]string{"key.txt": key.String() + "\n", "encryption.json": encryption} {
		if err := os.WriteFile(in(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	serve := []string{"serve", "--data-dir", in("data"), "--secure-port", "0", "--encryption-provider-config", in("encryption.json")}
	kubeconfig := filepath.Join(in("data"), "kubeconfig")
	p := run(t, serve...)
	mustRequestToken(t, kubeconfig) // so the snapshot has the service account
	p.stop(t)
	if err := os.Remove(in("data/pki/sa.key")); err != nil { // a new server writes it during its start
		t.Fatal(err)
	}
	p = run(t, append(serve, "--snapshot-schedule", "1h", "--snapshot-recipient", key.Recipient().String())...)
	file := awaitSnapshot(t, in("data/backups"))
	awaitMetric(t, kubeconfig, `keelson_snapshots_total{status="success"} 1`)
	token := mustRequestToken(t, kubeconfig)
	p.stop(t)

	if _, stderr, code := keelson("snapshot", "status", file); code != 1 ||
		!strings.Contains(stderr, "the snapshot is encrypted; --identity names the file with its key") {
		t.Errorf("without the key: %d %s", code, stderr)
	}
	if out := mustRun(t, "snapshot", "status", file, "--identity", in("key.txt")); !strings.Contains(out, " pki/ca.key ") {
		t.Errorf("status: %s", out)
	}
	t.Setenv("TMPDIR", in("data/store"))
	before := entries(t, in("data/store"))
	out := mustRun(t, "check", "--snapshot", file, "--identity", in("key.txt"))
	if !strings.Contains(out, " can be restored: ") || !strings.HasPrefix(out, "Checked ") {
		t.Errorf("check: %s", out)
	}
	if after := entries(t, in("data/store")); !slices.Equal(before, after) {
		t.Errorf("check of a snapshot left %v, there were %v", after, before)
	}
	mustRun(t, "snapshot", "restore", file, "--identity", in("key.txt"), "--data-dir", in("restored"))
	for _, name := range []string{"pki/ca.key", "pki/ca.crt", "pki/front-proxy-ca.key", "pki/sa.key"} {
		was, err1 := os.ReadFile(in("data/" + name))
		is, err2 := os.ReadFile(in("restored/" + name))
		if err := errors.Join(err1, err2); err != nil || !bytes.Equal(was, is) {
			t.Errorf("%s is another one: %v", name, err)
		}
	}
	p = run(t, "serve", "--data-dir", in("restored"), "--secure-port", "0",
		"--encryption-provider-config", in("restored/encryption-provider-config.yaml"))
	if status, body := get(t, filepath.Join(in("restored"), "kubeconfig"), "/api/v1/namespaces/default"); status != http.StatusOK {
		t.Errorf("the restored server: %d %s", status, body)
	}
	if user := userOfToken(t, filepath.Join(in("restored"), "kubeconfig"), token); user != "system:serviceaccount:default:default" {
		t.Errorf("on the restored server the token is of %q", user)
	}
	p.stop(t)
}

// awaitMetric waits until the metrics of a server have a line. A snapshot file gets its name before it is counted.
func awaitMetric(t *testing.T, kubeconfig, line string) {
	t.Helper()
	name, _, _ := strings.Cut(line, "{")
	wait.Seen(t, "the metric "+line, func() (bool, string) {
		status, body := get(t, kubeconfig, "/metrics")
		var found []string
		for l := range strings.Lines(body) {
			if strings.HasPrefix(l, name) {
				found = append(found, l)
			}
		}
		return slices.Contains(found, line+"\n"), fmt.Sprintf("status %d, %q", status, found)
	})
}

// mustRequestToken returns a token of the service account default/default. It waits until a new server has created
// that.
func mustRequestToken(t *testing.T, kubeconfig string) string {
	t.Helper()
	var answer struct{ Status struct{ Token string } }
	wait.Seen(t, "a token of default/default", func() (bool, string) {
		status, body := post(t, kubeconfig, "/api/v1/namespaces/default/serviceaccounts/default/token", `{"spec":{}}`)
		ok := status == http.StatusCreated && json.Unmarshal([]byte(body), &answer) == nil
		return ok, fmt.Sprintf("%d %.300s", status, body)
	})
	return answer.Status.Token
}

// userOfToken returns the name of the token's user, "" if the token is not valid.
func userOfToken(t *testing.T, kubeconfig, token string) string {
	t.Helper()
	status, body := post(t, kubeconfig, "/apis/authentication.k8s.io/v1/tokenreviews", `{"apiVersion":"authentication.k8s.io/v1",`+
		`"kind":"TokenReview","spec":{"token":"`+token+`"}}`)
	var answer struct {
		Status struct{ User struct{ Username string } }
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusCreated {
		t.Fatalf("the review of a token: %d %.300s", status, body)
	}
	return answer.Status.User.Username
}

// awaitSnapshot waits for the first snapshot in a directory and returns its path.
func awaitSnapshot(t *testing.T, dir string) string {
	t.Helper()
	return wait.Value(t, "a snapshot in "+dir, func() (string, error) {
		found, err := filepath.Glob(filepath.Join(dir, "keelson-*"))
		if err == nil && len(found) == 0 {
			err = errors.New("there is none")
		}
		if err != nil {
			return "", err
		}
		return found[0], nil
	})
}

func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// TestCheckOfDamagedSnapshot checks the errors for a snapshot that cannot be restored, and for one with unreadable
// values.
func TestCheckOfDamagedSnapshot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "snapshot")
	mustRun(t, "snapshot", "save", file, "--data-dir", storeOf(t, map[string][]byte{"/registry/namespaces/text": []byte("text")}))
	out, stderr, code := keelson("check", "--snapshot", file)
	if code != 1 || !strings.Contains(stderr, "1 thing is wrong with "+file) || strings.Contains(out, "can be restored") {
		t.Errorf("a wrong value: %d %s%s", code, out, stderr)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content[:len(content)-10], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := keelson("check", "--snapshot", file); code != 1 || !strings.Contains(stderr, "the snapshot is damaged") {
		t.Errorf("a short file: %d %s", code, stderr)
	}
}
