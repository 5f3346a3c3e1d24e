package hostile

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

const (
	historyGroup = "history.keelson.dev/v1alpha1"
	changesOfAll = "/apis/" + historyGroup + "/changes"
)

// pastAttacks are attacks on reads of the past.
func pastAttacks() []row {
	return []row{
		{
			name: "changes of a large object", slow: true, row: "43", fresh: true,
			rights: []right{{resources: "configmaps", verbs: "create,patch"}, {group: "history.keelson.dev", resources: "changes", verbs: "list"}},
			setup:  func(a *attack) { largeChanges(a, size(120, 600)) },
			run: func(a *attack) {
				for _, query := range []string{"?limit=1000", "?limit=1000&labelSelector=app%3Dnone", "?limit=1000&fieldSelector=type%3DDeleted"} {
					a.user.get(a.groupPath(historyGroup, "changes"+query)).want(a, http.StatusOK)
				}
			},
			// Each answer decodes at most 32 MiB. Without that bound one decodes all versions.
			limits: limits{cpu: 8 * time.Second, peak: 256 << 20, kept: 64 << 20},
		},
		{
			name: "watches of changes that are not read", slow: true, row: "43", fresh: true,
			rights: []right{
				{resources: "configmaps", verbs: "create,patch"}, {group: "history.keelson.dev", resources: "changes", verbs: "list,watch"},
			},
			setup:  func(a *attack) { largeChanges(a, size(60, 300)) },
			run:    unreadChanges,
			limits: limits{cpu: 40 * time.Second, peak: 256 << 20, kept: 64 << 20},
		},
		{
			name: "answers of the past that are not read", slow: true, row: "43", fresh: true, server: "patient",
			rights: []right{
				{resources: "configmaps", verbs: "create,patch,get,list,readhistory"},
				{resources: "configmaps/history,configmaps/blockers", verbs: "get"},
				{group: "history.keelson.dev", resources: "changes", verbs: "list"},
			},
			setup: func(a *attack) {
				largeChanges(a, 20)
				a.get(a.path("configmaps/large/history?objects=true")) // the rights are in effect
			},
			run: unreadPast,
			// When the memory was only counted after an answer was made, twenty histories took 1.4 GB, and 90 were not answered in a minute.
			limits: limits{cpu: 40 * time.Second, peak: 640 << 20, kept: 64 << 20},
		},
		{
			name: "selectors of 900 KB in the feed of changes", row: "46", fresh: true,
			rights: []right{{group: "history.keelson.dev", resources: "changes", verbs: "list,watch"}},
			run:    longSelectorsOfChanges,
			// Without a limit 56 watches of each kind keep 550 MiB. Most of the processor time is for TLS and the headers.
			limits: limits{cpu: 8 * time.Second, peak: 256 << 20},
		},
		{
			name: "watches with long selectors", slow: true, row: "46", fresh: true,
			rights: []right{
				{resources: "configmaps", verbs: "list,watch"}, {group: "history.keelson.dev", resources: "changes", verbs: "list,watch"},
			},
			run: longSelectorsOfWatches,
			// A user may keep seven eighths of 128 MiB with selectors. If they are not counted, 720 watches keep 1,280 MiB and parse for 38 s.
			limits: limits{cpu: 20 * time.Second, peak: 512 << 20, kept: 64 << 20},
		},
		{
			name: "blockers of an object with very many finalizers", row: "43",
			rights: []right{{resources: "configmaps", verbs: "create,delete,get,patch"}, {resources: "configmaps/blockers", verbs: "get"}},
			run:    manyFinalizers,
			// With work for each pair of finalizers one answer takes minutes.
			limits: limits{cpu: 10 * time.Second, peak: 384 << 20, kept: 64 << 20},
		},
	}
}

// get reads as the attacker until that is allowed.
func (a *attack) get(path string) *answer {
	a.Helper()
	var got *answer
	wait.NoError(a, "GET "+path, func() error {
		if got = a.user.get(path); got.status != http.StatusOK {
			return fmt.Errorf("%d %s", got.status, shorten(string(got.body)))
		}
		return nil
	})
	return got
}

// largeChanges makes many versions of a ConfigMap with 20,000 keys.
func largeChanges(a *attack, versions int) {
	data := map[string]any{}
	for i := range 20_000 {
		data[fmt.Sprintf("key-%05d", i)] = strings.Repeat("x", 30)
	}
	object := configMap("large", 0)
	object["data"] = data
	wait.NoError(a, "the right to create", func() error {
		if got := a.user.send(http.MethodPost, a.path("configmaps"), jsonType, encode(object)); got.status != http.StatusCreated {
			return fmt.Errorf("%d %s", got.status, shorten(string(got.body)))
		}
		return nil
	})
	for i := range versions {
		a.user.send(http.MethodPatch, a.path("configmaps/large"), mergeType, []byte(fmt.Sprintf(`{"data":{"n":"%d"}}`, i))).want(a, http.StatusOK)
	}
}

