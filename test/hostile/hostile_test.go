package hostile

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
)

// attacks returns the table: the rows of all areas.
func attacks() []row {
	return slices.Concat(cacheAttacks(), bodyAttacks(), documentAttacks(), edgeAttacks(), admissionAttacks(),
		collectorAttacks(), extensionAttacks(), largeListAttacks(), pastAttacks(), consoleAttacks(),
		backendAttacks())
}

// row is one attack. doc.go explains the fields.
type row struct {
	name string
	// row is the number of the case in docs/reliability.md.
	row string
	// server is the name of the attacked configuration; fresh starts a process for this row alone.
	server string
	fresh  bool
	// slow attacks take seconds of processor time. They run with KEELSON_SLOW=1, as in .ci/run.
	slow bool
	// rights are granted to the attacker in the attack's namespace, clusterRights in all namespaces.
	rights, clusterRights []right
	setup                 func(*attack)
	run                   func(*attack)
	limits                limits
	// withoutBystander is the reason why no other user reads meanwhile; "" if one does.
	withoutBystander string
	// open describes what the server does not resist yet; the row is skipped until then.
	open string
}

// right allows verbs on resources of one API group. Both are lists separated by commas.
type right struct{ group, resources, verbs string }

// limits are the resources that the server may use during an attack. Zero means the value in defaultLimits.
type limits struct {
	cpu        time.Duration // processor time, user and system
	peak       int64         // bytes of resident memory above those before the attack, at any time
	kept       int64         // bytes of heap that are still in use after the attack
	goroutines int64         // goroutines that are still there after it
}

func defaultLimits() limits {
	return limits{cpu: 2 * time.Second, peak: 96 << 20, kept: 8 << 20, goroutines: 30}
}

// or fills in what is not set.
func (l limits) or(d limits) limits {
	if l.cpu == 0 {
		l.cpu = d.cpu
	}
	if l.peak == 0 {
		l.peak = d.peak
	}
	if l.kept == 0 {
		l.kept = d.kept
	}
	if l.goroutines == 0 {
		l.goroutines = d.goroutines
	}
	return l
}

// attack is a running row.
type attack struct {
	*testing.T
	server                 *process
	user, admin, anonymous *client
	userName               string
	namespace              string // used by this attack alone
	ends                   []func()
	ended                  bool // run has stopped the server
}

// atEnd registers f to run after the attack, before the server's usage is read.
func (a *attack) atEnd(f func()) { a.ends = append(a.ends, f) }

func (a *attack) end() {
	for _, f := range slices.Backward(a.ends) {
		f()
	}
	a.ends = nil
}

// path returns the path of a core resource in the attack's namespace, or of something below it.
func (a *attack) path(resource string) string {
	return "/api/v1/namespaces/" + a.namespace + "/" + resource
}

// groupPath returns the path of a resource in a group version, such as "apps/v1".
func (a *attack) groupPath(group, resource string) string {
	return "/apis/" + group + "/namespaces/" + a.namespace + "/" + resource
}

// size returns small, or large if KEELSON_LONG is set.
func size(small, large int) int {
	if os.Getenv("KEELSON_LONG") != "" {
		return large
	}
	return small
}

// create creates an object as the administrator.
func (a *attack) create(path string, object map[string]any) {
	a.Helper()
	body, err := json.Marshal(object)
	if err != nil {
		a.Fatal(err)
	}
	if got := a.admin.send(http.MethodPost, path, jsonType, body); got.status != http.StatusCreated {
		a.Fatalf("POST %s: %d %s %v", path, got.status, shorten(string(got.body)), got.err)
	}
}

// grant gives rights to a user by a role with the given name, in all namespaces if namespace is "".
func (a *attack) grant(name, user, namespace string, rights []right) {
	a.Helper()
	const group = "rbac.authorization.k8s.io"
	roleKind, rolePath, bindingPath := "ClusterRole", "/apis/"+group+"/v1/clusterroles", "/apis/"+group+
		"/v1/clusterrolebindings"
	if namespace != "" {
		roleKind = "Role"
		rolePath = "/apis/" + group + "/v1/namespaces/" + namespace + "/roles"
		bindingPath = "/apis/" + group + "/v1/namespaces/" + namespace + "/rolebindings"
	}
	var rules []any
	for _, r := range rights {
		rules = append(rules, map[string]any{
			"apiGroups": []string{r.group}, "resources": strings.Split(r.resources, ","), "verbs": strings.Split(r.verbs, ","),
		})
	}
	metadata := map[string]any{"name": name}
	a.create(rolePath, map[string]any{"apiVersion": group + "/v1", "kind": roleKind, "metadata": metadata, "rules": rules})
	a.create(bindingPath, map[string]any{
		"apiVersion": group + "/v1", "kind": roleKind + "Binding", "metadata": metadata,
		"roleRef":  map[string]any{"apiGroup": group, "kind": roleKind, "name": name},
		"subjects": []any{map[string]any{"apiGroup": group, "kind": "User", "name": user}},
	})
}

