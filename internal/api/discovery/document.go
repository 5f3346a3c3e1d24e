package discovery

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"sync"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// document is an object and its encodings. The object is made when it is first requested.
type document struct {
	make func() apiresponse.Message
	// kind is the kind in the protobuf envelope. suffix is appended to the media type in the
	// Content-Type.
	kind   metav1.TypeMeta
	suffix string

	mu    sync.Mutex // guards forms
	forms map[string]encodedForm
}

type encodedForm struct {
	body []byte
	etag string
}

func (d *document) encoded(mediaType string) (encodedForm, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f, ok := d.forms[mediaType]; ok {
		return f, nil
	}
	body, err := apiresponse.Encode(d.make(), d.kind, mediaType)
	if err != nil {
		return encodedForm{}, err
	}
	sum := sha256.Sum256(body)
	f := encodedForm{body: body, etag: `"` + strings.ToUpper(hex.EncodeToString(sum[:])) + `"`}
	if d.forms == nil {
		d.forms = map[string]encodedForm{}
	}
	d.forms[mediaType] = f
	return f, nil
}

// serve writes the document in a media type, or responds 304 if the client already has it.
func (d *document) serve(w http.ResponseWriter, r *http.Request, mediaType string) {
	f, err := d.encoded(mediaType)
	if err != nil {
		apiresponse.Error(w, r, err)
		return
	}
	pretty := mediaType == apiresponse.JSON && apiresponse.WantsPretty(r)
	same := !pretty && r.Header.Get("If-None-Match") == f.etag
	body := f.body
	if pretty {
		body = apiresponse.Indent(body)
	}
	// Readers usually share a document. But if it changes while a slow reader has it, only this reader keeps it in
	// memory.
	if !same && !request.HoldMemory(r.Context(), len(body)) {
		apiresponse.Error(w, r, apierr.TooManyUnread())
		return
	}
	h := w.Header()
	h.Set("Content-Type", mediaType+d.suffix)
	h.Set("Vary", "Accept")
	if !pretty {
		h.Set("ETag", f.etag)
	}
	if same {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // an error means that the client has gone away
}

var (
	typeVersions     = metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}
	typeGroup        = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
	typeGroupList    = metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}
	typeResourceList = metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}
	typeAggregated   = metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}
)

const aggregatedSuffix = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// versionsDocument returns the document of /api. core has the core group, or is empty if that is not served.
func versionsDocument(core []*group, address string) *document {
	return &document{kind: typeVersions, make: func() apiresponse.Message {
		// Like kube-apiserver's, the JSON of the two oldest documents has no apiVersion.
		out := &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: typeVersions.Kind}, Versions: []string{}}
		for _, g := range core {
			for i := range g.versions {
				out.Versions = append(out.Versions, g.versions[i].name)
			}
		}
		out.ServerAddressByClientCIDRs = []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: address}}
		return out
	}}
}

func resourceDocument(g *group, v *version) *document {
	return &document{kind: typeResourceList, make: func() apiresponse.Message {
		out := &metav1.APIResourceList{TypeMeta: typeResourceList, GroupVersion: groupVersion(g.name, v.name),
			APIResources: v.resources}
		if g.name == "" {
			out.APIVersion = ""
		}
		return out
	}}
}

func groupDocument(g *group) *document {
	return &document{kind: typeGroup, make: func() apiresponse.Message {
		out := apiGroup(g)
		out.TypeMeta = typeGroup
		return out
	}}
}

func groupListDocument(groups []*group) *document {
	return &document{kind: typeGroupList, make: func() apiresponse.Message {
		out := &metav1.APIGroupList{TypeMeta: typeGroupList, Groups: []metav1.APIGroup{}}
		for _, g := range groups {
			out.Groups = append(out.Groups, *apiGroup(g))
		}
		return out
	}}
}

func apiGroup(g *group) *metav1.APIGroup {
	out := &metav1.APIGroup{Name: g.name}
	for i := range g.versions {
		name := g.versions[i].name
		v := metav1.GroupVersionForDiscovery{GroupVersion: groupVersion(g.name, name), Version: name}
		out.Versions = append(out.Versions, v)
	}
	out.PreferredVersion = out.Versions[0]
	return out
}

func groupVersion(group, version string) string {
	if group == "" {
		return version
	}
	return group + "/" + version
}

func aggregatedDocument(groups []*group) *document {
	return &document{kind: typeAggregated, suffix: aggregatedSuffix, make: func() apiresponse.Message {
		return aggregatedList(groups)
	}}
}

// mergedDocument returns the aggregated document of this server and its peers. It calls peers only once.
func mergedDocument(groups []*group, peers Peers) *document {
	out := aggregatedList(groups)
	out.Items = peers.Merge(out.Items)
	return &document{kind: typeAggregated, suffix: aggregatedSuffix, make: func() apiresponse.Message { return out }}
}

func aggregatedList(groups []*group) *apidiscovery.APIGroupDiscoveryList {
	out := &apidiscovery.APIGroupDiscoveryList{TypeMeta: typeAggregated, Items: []apidiscovery.APIGroupDiscovery{}}
	for _, g := range groups {
		item := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
		for i := range g.versions {
			v := &g.versions[i]
			out := apidiscovery.APIVersionDiscovery{Version: v.name, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
			switch {
			case v.remote != nil && v.remote.Stale:
				out.Freshness = apidiscovery.DiscoveryFreshnessStale
			case v.remote != nil:
				out.Resources = v.remote.Resources
			case len(v.resources) == 0:
				continue
			default:
				out.Resources = Aggregate(v.resources)
			}
			item.Versions = append(item.Versions, out)
		}
		if len(item.Versions) > 0 {
			out.Items = append(out.Items, item)
		}
	}
	return out
}

// Aggregate returns resources as they are in the aggregated document: subresources are in their parent resources.
func Aggregate(resources []metav1.APIResource) []apidiscovery.APIResourceDiscovery {
	var out []apidiscovery.APIResourceDiscovery
	index := map[string]int{}
	parent := func(name string) *apidiscovery.APIResourceDiscovery {
		i, ok := index[name]
		if !ok {
			i = len(out)
			index[name] = i
			out = append(out, apidiscovery.APIResourceDiscovery{Resource: name})
		}
		return &out[i]
	}
	for i := range resources {
		r := &resources[i]
		kind := &metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
		name, sub, isSub := strings.Cut(r.Name, "/")
		p := parent(name)
		if p.Scope == "" {
			p.Scope = apidiscovery.ScopeCluster
			if r.Namespaced {
				p.Scope = apidiscovery.ScopeNamespace
			}
		}
		if isSub {
			p.Subresources = append(p.Subresources,
				apidiscovery.APISubresourceDiscovery{Subresource: sub, ResponseKind: kind, Verbs: r.Verbs})
			continue
		}
		p.ResponseKind, p.SingularResource, p.Verbs = kind, r.SingularName, r.Verbs
		p.ShortNames, p.Categories = r.ShortNames, r.Categories
	}
	return out
}
