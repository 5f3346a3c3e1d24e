package rest

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// TestListOptions is a table of combinations.
func TestListOptions(t *testing.T) {
	const (
		noMatch = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless " +
			"sendInitialEvents is provided"
		noVersion = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
		noToken   = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"
		noZero    = `resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"`
		needMatch = "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
		noInitial = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"
		listKnows = `resourceVersionMatch: Unsupported value: "Newest": supported values: "Exact", "NotOlderThan", ""`
	)
	watchKnows := func(match string) string {
		return fmt.Sprintf(`resourceVersionMatch: Unsupported value: %q: supported values: "NotOlderThan"`, match)
	}
	for _, c := range []struct {
		query string
		want  []string
	}{
		{"", nil},
		{"resourceVersion=5", nil},
		{"limit=5&continue=x", nil},
		{"resourceVersion=0&resourceVersionMatch=NotOlderThan", nil},
		{"resourceVersion=5&resourceVersionMatch=Exact&limit=5", nil},
		{"resourceVersion=0&resourceVersionMatch=Exact", []string{noZero}},
		{"resourceVersionMatch=Exact", []string{noVersion}},
		{"resourceVersion=5&resourceVersionMatch=Newest", []string{listKnows}},
		{"resourceVersion=5&resourceVersionMatch=NotOlderThan&continue=x", []string{noToken}},
		{"resourceVersionMatch=Newest&continue=x&sendInitialEvents=true", []string{noVersion, noToken, listKnows, noInitial}},
		{"sendInitialEvents=false", []string{noInitial}},
		{"watch=1", nil},
		{"watch=1&resourceVersion=5", nil},
		{"watch=1&resourceVersion=5&continue=x", nil},
		{"watch=1&continue=x", []string{noToken}},
		{"watch=1&resourceVersion=0&continue=x", []string{noToken}},
		{"watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", nil},
		{"watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=5", nil},
		{"watch=1&sendInitialEvents=true", []string{needMatch}},
		{"watch=1&sendInitialEvents=true&continue=x", []string{needMatch}},
		{"watch=1&sendInitialEvents=true&resourceVersionMatch=Exact", []string{needMatch, watchKnows("Exact")}},
		{"watch=1&resourceVersion=5&resourceVersionMatch=NotOlderThan", []string{noMatch}},
		{
			"watch=1&resourceVersion=5&resourceVersionMatch=Newest&continue=x", []string{noMatch, watchKnows("Newest"), noToken},
		},
	} {
		o, err := parseListOptions(httptest.NewRequest(http.MethodGet, "/?"+c.query, nil))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		err = o.validate(o.Watch)
		if status, ok := err.(kerrors.APIStatus); ok {
			for _, cause := range status.Status().Details.Causes {
				got = append(got, cause.Field+": "+cause.Message)
			}
		}
		if !slices.Equal(got, c.want) || (err != nil) != (len(c.want) > 0) {
			t.Errorf("%s:\n%q (%v)\nwant\n%q", c.query, got, err, c.want)
		}
	}
}

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1": 1, "007": 7, "9223372036854775807": math.MaxInt64} {
		if v, err := parseVersion(text); err != nil || v != want {
			t.Errorf("%q: %d, %v", text, v, err)
		}
	}
	for _, text := range []string{
		"", "x", "-1", "+1", "1.0", "0x10", "1_000", " 1", "9223372036854775808", "18446744073709551616",
		strings.Repeat("9", 1000),
	} {
		if v, err := parseVersion(text); !kerrors.IsBadRequest(err) {
			t.Errorf("%.20q: %d, %v, want a bad request", text, v, err)
		}
		if _, err := parseWatchVersion(text); (err == nil) != (text == "") {
			t.Errorf("watch %.20q: %v", text, err)
		}
	}
}

// FuzzListOptions: no query causes a panic, and the numbers in the result are those in the query.
func FuzzListOptions(f *testing.F) {
	for _, q := range []string{
		"", "limit=5&continue=x", "resourceVersion=1&resourceVersionMatch=Exact", "limit=-1", "limit=x",
		"timeoutSeconds=99999999999999999999",
		"watch=1&allowWatchBookmarks=true&sendInitialEvents=false", "limit=1;limit=2", "%zz=1&limit=3", "&&=&",
		"fieldSelector=a%3Db&labelSelector=%21a",
	} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, query string) {
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/", RawQuery: query}}
		o, err := parseListOptions(r)
		if err != nil {
			if !kerrors.IsBadRequest(err) {
				t.Fatal(err)
			}
			return
		}
		for _, watch := range []bool{false, true} {
			if err := o.validate(watch); err != nil && !kerrors.IsInvalid(err) {
				t.Fatal(err)
			}
		}
		if v, err := parseVersion(o.ResourceVersion); err == nil && v < 0 {
			t.Fatalf("revision %d", v)
		}
	})
}