// fleet has the servers that rows share.
type fleet struct {
	t       *testing.T
	servers map[string]*process
	taken   int // the number of users that attacks have used
}

// serverFor returns the server for a row: a running one, or a new one.
func (f *fleet) serverFor(t *testing.T, r row) *process {
	if r.fresh {
		return startServer(t, r.server, t.TempDir())
	}
	if p := f.servers[r.server]; p != nil {
		if _, err := p.ask(report); err == nil {
			return p
		}
	}
	p := startServer(f.t, r.server, f.t.TempDir())
	f.servers[r.server] = p
	return p
}

// TestAttacks runs all rows.
func TestAttacks(t *testing.T) {
	f := &fleet{t: t, servers: map[string]*process{}}
	for _, r := range attacks() {
		t.Run(r.row+"/"+strings.ReplaceAll(r.name, " ", "_"), func(t *testing.T) { f.attack(t, r) })
	}
}

// tries is how often a row is run that used too much processor time or memory. Both depend on what else the machine does
// (cold caches, a collector that gets few turns), which only ever adds: what is judged is the smallest of all tries.
const tries = 3

// attack runs one row.
func (f *fleet) attack(t *testing.T, r row) {
	if r.open != "" && os.Getenv("KEELSON_HOSTILE_OPEN") == "" {
		t.Skip("not withstood yet: " + r.open)
	}
	if r.slow && !effort.Full() {
		t.Skip("slow: KEELSON_SLOW=1 runs it, as .ci/run does")
	}
	if end, limited := t.Deadline(); limited && time.Until(end) < 2*patience {
		t.Skip("the -timeout of go test leaves too little time")
	}
	for try := range tries {
		exceeded := f.once(t, r)
		if t.Failed() || len(exceeded) == 0 {
			return
		}
		say := t.Logf
		if try == tries-1 {
			say = t.Errorf
		}
		say("try %d of %d: the server used %s", try+1, tries, strings.Join(exceeded, ", and "))
	}
}

