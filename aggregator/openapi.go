package aggregator

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/keelson-dev/keelson/discovery/openapi"
)

// openapiState is what is known of the OpenAPI documents of a server.
type openapiState struct {
	mu sync.Mutex // guards the fields below
	// etag identifies the OpenAPI v3 document of the version; "" if the server has none.
	etag string
	// v2 is what the version adds to the OpenAPI v2 document, nil before somebody asked for it, and v2Tag the etag that it
	// belongs to.
	v2    []byte
	v2Tag string
}

func (s *openapiState) keep(old *openapiState) {
	old.mu.Lock()
	defer old.mu.Unlock()
	s.etag, s.v2, s.v2Tag = old.etag, old.v2, old.v2Tag
}

// openapiPath is the path of the OpenAPI v3 document of the version.
func (r *remote) openapiPath() string { return "apis/" + r.version.String() }

// refresh reads the list of the OpenAPI v3 documents. If that fails, the version keeps the document that it had.
func (s *openapiState) refresh(ctx context.Context, r *remote) {
	etag, err := r.readIndex(ctx)
	if err != nil {
		r.a.o.Log.Debug("cannot read the list of OpenAPI documents of an extension API server", "apiservice", r.name,
			"error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.etag = etag
}

// readIndex returns the hash of the document of the version, "" if there is none.
func (r *remote) readIndex(ctx context.Context) (string, error) {
	text, _, err := r.document(ctx, "/openapi/v3", "")
	if err != nil {
		return "", err
	}
	var index struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return "", err
	}
	entry, ok := index.Paths[r.openapiPath()]
	if !ok {
		return "", nil
	}
	u, err := url.Parse(entry.URL)
	if err != nil {
		return "", err
	}
	if hash := u.Query().Get("hash"); hash != "" {
		return hash, nil
	}
	// A server without hashes in the list.
	document, etag, err := r.document(ctx, "/openapi/v3/"+r.openapiPath(), "application/json")
	if err == nil && etag == "" {
		etag = fmt.Sprintf("%X", sha256.Sum256(document))
	}
	return etag, err
}

// document reads an OpenAPI document.
func (r *remote) document(ctx context.Context, path, accept string) (text []byte, etag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, documentTime)
	defer cancel()
	header := documentReader()
	if accept != "" {
		header.Set("Accept", accept)
	}
	response, err := r.get(ctx, path, header)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, "", openapi.ErrGone
	default:
		return nil, "", fmt.Errorf("%s has status %d", path, response.StatusCode)
	}
	text, err = io.ReadAll(io.LimitReader(response.Body, maxOpenAPI+1))
	if len(text) > maxOpenAPI {
		err = fmt.Errorf("%s has more than %d bytes", path, maxOpenAPI)
	}
	return text, strings.Trim(response.Header.Get("ETag"), `"`), err
}

// errUnavailable is the error of documents of a server that cannot be reached.
var errUnavailable = errors.New("the extension API server is not available")

// Documents implements openapi.Source.
func (a *Aggregator) Documents() []openapi.Document {
	var all []openapi.Document
	for _, r := range a.table.Load().ordered {
		r.openapi.mu.Lock()
		if r.openapi.etag != "" {
			all = append(all, openapi.Document{Path: r.openapiPath(), ETag: r.openapi.etag})
		}
		r.openapi.mu.Unlock()
	}
	return all
}

// byPath returns the remote whose document has a path.
func (a *Aggregator) byPath(path string) *remote {
	for _, r := range a.table.Load().ordered {
		if r.openapiPath() == path {
			return r
		}
	}
	return nil
}

// V3 implements openapi.Source. The document is read from the server for each caller that does not have it yet.
func (a *Aggregator) V3(ctx context.Context, path string) (text []byte, etag string, err error) {
	r := a.byPath(path)
	switch {
	case r == nil:
		return nil, "", openapi.ErrGone
	case !r.available.Load():
		return nil, "", errUnavailable
	}
	r.openapi.mu.Lock()
	etag = r.openapi.etag
	r.openapi.mu.Unlock()
	text, sent, err := r.document(ctx, "/openapi/v3/"+path, "application/json")
	if err != nil || sent == "" || sent == etag {
		return text, etag, err
	}
	// The document has changed since the list was read. The caller finds the new ETag with its next request.
	r.openapi.mu.Lock()
	defer r.openapi.mu.Unlock()
	r.openapi.etag = sent
	return text, sent, nil
}

// V2 implements openapi.Source. The document of the server is read when somebody asks for the first time, and again after
// its OpenAPI v3 document has changed. While the server is not available, the last one is used.
func (a *Aggregator) V2(ctx context.Context, path string) ([]byte, error) {
	r := a.byPath(path)
	if r == nil {
		return nil, openapi.ErrGone
	}
	s := &r.openapi
	s.mu.Lock()
	etag, text, tag := s.etag, s.v2, s.v2Tag
	s.mu.Unlock()
	if text != nil && (tag == etag || !r.available.Load()) {
		return text, nil
	}
	if !r.available.Load() {
		return nil, errUnavailable
	}
	whole, _, err := r.document(ctx, "/openapi/v2", "application/json")
	if err != nil {
		return nil, err
	}
	if text, err = r.part(whole); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.v2, s.v2Tag = text, etag
	return text, nil
}

// part returns what the version adds to the OpenAPI v2 document: its paths, and all definitions.
func (r *remote) part(whole []byte) ([]byte, error) {
	var document struct {
		Paths       map[string]json.RawMessage `json:"paths"`
		Definitions map[string]json.RawMessage `json:"definitions"`
	}
	if err := json.Unmarshal(whole, &document); err != nil {
		return nil, err
	}
	for path := range document.Paths {
		if !strings.HasPrefix(path, "/"+r.openapiPath()+"/") {
			delete(document.Paths, path)
		}
	}
	return json.Marshal(document)
}