// unreadChanges opens more watches of all changes of the last day than a server has places for, and reads nothing. One watch that is
// opened then gets what it asks for.
func unreadChanges(a *attack) {
	refused := 0
	for range 4 {
		c := a.dialHTTP2(true, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for i := range 20 {
			path := a.groupPath(historyGroup, "changes?watch=true&since=24h&limit=1000&timeoutSeconds=600")
			if err := c.headers(uint32(2*i+1), true, http.MethodGet, path, "authorization", "Bearer "+a.user.token); err != nil {
				a.Fatal(err)
			}
		}
		wait.NoError(a, "the answers", func() error {
			if n := len(c.answered()); n < 20 {
				return fmt.Errorf("%d of 20", n)
			}
			return nil
		})
		for _, status := range c.answered() {
			if status == strconv.Itoa(http.StatusTooManyRequests) {
				refused++
			}
		}
	}
	if refused < 20 {
		a.Errorf("%d of 80 watches were refused", refused)
	}
	got := a.admin.get(a.groupPath(historyGroup, "changes?watch=true&since=24h&timeoutSeconds=40&fieldSelector=type%3DCreated,name%3Dlarge"))
	if got.want(a, http.StatusOK); !strings.Contains(string(got.body), `"name":"large"`) {
		a.Errorf("another watch got %s", shorten(string(got.body)))
	}
}

// longSelectorsOfChanges asks the feed for changes with selectors that are almost as long as a request line may be.
func longSelectorsOfChanges(a *attack) {
	terms := strings.TrimSuffix(strings.Repeat("name!=b,", 112_000), ",")
	for _, selector := range []string{"labelSelector=" + terms, "fieldSelector=" + terms} {
		a.user.get(a.groupPath(historyGroup, "changes?"+selector)).want(a, http.StatusBadRequest)
		for range 56 {
			c := a.dialHTTP2(true)
			path := a.groupPath(historyGroup, "changes?watch=true&"+selector)
			if err := c.headers(1, true, http.MethodGet, path, "authorization", "Bearer "+a.user.token); err != nil {
				a.Fatal(err)
			}
			wait.NoError(a, "the answer", func() error {
				if got := c.answered(); len(got) == 0 {
					return errors.New("there is none")
				} else if got[1] != "400" {
					a.Errorf("a watch with a long selector is answered %s", got[1])
				}
				return nil
			})
		}
	}
}

// longSelectorsOfWatches opens watches with selectors of the longest form that is served. Their user must not be served more of them than
// what they take in memory allows, and other watches must be.
func longSelectorsOfWatches(a *attack) {
	terms := strings.TrimSuffix(strings.Repeat("abcdefghijkl!=bcdefghijk,", 9_900), ",")
	counts := map[string]int{}
	for range 12 {
		c := a.dialHTTP2(true)
		const streams = 60
		for i := range uint32(streams) {
			path := a.path("configmaps?watch=true&labelSelector=" + terms)
			if err := c.headers(2*i+1, true, http.MethodGet, path, "authorization", "Bearer "+a.user.token); err != nil {
				a.Fatal(err)
			}
		}
		wait.NoError(a, "the answers to begin", func() error {
			if n := len(c.answered()); n < streams {
				return fmt.Errorf("%d of %d have", n, streams)
			}
			return nil
		})
		for _, status := range c.answered() {
			counts[status]++
		}
	}
	if counts["200"] < 20 || counts["429"] < 400 {
		a.Errorf("the answers by status: %v", counts)
	}
	a.user.get(a.groupPath(historyGroup, "changes?watch=true&timeoutSeconds=1&labelSelector="+terms)).want(a, http.StatusTooManyRequests)
	a.user.get(a.path("configmaps?watch=true&timeoutSeconds=1&labelSelector=a%3Db")).want(a, http.StatusOK)
	a.othersRead()
}

// unreadPast asks for answers of the past on streams whose window is closed.
func unreadPast(a *attack) {
	counts := map[string]int{}
	a.unread(counts, http.MethodGet, a.path("configmaps/large/history?objects=true"), "")
	a.unread(counts, http.MethodGet, a.path("configmaps/large?asOf=1s"), "")
	a.unread(counts, http.MethodGet, a.path("configmaps?asOf=1s"), "")
	a.unread(counts, http.MethodGet, a.groupPath(historyGroup, "changes?limit=1000"), "")
	a.unread(counts, http.MethodGet, a.path("configmaps/large/blockers"), "")
	if counts["200"] == 0 || counts["429"] < 100 {
		a.Errorf("the answers by status: %v", counts)
	}
	a.othersRead()
}

// manyFinalizers asks what an object with 40,000 finalizers waits for.
func manyFinalizers(a *attack) {
	var names []string
	for i := range 40_000 {
		names = append(names, fmt.Sprintf("e.io/%d", i))
	}
	object := configMap("finalizers", 0)
	object["metadata"].(map[string]any)["finalizers"] = names
	a.user.send(http.MethodPost, a.path("configmaps"), jsonType, encode(object)).want(a, http.StatusCreated)
	a.user.send(http.MethodDelete, a.path("configmaps/finalizers"), "", nil).want(a, http.StatusOK, http.StatusAccepted)
	for range 3 {
		got := a.user.get(a.path("configmaps/finalizers/blockers")).want(a, http.StatusOK)
		var answer struct{ Items []json.RawMessage }
		if err := json.Unmarshal(got.body, &answer); err != nil || len(answer.Items) == 0 || len(got.body) > 1<<20 {
			a.Errorf("%d items in %d bytes, %v", len(answer.Items), len(got.body), err)
		}
	}
	a.user.send(http.MethodPatch, a.path("configmaps/finalizers"), mergeType, []byte(`{"metadata":{"finalizers":null}}`)).want(a, http.StatusOK)
}