// once runs one row once, and returns which of the limits that other work on this machine can exceed were exceeded.
func (f *fleet) once(t *testing.T, r row) (exceeded []string) {
	f.taken++
	a := &attack{
		T: t, server: f.serverFor(t, r), userName: userName(f.taken), namespace: fmt.Sprintf("attack-%d", f.taken),
	}
	a.user = newClient(t, a.server.url, userToken(f.taken), false)
	a.admin = newClient(t, a.server.url, adminToken, false)
	a.anonymous = newClient(t, a.server.url, "", false)
	defer func() {
		a.end()
		if t.Failed() || len(exceeded) > 0 {
			// Requests that are still running would be counted for the next row.
			a.server.kill()
			delete(f.servers, r.server)
		}
	}()
	a.prepare(r)
	if t.Failed() {
		return nil
	}
	b := a.newBystander()
	before := a.measure()
	logged := len(a.server.log.String())
	if r.withoutBystander == "" {
		b.start()
	}
	r.run(a)
	reads := b.stop()
	a.end()
	for _, c := range []*client{a.user, a.admin, a.anonymous} {
		c.close()
	}
	if a.ended {
		return nil
	}
	after := a.idle(before, r.limits.or(defaultLimits()))
	exceeded = a.judge(before, after, r.limits.or(defaultLimits()))
	if a.anonymous.get("/livez").status != http.StatusOK || b.read() != nil {
		t.Errorf("the server does not answer others afterwards\n%s", shorten(a.server.log.String()[logged:]))
	}
	if log := a.server.log.String()[logged:]; strings.Contains(log, "panic") {
		t.Errorf("the server logged a panic:\n%.4000s", log)
	}
	b.client.close()
	a.anonymous.close()
	t.Logf("cpu %v, peak +%.1f MiB, heap afterwards %+.1f MiB, allocated %.1f MiB, goroutines %+d, "+
		"%d reads of a bystander, the longest %v",
		after.cpu-before.cpu, mib(after.peak-before.resident), mib(after.Heap-before.Heap),
		mib(after.Allocated-before.Allocated),
		after.Goroutines-before.Goroutines, reads, b.longest.Round(time.Millisecond))
	return exceeded
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// prepare creates the namespace and the rights, and calls setup.
func (a *attack) prepare(r row) {
	a.create(
		"/api/v1/namespaces",
		map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": a.namespace}},
	)
	if len(r.rights) > 0 {
		a.grant(a.namespace, a.userName, a.namespace, r.rights)
	}
	if len(r.clusterRights) > 0 {
		a.grant(a.namespace, a.userName, "", r.clusterRights)
	}
	a.grant(a.namespace+"-bystander", "bystander", "", []right{{resources: "namespaces", verbs: "get"}})
	if r.setup != nil {
		r.setup(a)
	}
}

// measured is the resource usage of a server, as seen by the kernel and by its Go runtime.
type measured struct {
	usage
	insideUsage
}

// measure makes the server collect its garbage, and returns its usage from which the attack is measured.
func (a *attack) measure() measured {
	a.Helper()
	m := measured{insideUsage: a.ask(collect)}
	if !measuring {
		return m
	}
	if err := resetPeak(a.server.cmd.Process.Pid); err != nil {
		a.Fatal(err)
	}
	var err error
	if m.usage, err = usageOf(a.server.cmd.Process.Pid); err != nil {
		a.Fatal(err)
	}
	return m
}

// idle waits until the server has no work of this attack: until it uses little processor time and its goroutines have
// ended; then, for at most settling, until it keeps little memory of it: the goroutines that l allows may still end, and
// each may have a body. It stops waiting when the limit of processor time is exceeded, which judge reports.
func (a *attack) idle(before measured, l limits) measured {
	a.Helper()
	const look, settling, little = 200 * time.Millisecond, 10 * time.Second, 2
	var m measured
	var last time.Duration
	for end := time.Now().Add(patience); ; time.Sleep(look) { // the use of the processor is measured over this time
		m = measured{insideUsage: a.ask(report)}
		if measuring {
			var err error
			if m.usage, err = usageOf(a.server.cmd.Process.Pid); err != nil {
				a.Fatal(err)
			}
		}
		quiet := m.cpu-last <= little*10*time.Millisecond
		last = m.cpu
		if quiet && m.Goroutines <= before.Goroutines+l.goroutines || m.cpu-before.cpu > l.cpu || time.Now().After(end) {
			break
		}
	}
	for end := time.Now().Add(settling); ; time.Sleep(look) { // a wait that may be in vain: judge has the limits
		m.Heap = a.ask(collect).Heap
		if m.Heap <= before.Heap+l.kept || m.cpu-before.cpu > l.cpu || raceDetector || time.Now().After(end) {
			return m
		}
	}
}

// ask sends a command to the server, and returns its usage.
func (a *attack) ask(command string) insideUsage {
	a.Helper()
	inside, err := a.server.ask(command)
	if err != nil {
		a.Fatalf("the server has ended: %v\n%s", err, lastLines(a.server.log.String()))
	}
	return inside
}

// judge fails the test for each limit of what is left after the attack, and returns the exceeded ones of what was used
// meanwhile.
func (a *attack) judge(before, after measured, l limits) (exceeded []string) {
	a.Helper()
	if raceDetector {
		return nil
	}
	if cpu := after.cpu - before.cpu; measuring && cpu > l.cpu {
		exceeded = append(exceeded, fmt.Sprintf("%v of processor time, limit %v", cpu, l.cpu))
	}
	if peak := after.peak - before.resident; measuring && peak > l.peak {
		exceeded = append(exceeded, fmt.Sprintf("%.1f MiB of memory, limit %.1f", mib(peak), mib(l.peak)))
	}
	if kept := after.Heap - before.Heap; kept > l.kept {
		a.Errorf("%.1f MiB of heap are still used after the attack, limit %.1f; of everything that is used the most is:\n%s",
			mib(kept), mib(l.kept), a.ask(holders).Holders)
	}
	if left := after.Goroutines - before.Goroutines; left > l.goroutines {
		a.Errorf("%d goroutines are still there after the attack, limit %d", left, l.goroutines)
	}
	return exceeded
}

func lastLines(text string) string { return text[max(0, len(text)-4000):] }

// bystander is another user who reads during the attack.
type bystander struct {
	client  *client
	path    string
	reads   atomic.Int64
	longest time.Duration
	failed  error
	quit    chan struct{}
	ended   chan struct{}
}

// newBystander returns a bystander that has read once, so that its connection is open before the attack.
func (a *attack) newBystander() *bystander {
	a.Helper()
	b := &bystander{client: newClient(a.T, a.server.url, bystanderToken, false), path: "/api/v1/namespaces/" + a.namespace}
	b.client.http.Timeout = patience / 2
	if err := b.read(); err != nil {
		a.Fatal(err)
	}
	return b
}

func (b *bystander) read() error {
	if got := b.client.get(b.path); got.status != http.StatusOK {
		return fmt.Errorf("%d %s: %w", got.status, shorten(string(got.body)), errors.Join(got.err))
	}
	return nil
}

// start starts reading repeatedly.
func (b *bystander) start() {
	b.quit, b.ended = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(b.ended)
		for {
			select {
			case <-b.quit:
				return
			case <-time.After(10 * time.Millisecond):
			}
			began := time.Now()
			if err := b.read(); err != nil && b.failed == nil {
				b.failed = err
			}
			b.longest = max(b.longest, time.Since(began))
			b.reads.Add(1)
		}
	}()
}

// stop ends the reading, and fails the test if a read failed. It returns the number of reads.
func (b *bystander) stop() int64 {
	if b.quit == nil {
		return 0
	}
	close(b.quit)
	<-b.ended
	if b.failed != nil {
		b.client.t.Errorf("a bystander's read failed during the attack: %v", b.failed)
	}
	return b.reads.Load()
}