func TestContinueToken(t *testing.T) {
	for _, token := range []continueToken{
		{Revision: 1, Start: "a\x00"}, {Revision: math.MaxInt64, Start: "default/web-1\x00"},
		{Revision: inconsistent, Start: "x"}, {Revision: 5, Start: "ü\x00"},
	} {
		back, err := parseContinue(token.encode())
		token.Version = continueVersion
		if err != nil || back != token {
			t.Errorf("%+v came back as %+v, %v", token, back, err)
		}
	}
	// A token of kube-apiserver.
	const reference = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTIsInN0YXJ0IjoiYlx1MDAwMCJ9"
	if token, err := parseContinue(reference); err != nil || token.Revision != 12 || token.Start != "b\x00" {
		t.Errorf("%+v, %v", token, err)
	}
	if got := (continueToken{Revision: 12, Start: "b\x00"}).encode(); got != reference {
		t.Errorf("%s, want %s", got, reference)
	}
}

// TestInvalidContinueTokens includes row 12 of docs/reliability.md: a token with a key outside of the collection.
func TestInvalidContinueTokens(t *testing.T) {
	token := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	for name, text := range map[string]string{
		"not base64": "%%%", "padded": token(`{"v":"meta.k8s.io/v1","rv":1,"start":"ab"}`) + "=",
		"not JSON": token("rv=1"), "a list": token("[]"), "null": token("null"), "empty": token(""),
		"no version":      token(`{"rv":1,"start":"a"}`),
		"another version": token(`{"v":"v2","rv":1,"start":"a"}`), "no revision": token(`{"v":"meta.k8s.io/v1","start":"a"}`),
		"no key":               token(`{"v":"meta.k8s.io/v1","rv":1}`),
		"a revision in text":   token(`{"v":"meta.k8s.io/v1","rv":"1","start":"a"}`),
		"a revision too large": token(`{"v":"meta.k8s.io/v1","rv":9223372036854775808,"start":"a"}`),
		"up":                   token(`{"v":"meta.k8s.io/v1","rv":1,"start":"../secrets/a"}`),
		"up, within":           token(`{"v":"meta.k8s.io/v1","rv":1,"start":"a/../../secrets/a"}`),
		"up, absolute":         token(`{"v":"meta.k8s.io/v1","rv":1,"start":"/../secrets/a"}`),
		"up, at the end":       token(`{"v":"meta.k8s.io/v1","rv":1,"start":"a/.."}`),
		"here":                 token(`{"v":"meta.k8s.io/v1","rv":1,"start":"./a"}`),
		"two slashes":          token(`{"v":"meta.k8s.io/v1","rv":1,"start":"a//b"}`),
	} {
		if got, err := parseContinue(text); !kerrors.IsBadRequest(err) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func FuzzParseContinue(f *testing.F) {
	f.Add(continueToken{Revision: 7, Start: "a/b\x00"}.encode())
	f.Add(continueToken{Revision: inconsistent, Start: "b"}.encode())
	for _, s := range []string{"", "=", "e30", "bnVsbA", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ", "W10"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, err := parseContinue(text)
		if err != nil {
			if !kerrors.IsBadRequest(err) {
				t.Fatal(err)
			}
			return
		}
		if token.Revision == 0 || token.Start == "" {
			t.Fatalf("%+v", token)
		}
		// A key stays below the prefix that it is joined to.
		if joined := path.Join("/registry/pods/", token.Start); token.Start != "/" &&
			!strings.HasPrefix(joined, "/registry/pods/") {
			t.Fatalf("%q leaves the collection", token.Start)
		}
		back, err := parseContinue(token.encode())
		if err != nil || back != token {
			t.Fatalf("%+v came back as %+v, %v", token, back, err)
		}
	})
}

// shelf is a server's resources over a store in memory, without HTTP.
type shelf struct {
	store    storage.Store
	registry *registry.Registry
}

func newShelf(t testing.TB) *shelf {
	t.Helper()
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	c := cache.New(cache.Options{Store: store})
	t.Cleanup(func() {
		c.Close()
		_ = store.Close()
	})
	reg, err := registry.New(resource.Kinds(features.Gates{}), store, c, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return &shelf{store, reg}
}

// pods returns the resource pods in the form that the handler serves.
func (s *shelf) pods() *served {
	pods := s.registry.Resource(schema.GroupResource{Resource: "pods"})
	return newServed(registry.NewServed(pods, &pods.Kind.Versions[0]))
}

// put stores pods without validation.
func (s *shelf) put(t testing.TB, pods []*corev1.Pod) {
	t.Helper()
	head := wire.NewEnvelopeHead("v1", "Pod")
	for _, p := range pods {
		value, err := scheme.EncodeEnvelope(head, p)
		if err != nil {
			t.Fatal(err)
		}
		op := storage.Put(registry.Root+"pods/"+p.Namespace+"/"+p.Name, value)
		if _, err := s.store.Commit(t.Context(), storage.Txn{Ops: []storage.Op{op}}); err != nil {
			t.Fatal(err)
		}
	}
}

// variedPods returns pods with few different values for each label and field, so that selectors match several of
// them.
func variedPods(random *rand.Rand, n int) []*corev1.Pod {
	pick := func(values ...string) string { return values[random.Intn(len(values))] }
	var pods []*corev1.Pod
	for i := range n {
		p := &corev1.Pod{}
		p.Namespace, p.Name = pick("default", "kube-system", "x"), fmt.Sprintf("p%d", i)
		for _, key := range []string{"app", "tier", "example.com/zone", "n"} {
			if random.Intn(2) == 0 {
				if p.Labels == nil {
					p.Labels = map[string]string{}
				}
				p.Labels[key] = pick("", "a", "b", "3", "10")
			}
		}
		p.Spec.NodeName = pick("", "n1", "n2")
		p.Spec.RestartPolicy = corev1.RestartPolicy(pick("Always", "Never"))
		p.Spec.SchedulerName = pick("", "default-scheduler")
		p.Spec.ServiceAccountName = pick("", "default")
		p.Spec.HostNetwork = random.Intn(2) == 0
		p.Status.Phase = corev1.PodPhase(pick("", "Pending", "Running"))
		p.Status.PodIP = pick("", "10.0.0.1")
		p.Status.NominatedNodeName = pick("", "n1")
		pods = append(pods, p)
	}
	return pods
}

// fieldsOf returns the selectable fields of a pod, read from the Go struct.
func fieldsOf(p *corev1.Pod) fields.Set {
	return fields.Set{
		"metadata.name": p.Name, "metadata.namespace": p.Namespace, "spec.nodeName": p.Spec.NodeName,
		"spec.restartPolicy": string(p.Spec.RestartPolicy), "spec.schedulerName": p.Spec.SchedulerName,
		"spec.serviceAccountName": p.Spec.ServiceAccountName, "spec.hostNetwork": fmt.Sprint(p.Spec.HostNetwork),
		"status.phase": string(p.Status.Phase), "status.podIP": p.Status.PodIP, "status.podIPs": "",
		"status.nominatedNodeName": p.Status.NominatedNodeName,
	}
}

// selectedTwin selects pods by the selectors of apimachinery and the Go structs. It is the slow and simple twin of
// selected.
func selectedTwin(pods []*corev1.Pod, namespace, labelText, fieldText string) ([]string, error) {
	byLabel, err := labels.Parse(labelText)
	if err != nil {
		return nil, err
	}
	byField, err := fields.ParseSelector(fieldText)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range pods {
		set := fieldsOf(p)
		for _, r := range byField.Requirements() {
			if _, known := set[r.Field]; !known && (r.Field != "" || r.Value != "") {
				return nil, fmt.Errorf("%q is not a field", r.Field)
			}
		}
		if (namespace == "" || p.Namespace == namespace) && byLabel.Matches(labels.Set(p.Labels)) && byField.Matches(set) {
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// selected selects in the cache, in pages of the given size.
func selected(t testing.TB, s *served, namespace, labelText, fieldText string, limit int) ([]string, error) {
	var names []string
	o := listOptions{ListOptions: metav1.ListOptions{Limit: int64(limit)}}
	for pages := 0; ; pages++ {
		if pages > 1000 {
			t.Fatal("the pages have no end")
		}
		sel, err := newSelection(t.Context(), s, namespace, "", labelText, fieldText)
		if err != nil {
			return nil, err
		}
		p, err := s.page(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), sel, &o)
		if err != nil {
			t.Fatal(err)
		}
		if limit > 0 && len(p.objects) > limit {
			t.Fatalf("a page of %d, limit %d", len(p.objects), limit)
		}
		for _, o := range p.objects {
			names = append(names, o.Key)
		}
		if p.next == "" {
			return names, nil
		}
		if len(p.objects) < limit {
			t.Fatalf("a page of %d, limit %d, and more to come", len(p.objects), limit)
		}
		o.Continue = p.next
	}
}

// TestSelectors lists by random selectors, in pages and at once, and compares the result with selectedTwin.
func TestSelectors(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	s := newShelf(t)
	pods := variedPods(random, 120)
	s.put(t, pods)
	some := 0
	for range 1500 {
		namespace := []string{"", "default", "x", "missing"}[random.Intn(4)]
		labelText, fieldText := randomLabels(random), randomFields(random)
		want, err := selectedTwin(pods, namespace, labelText, fieldText)
		if err != nil {
			t.Fatalf("%q, %q: %v", labelText, fieldText, err)
		}
		got, err := selected(t, s.pods(), namespace, labelText, fieldText, random.Intn(9))
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("namespace %q, labels %q, fields %q (%v):\n%q\nwant\n%q", namespace, labelText, fieldText, err, got, want)
		}
		if len(want) > 0 {
			some++
		}
	}
	if some < 200 {
		t.Errorf("only %d selections found anything", some)
	}
}

func randomLabels(random *rand.Rand) string {
	var parts []string
	for range random.Intn(3) {
		key := []string{"app", "tier", "example.com/zone", "n", "none"}[random.Intn(5)]
		form := []string{
			"%s=a", "%s!=a", "%s==b", "%s in (a,b)", "%s notin (a,)", "%s", "!%s", "%s=", "%s>5", "%s<5", "%s in ()",
		}[random.Intn(11)]
		parts = append(parts, fmt.Sprintf(form, key))
	}
	return strings.Join(parts, ",")
}

func randomFields(random *rand.Rand) string {
	pairs := []string{
		"metadata.name=p7", "metadata.name!=p7", "metadata.name=", "metadata.namespace=default", "metadata.namespace!=x",
		"spec.nodeName=n1", "spec.nodeName=",
		"spec.nodeName!=n2", "spec.hostNetwork=true", "spec.hostNetwork!=true", "spec.hostNetwork=false",
		"status.phase=Running", "status.phase!=",
		"status.podIP==10.0.0.1", "spec.restartPolicy=Never", "spec.schedulerName=default-scheduler",
		"spec.serviceAccountName=", "status.podIPs=", "status.nominatedNodeName=n1",
	}
	var parts []string
	for range random.Intn(4) {
		parts = append(parts, pairs[random.Intn(len(pairs))])
	}
	return strings.Join(parts, ",")
}

// TestSelectorErrors checks that invalid selectors are refused with the messages of apimachinery's parsers.
func TestSelectorErrors(t *testing.T) {
	s := newShelf(t).pods()
	for _, text := range []string{
		"a b", "=", "a in (", "a in b", "-x", "a/b/c=d", "a=b c", "a>x", strings.Repeat("x", 64) + "=1",
		"a=" + strings.Repeat("x", 64), "!a=b", ",,", "a,,b",
	} {
		_, perr := labels.Parse(text)
		_, err := newSelection(t.Context(), s, "", "", text, "")
		if (perr == nil) != (err == nil) || err != nil && (!kerrors.IsBadRequest(err) || err.Error() != perr.Error()) {
			t.Errorf("labels %q: %v, want %v", text, err, perr)
		}
	}
	for text, want := range map[string]string{
		"spec.nodename=a":   `field label not supported: spec.nodename`,
		"metadata.labels=a": `field label not supported: metadata.labels`,
		"spec.nodeName":     `invalid selector: 'spec.nodeName'; can't understand 'spec.nodeName'`,
		`a=b\c`:             `invalid field selector: invalid escape sequence: \c in field selector: b\c`,
	} {
		if _, err := newSelection(t.Context(), s, "", "", "", text); !kerrors.IsBadRequest(err) ||
			!reflect.DeepEqual(err.Error(), want) && !strings.Contains(err.Error(), strings.Split(want, ":")[0]) {
			t.Errorf("fields %q: %v, want %s", text, err, want)
		}
	}
}

func FuzzSelector(f *testing.F) {
	random := rand.New(rand.NewSource(2))
	for range 30 {
		f.Add(randomLabels(random), randomFields(random), random.Intn(6))
	}
	for _, s := range []string{
		"a in (b,,c)", "=a", "!", "a!", "a notin", "a=b=c", "(a)", "a==b,!c,d>1", "a\x00=b", "ä=1",
	} {
		f.Add(s, s, 0)
	}
	f.Add("", `metadata.name=a\,b`, 1)
	shelf := newShelf(f)
	pods := variedPods(random, 25)
	shelf.put(f, pods)
	s := shelf.pods()
	f.Fuzz(func(t *testing.T, labelText, fieldText string, limit int) {
		want, werr := selectedTwin(pods, "", labelText, fieldText)
		got, err := selected(t, s, "", labelText, fieldText, max(0, limit%7))
		if (err == nil) != (werr == nil) || !slices.Equal(got, want) {
			t.Fatalf("labels %q, fields %q:\n%q (%v)\nwant\n%q (%v)", labelText, fieldText, got, err, want, werr)
		}
		if err != nil && !kerrors.IsBadRequest(err) {
			t.Fatal(err)
		}
	})
}

// TestInterestCoversSelection checks that the interest of a watch, which decides whether a change wakes it,
// includes every object that its selection matches.
func TestInterestCoversSelection(t *testing.T) {
	random := rand.New(rand.NewSource(3))
	shelf := newShelf(t)
	pods := variedPods(random, 60)
	shelf.put(t, pods)
	s := shelf.pods()
	for range 500 {
		namespace := []string{"", "default", "x"}[random.Intn(3)]
		fieldText := randomFields(random)
		sel, err := newSelection(t.Context(), s, namespace, "", "", fieldText)
		if err != nil {
			t.Fatal(err)
		}
		in := sel.interest()
		names, err := selectedTwin(pods, namespace, "", fieldText)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods {
			concerns := (in.Namespace == "" || in.Namespace == p.Namespace) && (in.Name == "" || in.Name == p.Name) &&
				(in.Index == "" || in.Index == "spec.nodeName" && in.Value == p.Spec.NodeName)
			if slices.Contains(names, p.Namespace+"/"+p.Name) && !concerns {
				t.Fatalf(
					"namespace %q, fields %q: %s/%s is selected, but %+v does not wake", namespace, fieldText, p.Namespace, p.Name, in,
				)
			}
		}
	}
}

func TestManagerFromAgent(t *testing.T) {
	for agent, want := range map[string]string{
		"kubectl/v1.36.0 (linux/amd64)": "kubectl", "": "unknown", "/": "unknown", "curl": "curl", "a\x00b/1": "ab",
		"ünïcode/1":              "ünïcode",
		strings.Repeat("x", 200): strings.Repeat("x", 128), strings.Repeat("ü", 100): strings.Repeat("ü", 64),
		"\x7f\n/x": "unknown",
	} {
		if got := managerFromAgent(agent); got != want {
			t.Errorf("%q: %q, want %q", agent, got, want)
		}
	}
}

// TestReadBody: the limit of the body holds, whatever length the request declares.
func TestReadBody(t *testing.T) {
	for _, c := range []struct {
		name        string
		size        int
		length      int64
		tooLarge    bool
		wantedBytes int
	}{
		{"none", 0, 0, false, 0},
		{"small", 10, 10, false, 10},
		{"at the limit", maxBody, maxBody, false, maxBody},
		{"beyond", maxBody + 1, maxBody + 1, true, 0},
		{"of unknown length", 100000, -1, false, 100000},
		{"at the limit, of unknown length", maxBody, -1, false, maxBody},
		{"beyond, of unknown length", maxBody + 1, -1, true, 0},
		{"longer than announced", 5000, 10, false, 5000},
		{"announced beyond memory", 10, 1 << 60, true, 0},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(make([]byte, c.size)))
		r.ContentLength = c.length
		b, err := readBody(r)
		if kerrors.IsRequestEntityTooLargeError(err) != c.tooLarge || !c.tooLarge && (err != nil || len(b) != c.wantedBytes) {
			t.Errorf("%s: %d bytes, %v", c.name, len(b), err)
		}
	}
}
