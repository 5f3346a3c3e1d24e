package kubectlhistory

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/api/history"
)

// TestFollow follows a feed whose connection ends within a transaction, and later has a server that does not
// answer. Each change must be shown exactly once.
func TestFollow(t *testing.T) {
	change := func(revision int, name string) string {
		return fmt.Sprintf(`{"kind":"Change","resource":"pods","name":%q,"resourceVersion":"%d","metadata":{"name":"%[2]d.pods.%[1]s"}}`, name, revision)
	}
	list := func(through int, next string, changes ...string) string {
		return fmt.Sprintf(`{"kind":"ChangeList","metadata":{"resourceVersion":"%d","continue":%q},"items":[%s]}`, through, next, strings.Join(changes, ","))
	}
	event := func(c string) string { return `{"type":"ADDED","object":` + c + "}\n" }
	steps := []struct {
		query string // of the request, without the limit
		code  int
		body  string
	}{
		{"labelSelector=a%3Db&since=1h", 200, list(4, "4", change(3, "a"))},
		{"continue=4&labelSelector=a%3Db&since=1h", 200, list(7, "")},
		{"labelSelector=a%3Db&since=7&watch=true", 200, event(change(9, "b")) + event(change(9, "c"))},
		{"labelSelector=a%3Db&since=8", 200, list(9, "", change(9, "b"), change(9, "c"), change(9, "d"))},
		{"labelSelector=a%3Db&since=9&watch=true", 200, event(change(10, "e")) + `{"type":"ERROR","object":{"kind":"Status","message":"it stops","code":503}}` + "\n"},
		{"labelSelector=a%3Db&since=9", 503, "gone"},
		{"labelSelector=a%3Db&since=9", 200, list(12, "", change(10, "e"), change(12, "f"))},
		{"labelSelector=a%3Db&since=12&watch=true", 403, `{"kind":"Status","message":"not any more"}`},
	}
	done := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		query.Del("limit")
		if done == len(steps) || query.Encode() != steps[done].query || r.URL.Path != "/apis/history.keelson.dev/v1alpha1/namespaces/n/changes" {
			t.Errorf("request %d is %s", done, r.URL)
			http.Error(w, "unexpected", http.StatusBadRequest)
			return
		}
		w.WriteHeader(steps[done].code)
		fmt.Fprint(w, steps[done].body)
		done++
	}))
	defer server.Close()
	var out, messages strings.Builder
	s := &session{Options: Options{ErrOut: &messages}, ctx: t.Context()}
	f := newFeed(&client{base: server.URL, header: http.Header{}, http: server.Client()}, "n", "1h", "a=b", "")
	err := s.follow(f, func(part []history.ObjectChange) error {
		for _, c := range part {
			out.WriteString(c.Name)
		}
		return nil
	})
	if err == nil || err.Error() != "not any more" || out.String() != "abcdef" || done != len(steps) {
		t.Errorf("%d requests showed %s: %v", done, out.String(), err)
	}
	if want := "it stops; trying again\n"; !strings.HasPrefix(messages.String(), want) || strings.Count(messages.String(), "\n") != 2 {
		t.Errorf("it said %q", messages.String())
	}
}

func TestBackoff(t *testing.T) {
	var b backoff
	var got []time.Duration
	for _, lasted := range []time.Duration{0, 0, 0, 0, 0, 0, 0, 0, time.Minute, 0} {
		got = append(got, b.after(lasted)/time.Second)
	}
	if text := fmt.Sprint(got); text != "[0s 1ns 2ns 4ns 8ns 16ns 30ns 30ns 0s 1ns]" {
		t.Error(text)
	}
}

func TestSinceParameter(t *testing.T) {
	now := time.Date(2026, 3, 1, 14, 30, 0, 0, time.FixedZone("", 2*60*60))
	for text, want := range map[string]string{
		"14:00": "2026-03-01T14:00:00+02:00", "14:30": "2026-03-01T14:30:00+02:00", "14:30:01": "2026-02-28T14:30:01+02:00",
		"9:05": "2026-03-01T09:05:00+02:00", "1h": "1h", "48213": "48213", "2026-11-27T14:00:00Z": "2026-11-27T14:00:00Z",
		"24:00": "", "9:60": "", "9:05:61": "",
	} {
		if got, err := sinceParameter(text, now); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}

// TestChangePrinter prints changes for terminals of several widths.
func TestChangePrinter(t *testing.T) {
	changes := []history.ObjectChange{
		{Group: "apps", Resource: "deployments", Name: "web", Change: history.Change{
			Type: history.Created, ResourceVersion: "7", User: "jane", Verb: "create"}},
		{Group: "example.com", Resource: "widgets", Name: "w", Change: history.Change{
			Type: history.Updated, ResourceVersion: "8", User: "jane", Verb: "patch",
			Changed: []string{".spec.first", ".spec.second", ".spec.third"}, MoreChanged: 1}},
	}
	for _, c := range []struct {
		name    string
		columns int
		output  string
		want    string
	}{
		{"not a terminal", 0, "", "<unknown>   Updated   widgets.example.com/w   jane   patch     .spec.first,.spec.second,.spec.third and 1 more\n"},
		{"wide enough", 110, "", "<unknown>   Updated   widgets.example.com/w   jane   patch     .spec.first,.spec.second,.spec.third and 1 more\n"},
		{"narrow", 100, "", "<unknown>   Updated   widgets.example.com/w   jane   patch     .spec.first,.spec.second and 2 more\n"},
		{"very narrow", 60, "", "<unknown>   Updated   widgets.example.com/w   jane   patch     .spec.first and 3...\n"},
		{"all", 60, "wide", "<unknown>   8          Updated   widgets.example.com/w   jane   patch     .spec.first,.spec.second,.spec.third and 1 more\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			s := &session{Options: Options{Out: &out, Columns: c.columns}, catalog: catalog{{Group: "apps", Version: "v1", Name: "deployments", Kind: "Deployment"}}}
			if err := s.changePrinter(false, c.output)(changes); err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(out.String(), c.want) || !strings.Contains(out.String(), " deployment.apps/web ") {
				t.Errorf("got\n%s\nwant\n%s", out.String(), c.want)
			}
		})
	}
	var out strings.Builder
	s := &session{Options: Options{Out: &out, Color: true}}
	if err := s.changePrinter(true, "")(changes[:1]); err != nil || !strings.Contains(out.String(), "   \x1b[32mCreated\x1b[0m   ") {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// TestNoFeed reads from a server that has no changes.
func TestNoFeed(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	for _, watch := range []bool{false, true} {
		s := &session{
			Options: Options{Now: time.Now}, ctx: t.Context(), client: &client{base: server.URL, header: http.Header{}, http: server.Client()},
		}
		err := s.since("1h", &sinceFlags{watch: watch})
		if err == nil || !strings.HasPrefix(err.Error(), "the server has no feed of changes: ") {
			t.Errorf("watch %t: %v", watch, err)
		}
	}
}
