package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fuzzSeed returns the seed of a run, from KEELSON_FUZZ_SEED or from the clock, and prints it.
func fuzzSeed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any number is good
	if s := os.Getenv("KEELSON_FUZZ_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("KEELSON_FUZZ_SEED=%d", seed)
	return seed
}

// fuzzPairs returns the number of requests that are sent to both servers: KEELSON_FUZZ_PAIRS, or a small number.
func fuzzPairs(t *testing.T) int {
	t.Helper()
	const short = 2000
	s := os.Getenv("KEELSON_FUZZ_PAIRS")
	if s == "" {
		return short
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// outcome is the response of one server.
type outcome struct {
	code    int // 0 if the connection was cut
	reason  string
	message string
}

func (o outcome) String() string {
	return fmt.Sprintf("%d %s %q", o.code, o.reason, o.message[:min(len(o.message), 1000)])
}

// difference is a request to which the servers responded differently.
type difference struct {
	group     string // the requests of a group probably differ for the same reason
	resource  string // the resource in the request, if the test knows it
	request   string // how to repeat it
	want, got outcome
	wrong     string // why the test fails for it; "" if it is only listed
	times     int
}

// differences collects differences, with the smallest request of each group.
type differences struct {
	mu     sync.Mutex // guards groups
	groups map[string]*difference
}

func (d *differences) add(n difference) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.groups == nil {
		d.groups = map[string]*difference{}
	}
	old := d.groups[n.group]
	if old == nil {
		n.times = 1
		d.groups[n.group] = &n
		return
	}
	old.times++
	if n.wrong != "" && old.wrong == "" || (n.wrong != "") == (old.wrong != "") && len(n.request) < len(old.request) {
		n.times = old.times
		*old = n
	}
}

// report writes the groups, the wrong ones first, to the log of the test and to the file in KEELSON_FUZZ_REPORT. It
// fails the test if there are wrong ones.
func (d *differences) report(t *testing.T) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	list := slices.SortedFunc(maps.Values(d.groups), func(a, b *difference) int {
		return cmp.Or(cmp.Compare(b.wrong, a.wrong), cmp.Compare(b.times, a.times), cmp.Compare(a.group, b.group))
	})
	var b strings.Builder
	for _, n := range list {
		fmt.Fprintf(
			&b, "## %d times: %s\n%s\n- kube-apiserver: %v\n- Keelson: %v\n- request: %s\n\n", n.times, n.group, n.wrong, n.want,
			n.got, n.request,
		)
		if n.wrong != "" {
			t.Errorf("%s: %s: kube-apiserver %v, Keelson %v\n%s", n.wrong, n.group, n.want, n.got, n.request)
		}
	}
	t.Logf("%d groups of differences", len(list))
	if path := os.Getenv("KEELSON_FUZZ_REPORT"); path != "" {
		if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
			t.Error(err)
		}
		return
	}
	t.Log(b.String())
}

// known is a difference that is intended, or in which kube-apiserver is worse.
type known struct {
	is  func(*difference) bool
	why string
}

// without removes the known differences, and logs how often each occurred.
func (d *differences) without(t *testing.T, list []known) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range list {
		times := 0
		for group, n := range d.groups {
			if k.is(n) {
				times += n.times
				delete(d.groups, group)
			}
		}
		if times > 0 {
			t.Logf("%d times: %s", times, k.why)
		}
	}
}
