package aggregator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/discovery"
)

const (
	// documentTime limits the time that one document of a server may take.
	documentTime = 5 * time.Second
	// maxDiscovery and maxOpenAPI are the largest documents that are read, in bytes.
	maxDiscovery, maxOpenAPI = 8 << 20, 32 << 20

	// maxResources is the largest number of resources of one version. The garbage collector watches each of them.
	maxResources = 1000

	// aggregatedTypes are the media types of the aggregated document. Servers before Kubernetes 1.30 know only the
	// second one; both have the same fields.
	aggregatedTypes = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
		"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
)

// stale reports whether the current document of the version is not known, so that discovery marks the version as
// stale.
func (r *remote) stale() bool {
	d := r.discovered.Load()
	return d == nil || d.Stale
}

// refresh reads the documents of the server. If it is not available, its version is marked as stale and has no
// resources in discovery.
func (r *remote) refresh(ctx context.Context, available bool) {
	next := &discovery.Remote{Stale: true}
	if available {
		ctx, cancel := context.WithTimeout(ctx, documentTime)
		defer cancel()
		found, err := r.discover(ctx)
		if err != nil {
			r.a.o.Log.Warn("cannot read the resources of an extension API server", "apiservice", r.name, "error", err)
		} else {
			next = found
		}
		r.openapi.refresh(ctx, r)
	}
	r.a.metrics.aggregations.Inc()
	if before := r.discovered.Load(); before != next {
		r.discovered.Store(next)
		r.a.changes.add()
	}
}

// discover requests the aggregated discovery document from the server. If the server has none, it requests the document of the
// version.
func (r *remote) discover(ctx context.Context) (*discovery.Remote, error) {
	header := checker()
	header.Set("Accept", aggregatedTypes)
	before := r.discovered.Load()
	if before != nil && before.ETag != "" && !before.Stale {
		header.Set("If-None-Match", before.ETag)
	}
	response, err := r.get(ctx, "/apis", header)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	if response.StatusCode == http.StatusNotModified && before != nil {
		return before, nil
	}
	_, params, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode != http.StatusOK || err != nil || params["as"] != "APIGroupDiscoveryList" {
		return r.discoverVersion(ctx)
	}
	var list apidiscovery.APIGroupDiscoveryList
	if err := decode(response.Body, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		for _, v := range list.Items[i].Versions {
			if list.Items[i].Name == r.version.Group && v.Version == r.version.Version {
				if len(v.Resources) > maxResources {
					return nil, errManyResources
				}
				stale := v.Freshness == apidiscovery.DiscoveryFreshnessStale
				return &discovery.Remote{Resources: v.Resources, ETag: response.Header.Get("ETag"), Stale: stale}, nil
			}
		}
	}
	return nil, fmt.Errorf("the server has no resources of %v", r.version)
}

// errManyResources is the error of a document with more than maxResources.
var errManyResources = fmt.Errorf("the server has more than %d resources in one version", maxResources)

// discoverVersion requests the discovery document of the version.
func (r *remote) discoverVersion(ctx context.Context) (*discovery.Remote, error) {
	header := checker()
	header.Set("Accept", "application/json")
	response, err := r.get(ctx, "/apis/"+r.version.String(), header)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the document of %v has status %d", r.version, response.StatusCode)
	}
	var list metav1.APIResourceList
	if err := decode(response.Body, &list); err != nil {
		return nil, err
	}
	if len(list.APIResources) > maxResources {
		return nil, errManyResources
	}
	for i := range list.APIResources {
		if entry := &list.APIResources[i]; entry.Version == "" {
			entry.Group, entry.Version = r.version.Group, r.version.Version
		}
	}
	return &discovery.Remote{Resources: discovery.Aggregate(list.APIResources)}, nil
}

func decode(body io.Reader, into any) error {
	text, err := readAtMost(body, maxDiscovery, "the document")
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// readAtMost reads all of a body. It fails if the body has more than most bytes; the error begins with what, the
// name of the body.
func readAtMost(body io.Reader, most int64, what string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(body, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s has more than %d bytes", what, most)
	}
	return text, err
}
