package serviceaccount

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

const (
	// ConfigurationPath and KeysPath are the paths of the documents for relying parties
	// (OpenID Connect Discovery 1.0).
	ConfigurationPath = "/.well-known/openid-configuration"
	KeysPath          = "/openid/v1/jwks"

	keySetType = "application/jwk-set+json"
)

// Discovery serves the documents that describe the issuer and its keys to relying parties.
type Discovery struct {
	keys    KeySource
	issuer  string
	keysURI string
}

// NewDiscovery returns the handler of the documents. keysURI is the URL of the keys; "" stands
// for this server's address. It returns an error unless the issuer is an https URL without
// query and fragment; the server then runs without the documents.
func NewDiscovery(keys KeySource, issuer, keysURI, address string) (*Discovery, error) {
	u, err := url.Parse(issuer)
	switch {
	case err != nil:
		return nil, err
	case u.Scheme != "https":
		return nil, fmt.Errorf("issuer URL must use https scheme, got: %s", issuer)
	case u.RawQuery != "":
		return nil, fmt.Errorf("issuer URL may not include a query, got: %s", issuer)
	case u.Fragment != "":
		return nil, fmt.Errorf("issuer URL may not include a fragment, got: %s", issuer)
	}
	if keysURI == "" {
		keysURI = (&url.URL{Scheme: "https", Host: address, Path: KeysPath}).String()
	}
	if u, err := url.Parse(keysURI); err != nil || u.Scheme != "https" {
		return nil, errors.Join(err, fmt.Errorf("jwksURI requires https scheme, parsed as: %v", u))
	}
	return &Discovery{keys, issuer, keysURI}, nil
}

// Serves reports whether a path belongs to one of the documents.
func (d *Discovery) Serves(path string) bool {
	return atOrBelow(path, ConfigurationPath) || atOrBelow(path, KeysPath)
}

func atOrBelow(path, root string) bool {
	rest, ok := strings.CutPrefix(path, root)
	return ok && (rest == "" || rest[0] == '/')
}

// ServeHTTP implements http.Handler.
func (d *Discovery) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	document, media := d.configuration, apiresponse.JSON
	if atOrBelow(r.URL.Path, KeysPath) {
		document, media = d.keySet, keySetType
	}
	switch path := strings.TrimSuffix(r.URL.Path, "/"); {
	case path != ConfigurationPath && path != KeysPath:
		apiresponse.Error(w, r, apierr.PathNotFound())
		return
	case r.Method != http.MethodGet:
		apiresponse.Error(w, r, apierr.PathMethodNotAllowed())
		return
	case !apiresponse.AcceptsAny(apiresponse.ParseAccept(r.Header.Get("Accept")), []string{media}):
		apiresponse.Error(w, r, apiresponse.NotAcceptable("406: Not Acceptable\n\nAvailable representations: "+media, true))
		return
	}
	keys, age, err := d.keys.PublishedKeys()
	if err != nil {
		apiresponse.Error(w, r, err)
		return
	}
	body, err := document(keys)
	if err != nil {
		apiresponse.Error(w, r, err)
		return
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", int(age.Seconds())))
	_, _ = w.Write(body) // the client may be gone
}

func (d *Discovery) configuration(keys []PublicKey) ([]byte, error) {
	var algs []string
	for _, k := range keys {
		algs = append(algs, string(k.Algorithm))
	}
	slices.Sort(algs)
	return json.Marshal(struct {
		Issuer        string   `json:"issuer"`
		KeysURI       string   `json:"jwks_uri"`
		ResponseTypes []string `json:"response_types_supported"`
		SubjectTypes  []string `json:"subject_types_supported"`
		Algorithms    []string `json:"id_token_signing_alg_values_supported"`
	}{d.issuer, d.keysURI, []string{"id_token"}, []string{"public"}, slices.Compact(algs)})
}

func (d *Discovery) keySet(keys []PublicKey) ([]byte, error) {
	var set jose.JSONWebKeySet
	for _, k := range keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.Key, KeyID: k.ID, Algorithm: string(k.Algorithm), Use: "sig"})
	}
	return json.Marshal(set)
}
