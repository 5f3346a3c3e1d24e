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

	"github.com/keelson-dev/keelson/apiresponse"
)

// document is an object that is made on first use, and its encoded forms.
type document struct {
	make func() apiresponse.Message
	// kind is what the protobuf envelope says; suffix follows the media type in
	// the Content-Type.
	kind   metav1.TypeMeta
	suffix string

	mu    sync.Mutex // guards forms
	forms map[string]form
}

type form struct {
	body []byte
	etag string
}

func (d *document) form(mediaType string) (form, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f, ok := d.forms[mediaType]; ok {
		return f, nil
	}
	body, err := apiresponse.Encode(d.make(), d.kind, mediaType)
	if err != nil {
		return form{}, err
	}
	sum := sha256.Sum256(body)
	f := form{body: body, etag: `"` + strings.ToUpper(hex.EncodeToString(sum[:])) + `"`}
	if d.forms == nil {
		d.forms = map[string]form{}
	}
	d.forms[mediaType] = f
	return f, nil
}

// serve writes the document in a media type, or 304 if the client has it.
func (d *document) serve(w http.ResponseWriter, r *http.Request, mediaType string) {
	f, err := d.form(mediaType)
	if err != nil {
		apiresponse.Error(w, r, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", mediaType+d.suffix)
	h.Set("Vary", "Accept")
	body := f.body
	if mediaType == apiresponse.JSON && apiresponse.Pretty(r) {
		body = apiresponse.Indent(body)
	} else {
		h.Set("ETag", f.etag)
		if r.Header.Get("If-None-Match") == f.etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // the client may be gone
}

var (
	typeVersions     = metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}
	typeGroup        = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
	typeGroupList    = metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}
	typeResourceList = metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}
	typeAggregated   = metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}
)

const aggregatedSuffix = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

func versionsDocument(core *Group, address string) *document {
	return &document{kind: typeVersions, make: func() apiresponse.Message {
		// The two oldest documents have no apiVersion in JSON.
		out := &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: typeVersions.Kind}, Versions: []string{}}
		if core != nil {
			for _, v := range core.Versions {
				out.Versions = append(out.Versions, v.Name)
			}
		}
		out.ServerAddressByClientCIDRs = []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: address}}
		return out
	}}
}

func resourceDocument(g *Group, v *Version) *document {
	return &document{kind: typeResourceList, make: func() apiresponse.Message {
		out := &metav1.APIResourceList{TypeMeta: typeResourceList, GroupVersion: groupVersion(g.Name, v.Name), APIResources: v.Resources}
		if g.Name == "" {
			out.APIVersion = ""
		}
		if out.APIResources == nil {
			out.APIResources = []metav1.APIResource{}
		}
		return out
	}}
}

func groupDocument(g *Group) *document {
	return &document{kind: typeGroup, make: func() apiresponse.Message {
		out := apiGroup(g)
		out.TypeMeta = typeGroup
		return out
	}}
}

func groupListDocument(groups []*Group) *document {
	return &document{kind: typeGroupList, make: func() apiresponse.Message {
		out := &metav1.APIGroupList{TypeMeta: typeGroupList, Groups: []metav1.APIGroup{}}
		for _, g := range groups {
			out.Groups = append(out.Groups, *apiGroup(g))
		}
		return out
	}}
}

func apiGroup(g *Group) *metav1.APIGroup {
	out := &metav1.APIGroup{Name: g.Name}
	for i := range g.Versions {
		v := metav1.GroupVersionForDiscovery{GroupVersion: groupVersion(g.Name, g.Versions[i].Name), Version: g.Versions[i].Name}
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

func aggregatedDocument(groups []*Group) *document {
	return &document{kind: typeAggregated, suffix: aggregatedSuffix, make: func() apiresponse.Message {
		out := &apidiscovery.APIGroupDiscoveryList{TypeMeta: typeAggregated, Items: []apidiscovery.APIGroupDiscovery{}}
		for _, g := range groups {
			item := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.Name}}
			for i := range g.Versions {
				v := &g.Versions[i]
				if v.Announced {
					continue
				}
				freshness := apidiscovery.DiscoveryFreshnessCurrent
				if v.Stale {
					freshness = apidiscovery.DiscoveryFreshnessStale
				}
				item.Versions = append(item.Versions, apidiscovery.APIVersionDiscovery{
					Version: v.Name, Freshness: freshness, Resources: aggregate(v.Resources),
				})
			}
			if len(item.Versions) > 0 {
				out.Items = append(out.Items, item)
			}
		}
		return out
	}}
}

// aggregate hangs subresources below their parents.
func aggregate(resources []metav1.APIResource) []apidiscovery.APIResourceDiscovery {
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
			p.Subresources = append(p.Subresources, apidiscovery.APISubresourceDiscovery{Subresource: sub, ResponseKind: kind, Verbs: r.Verbs})
			continue
		}
		p.ResponseKind, p.SingularResource, p.Verbs = kind, r.SingularName, r.Verbs
		p.ShortNames, p.Categories = r.ShortNames, r.Categories
	}
	return out
}
