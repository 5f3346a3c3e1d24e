package discovery

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// onePeer is a peer that serves one group beside those of this server.
type onePeer struct {
	group   string
	changes int64
}

func (p *onePeer) Merge(local []apidiscovery.APIGroupDiscovery) []apidiscovery.APIGroupDiscovery {
	if p.group == "" {
		return local
	}
	return append(slices.Clone(local), apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: p.group}})
}

func (p *onePeer) Changes() int64 { return p.changes }

// TestPeers checks that only the aggregated document of /apis contains what peers serve, that it does not if the
// client asks for no peers, and when the document is made again.
func TestPeers(t *testing.T) {
	resources := directory.New()
	put := func(group string) {
		resources.Put(&directory.Resource{
			GVR: schema.GroupVersionResource{Group: group, Version: "v1", Resource: "r"},
			Describe: func() []metav1.APIResource {
				return []metav1.APIResource{{Name: "r", Kind: "R", Verbs: metav1.Verbs{"get"}}}
			},
		})
	}
	put("here")
	put("")
	h, peer := New(resources, nil, ""), &onePeer{group: "there"}
	const noPeers = aggregatedJSON + ";profile=nopeer"
	groups := func(path, accept string) (names []string) {
		t.Helper()
		w := get(h, path, accept)
		var aggregated apidiscovery.APIGroupDiscoveryList
		if err := json.Unmarshal(w.Body.Bytes(), &aggregated); err != nil {
			t.Fatal(err)
		}
		for _, g := range aggregated.Items {
			names = append(names, g.Name)
		}
		return names
	}
	check := func(path, accept string, want ...string) {
		t.Helper()
		if got := groups(path, accept); !slices.Equal(got, want) {
			t.Errorf("%s %s: %q, want %q", path, accept, got, want)
		}
	}
	check("/apis", aggregatedJSON, "here")
	h.SetPeers(peer)
	check("/apis", aggregatedJSON, "here", "there")
	check("/apis", aggregatedJSON+";profile=other", "here", "there")
	check("/apis", noPeers, "here")
	check("/apis", noPeers+","+aggregatedJSON, "here")
	check("/api", aggregatedJSON, "")
	check("/api", noPeers, "")
	var list metav1.APIGroupList
	if err := json.Unmarshal(get(h, "/apis", apiresponse.JSON).Body.Bytes(), &list); err != nil || len(list.Groups) != 1 {
		t.Errorf("the list of groups: %v, %v", list.Groups, err)
	}
	etag := get(h, "/apis", aggregatedJSON).Header().Get("ETag")
	put("new")
	check("/apis", aggregatedJSON, "here", "new", "there")
	if got := get(h, "/apis", aggregatedJSON).Header().Get("ETag"); got == etag || got == "" {
		t.Errorf("ETag %s, before %s", got, etag)
	}
	peer.group, peer.changes = "elsewhere", 1
	check("/apis", aggregatedJSON, "here", "new", "elsewhere")
	m := h.Metrics()
	for name, counter := range map[string]prometheus.Counter{"without peers": m.noPeers, "made": m.misses, "kept": m.hits} {
		var got dto.Metric
		if err := counter.Write(&got); err != nil || got.GetCounter().GetValue() != 3 {
			t.Errorf("%s: %v times, want 3", name, got.GetCounter().GetValue())
		}
	}
}
