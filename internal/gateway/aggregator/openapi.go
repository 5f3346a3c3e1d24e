package aggregator

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/keelson-dev/keelson/internal/api/discovery/openapi"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

// openapiState is the state of the OpenAPI documents of a server.
type openapiState struct {
	mu sync.Mutex // guards the fields below
	// etag identifies the OpenAPI v3 document of the version; "" if the server has none.
	etag string
	// v2 is the part of the version in the OpenAPI v2 document, nil if it is unknown, and v2Tag its etag. v2Count
	// counts the replacements of v2.
	v2      []byte
	v2Tag   string
	v2Count int
	// v2Asked reports whether v2 was requested.
	v2Asked bool
}

func (s *openapiState) keep(old *openapiState) {
	old.mu.Lock()
	defer old.mu.Unlock()
	s.etag, s.v2, s.v2Tag, s.v2Count, s.v2Asked = old.etag, old.v2, old.v2Tag, old.v2Count, old.v2Asked
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
	s.etag = etag
	changed := s.v2Asked && s.v2Tag != etag
	s.mu.Unlock()
	if changed {
		s.refreshV2(ctx, r)
	}
}

// refreshV2 reads the part of the version in the OpenAPI v2 document. If that fails, it keeps the old part.
func (s *openapiState) refreshV2(ctx context.Context, r *remote) {
	s.mu.Lock()
	etag := s.etag
	s.mu.Unlock()
	whole, _, err := r.document(ctx, "/openapi/v2", "application/json")
	var part []byte
	var dropped []error
	if err == nil {
		part, dropped, err = r.part(whole)
	}
	for _, problem := range dropped[:min(len(dropped), maxProblems)] {
		r.a.o.Log.Warn("a part of the OpenAPI v2 document of an extension API server is not served", "apiservice", r.name,
			"dropped", len(dropped), "error", problem)
	}
	if err != nil {
		r.a.o.Log.Warn("cannot read the OpenAPI v2 document of an extension API server", "apiservice", r.name, "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.v2, s.v2Tag = part, etag
	s.v2Count++
}

// maxProblems limits the number of invalid values in one document that are logged.
const maxProblems = 3

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
	select { // one at a time: such a document may be large
	case r.calls.documents <- struct{}{}:
		defer func() { <-r.calls.documents }()
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
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
	text, err = readAtMost(response.Body, maxOpenAPI, path)
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
			all = append(all, openapi.Document{
				Path: r.openapiPath(), ETag: r.openapi.etag, V2: strconv.Itoa(r.openapi.v2Count),
			})
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
	if err == nil && (scheme.CheckDepth(text) != nil || !json.Valid(text)) {
		err = fmt.Errorf("the OpenAPI v3 document of %v is not JSON, or is nested too deeply", r.version)
	}
	if err != nil || sent == "" || sent == etag {
		return text, etag, err
	}
	// The document has changed since the list was read. The caller finds the new ETag with its next request.
	r.openapi.mu.Lock()
	defer r.openapi.mu.Unlock()
	r.openapi.etag = sent
	return text, sent, nil
}

// V2 implements openapi.Source. The first call reads the document from the server. Later the loop of the remote reads
// it again after the OpenAPI v3 document has changed, while V2 returns the old one. If reading fails, the old one is
// kept.
func (a *Aggregator) V2(ctx context.Context, path string) ([]byte, error) {
	r := a.byPath(path)
	if r == nil {
		return nil, openapi.ErrGone
	}
	s := &r.openapi
	s.mu.Lock()
	first := !s.v2Asked && r.available.Load()
	s.v2Asked = true
	s.mu.Unlock()
	if first {
		s.refreshV2(ctx, r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.v2 == nil {
		return nil, openapi.ErrGone
	}
	return s.v2, nil
}

// part returns the part of the version in the OpenAPI v2 document: its paths, and the definitions that they need.
func (r *remote) part(whole []byte) (part []byte, dropped []error, err error) {
	prefix := "/" + r.openapiPath() + "/"
	return openapi.CheckV2(whole, func(path string) bool { return strings.HasPrefix(path, prefix) })
}
