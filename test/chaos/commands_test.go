package chaos

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/test/rig"
)

// command runs the program until it ends, or kills it after life. It returns what the program has printed.
func (p *program) command(t *testing.T, life time.Duration, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), life) // kills the program after life
	defer cancel()
	out, err := exec.CommandContext(ctx, p.binary, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("keelson %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// must runs a command and fails the test unless the command succeeds.
func (p *program) must(t *testing.T, args ...string) {
	t.Helper()
	if _, err := p.command(t, patience, args...); err != nil {
		t.Fatal(err)
	}
}

// TestKilledRestore kills `snapshot restore` and `snapshot import-etcd` at random moments. Afterwards the directory
// has no store or a complete one, and the same command succeeds when it is run again.
func TestKilledRestore(t *testing.T) {
	rng, p := rig.Seeded(t), buildProgram(t)
	in := func(name string) string { return filepath.Join(p.dir, name) }
	const keys = 3000
	s, err := embedded.Open(options(embedded.Options{Dir: in("from/store")}))
	if err != nil {
		t.Fatal(err)
	}
	for first := 0; first < keys; first += 100 {
		var txn storage.Txn
		for i := range 100 {
			name := fmt.Sprintf("c%05d", first+i)
			object := fmt.Sprintf(
				`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"namespace":"default","name":%q},"pad":%q}`, name,
				strings.Repeat("x", rng.IntN(2000)),
			)
			txn.Ops = append(txn.Ops, storage.Put("/registry/example.com/things/default/"+name, []byte(object)))
		}
		if _, err := s.Commit(t.Context(), txn); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	p.must(t, "snapshot", "save", in("file"), "--data-dir", in("from"))
	p.must(t, "snapshot", "export-etcd", in("file.db"), "--data-dir", in("from"))
	commands := [][]string{{"snapshot", "restore", in("file")}, {"snapshot", "import-etcd", in("file.db")}}
	whole := 0
	for round := range rig.Rounds(effort.Rounds(6, 2), 200) {
		to := in(fmt.Sprint("to-", round))
		command := append(commands[round%2 : round%2+1][0], "--data-dir", to)
		began := time.Now()
		// killed, or it has ended before
		_, _ = p.command(t, time.Duration(rng.Int64N(int64(150*time.Millisecond))), command...)
		_, err := os.Stat(filepath.Join(to, "store"))
		if err != nil {
			p.must(t, command...)
		} else {
			whole++
		}
		p.must(t, "check", "--data-dir", to)
		if n := countKeys(t, filepath.Join(to, "store")); n != keys {
			t.Fatalf("round %d, %v after it began: %d keys, want %d", round, time.Since(began), n, keys)
		}
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d were faster than their end", whole)
}

func countKeys(t *testing.T, dir string) int64 {
	t.Helper()
	s, err := embedded.Open(options(embedded.Options{Dir: dir}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := s.Range(t.Context(), storage.RangeRequest{Start: "/registry/example.com/", CountOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	return r.Count
}

// TestKilledFirstStart kills the server at random moments of its first start, again and again on the same directory.
// The next start that is not killed must succeed, create the objects that every server starts with, and find no
// damaged data.
func TestKilledFirstStart(t *testing.T) {
	rng, p := rig.Seeded(t), buildProgram(t)
	transport := insecure()
	defer transport.CloseIdleConnections()
	for round := range rig.Rounds(3, 60) {
		p.dir = filepath.Join(t.TempDir(), fmt.Sprint(round))
		if err := os.MkdirAll(p.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		p.writeTokens(t)
		for range 1 + rng.IntN(4) {
			// How long a start takes depends on the machine. The delays are random, so that some starts are killed
			// early and some late.
			life := time.Duration(rng.Int64N(int64(200 * time.Millisecond)))
			_, _ = p.command(t, life, p.serveArguments()...) // killed after life
		}
		url, err := p.start()
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		c := &rig.Client{
			HTTP: &http.Client{Transport: transport, Timeout: patience}, Token: token, Base: func() string { return url },
		}
		if err := c.CreateNamespace(t.Context(), "after"); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		p.kill()
		p.must(t, "check", "--data-dir", filepath.Join(p.dir, "data"))
	}
}

// TestKillWhileKeysRotate kills the server while the encryption keys are rotated, before or after the server has read
// the new file of keys. Every acknowledged write must be readable afterwards.
func TestKillWhileKeysRotate(t *testing.T) {
	p := buildProgram(t)
	file := filepath.Join(p.dir, "encryption.yaml")
	p.flags = []string{"--encryption-provider-config", file, "--encryption-provider-config-automatic-reload"}
	rotation := &rotation{file: file}
	rotation.turn(t)
	transport := insecure()
	defer transport.CloseIdleConnections()
	s := rig.NewScenario(t, rig.Seeded(t), &http.Client{Transport: transport})
	s.Token = token
	up := func() {
		url, err := p.start()
		if err != nil {
			t.Fatal(err)
		}
		s.At(url, url)
	}
	up()
	s.Begin(false)
	for s.Round = range rig.Rounds(4, 100) {
		rng := rand.New(rand.NewPCG(s.Rng.Uint64(), 5))
		ctx, cancel := context.WithCancel(t.Context())
		loaded := make(chan struct{})
		go func() {
			defer close(loaded)
			s.Load(ctx, 4, 2)
		}()
		// The moments of the rotation and of the end are random.
		time.Sleep(time.Duration(rng.Int64N(int64(200 * time.Millisecond))))
		rotation.turn(t)
		if s.Round%4 == 3 {
			time.Sleep(reloaded)
		}
		time.Sleep(time.Duration(rng.Int64N(int64(200 * time.Millisecond))))
		p.kill()
		cancel()
		<-loaded
		s.Rec.Settle()
		up()
		if err := s.Check(); err != nil {
			t.Fatalf("round %d: %v\n%s", s.Round, err, p.stderr)
		}
	}
	s.Round++
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	p.kill()
	store, err := embedded.Open(options(embedded.Options{Dir: filepath.Join(p.dir, "data", "store")}))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r, err := store.Range(
		t.Context(), storage.RangeRequest{Start: "/registry/configmaps/chaos-", End: "/registry/configmaps/chaos."},
	)
	if err != nil || len(r.Entries) == 0 {
		t.Fatalf("%d entries, %v", len(r.Entries), err)
	}
	for _, e := range r.Entries {
		if !bytes.HasPrefix(e.Value, []byte("k8s:enc:")) {
			t.Errorf("%s is not encrypted", e.Key)
		}
	}
}

// reloaded is about the time after which a server has read the file again.
const reloaded = 5 * time.Second

// rotation is the list of keys in a configuration: the newest key encrypts, all keys decrypt.
type rotation struct {
	file string
	keys []string
	n    int
}

// turn adds the next key to the configuration, by replacing the file.
func (r *rotation) turn(t *testing.T) {
	t.Helper()
	secret := make([]byte, 32)
	secret[0], secret[1] = byte(r.n), byte(r.n>>8)
	key := fmt.Sprintf("{name: k%d, secret: %s}", r.n, base64.StdEncoding.EncodeToString(secret))
	r.n++
	r.keys = append([]string{key}, r.keys...)
	provider := "secretbox"
	if r.n%2 == 0 {
		provider = "aesgcm"
	}
	all := strings.Join(r.keys, ", ")
	other := map[string]string{"secretbox": "aesgcm", "aesgcm": "secretbox"}[provider]
	text := fmt.Sprintf(
		"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [configmaps]\n  "+
			"providers: [{%s: {keys: [%s]}}, {%s: {keys: [%s]}}]\n",
		provider, all, other, all,
	)
	if err := os.WriteFile(r.file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(r.file+".new", r.file); err != nil {
		t.Fatal(err)
	}
}

func insecure() *http.Transport {
	return &http.Transport{
		//nolint:gosec // the server runs on this machine
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
	}
}
