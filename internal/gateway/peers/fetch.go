package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"

	"github.com/keelson-dev/keelson/internal/access/auth/requestheader"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

const (
	// documentTime limits the time that one document of a peer may take.
	documentTime = 5 * time.Second
	// maxDocument is the largest document that is read, in bytes.
	maxDocument = 8 << 20
	// documentTypes requests only the resources of the peer itself. Servers that do not know the profile ignore it.
	documentTypes = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer," +
		"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
)

// reader returns the user for reading the documents of peers, as in kube-apiserver. Any authenticated user may read
// them.
func reader() *request.User {
	const name = "system:apiserver"
	return &request.User{Name: name, UID: name, Groups: []string{request.GroupAuthenticated}}
}

// fetch reads the documents of a peer.
func (p *Peers) fetch(ctx context.Context, name string) (*document, error) {
	address, err := Address(ctx, p.o.Store, name)
	if err != nil {
		p.metrics.syncErrors.WithLabelValues("hostport_resolution").Inc()
		return nil, err
	}
	var lists []*apidiscovery.APIGroupDiscoveryList
	for _, path := range []string{"/api", "/apis"} {
		list, err := p.read(ctx, address, path)
		if err != nil {
			p.metrics.syncErrors.WithLabelValues("fetch_discovery").Inc()
			return nil, fmt.Errorf("%s of %s: %w", path, address, err)
		}
		lists = append(lists, list)
	}
	return newDocument(lists...), nil
}

func (p *Peers) read(ctx context.Context, address, path string) (*apidiscovery.APIGroupDiscoveryList, error) {
	ctx, cancel := context.WithTimeout(ctx, documentTime)
	defer cancel()
	u := url.URL{Scheme: "https", Host: address, Path: path}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header = requestheader.Headers(reader())
	r.Header.Set("Accept", documentTypes)
	r.Header.Set(Header, "true")
	response, err := p.transport.Load().RoundTripTo(r, address)
	if err != nil {
		p.metrics.rerouted(http.StatusServiceUnavailable, "", "", "")
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	p.metrics.rerouted(response.StatusCode, "", "", "")
	_, params, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode != http.StatusOK || err != nil || params["as"] != "APIGroupDiscoveryList" {
		return nil, fmt.Errorf("the response has status %d and content type %q",
			response.StatusCode, response.Header.Get("Content-Type"))
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxDocument+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxDocument {
		return nil, fmt.Errorf("the document has more than %d bytes", maxDocument)
	}
	list := &apidiscovery.APIGroupDiscoveryList{}
	return list, json.Unmarshal(text, list)
}
