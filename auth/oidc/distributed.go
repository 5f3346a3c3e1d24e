package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

// longestClaim bounds what a claim's source may answer.
const longestClaim = 1 << 20

// distributed fetches a claim that a token leaves to another place (OpenID Connect
// Core 1.0, section 5.6.2): issuers do so with groups where there are many.
type distributed struct {
	claim  string
	issuer *Issuer
	ctx    context.Context // of the issuer's life

	mu        sync.Mutex // guards verifiers
	verifiers map[string]*source
}

// source is an issuer of distributed claims.
type source struct {
	verifier *oidc.IDTokenVerifier // nil: did not answer
	asked    time.Time
}

func newDistributed(ctx context.Context, claim string, i *Issuer) *distributed {
	return &distributed{claim: claim, issuer: i, ctx: ctx, verifiers: map[string]*source{}}
}

// endpoint is where a claim is.
type endpoint struct {
	URL         string `json:"endpoint"`
	AccessToken string `json:"access_token"`
}

// fetch adds the claim where the token says that it is elsewhere.
func (d *distributed) fetch(ctx context.Context, c claims) error {
	if _, ok := c[d.claim]; ok {
		return nil
	}
	from, err := d.endpoint(c)
	if err != nil || from == nil || from.URL == "" {
		return err
	}
	token, err := d.get(ctx, from)
	if err != nil {
		return fmt.Errorf("while getting distributed claim %q: %w", d.claim, err)
	}
	verifier, err := d.verifierOf(issuerOf(token))
	if err != nil {
		return err
	}
	theirs, err := d.issuer.verify(ctx, verifier, token)
	if err != nil {
		return fmt.Errorf("verify distributed claim token: %w", err)
	}
	value, ok := theirs[d.claim]
	if !ok {
		return fmt.Errorf("jwt returned by distributed claim endpoint %q did not contain claim: %v", from.URL, d.claim)
	}
	c[d.claim] = value
	return nil
}

// endpoint returns where the token says that the claim is, nil for nowhere.
func (d *distributed) endpoint(c claims) (*endpoint, error) {
	rawNames, ok := c["_claim_names"]
	if !ok {
		return nil, nil
	}
	var names map[string]string
	if err := json.Unmarshal(rawNames, &names); err != nil {
		return nil, fmt.Errorf("oidc: error parsing distributed claim names: %w", err)
	}
	rawSources, ok := c["_claim_sources"]
	if !ok {
		return nil, errors.New("oidc: no claim sources")
	}
	var sources map[string]endpoint
	if err := json.Unmarshal(rawSources, &sources); err != nil {
		return nil, fmt.Errorf("oidc: could not parse claim sources: %w", err)
	}
	name, ok := names[d.claim]
	if !ok {
		return nil, nil
	}
	from, ok := sources[name]
	if !ok {
		return nil, fmt.Errorf("id token _claim_names contained a source %s missing in _claims_sources", name)
	}
	return &from, nil
}

func (d *distributed) get(ctx context.Context, from *endpoint) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from.URL, nil)
	if err != nil {
		return "", err
	}
	if from.AccessToken != "" {
		r.Header.Set("Authorization", "Bearer "+from.AccessToken)
	}
	answer, err := d.issuer.client.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close() //nolint:errcheck // read only
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("error while getting distributed claim JWT: %v", answer.Status)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, longestClaim))
	return string(body), err
}

// verifierOf asks the issuer of a claim for its keys once, and again after a while
// if it does not answer.
func (d *distributed) verifierOf(issuer string) (*oidc.IDTokenVerifier, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.verifiers[issuer]
	if s == nil {
		s = &source{}
		d.verifiers[issuer] = s
	}
	if s.verifier == nil && time.Since(s.asked) >= retryDiscovery {
		s.asked = time.Now()
		verifier, err := d.issuer.newVerifier(d.ctx, issuer)
		if err != nil {
			return nil, fmt.Errorf("verifying untrusted issuer %v failed: %w", issuer, err)
		}
		s.verifier = verifier
	}
	if s.verifier == nil {
		return nil, fmt.Errorf("verifier not initialized for issuer: %q", issuer)
	}
	return s.verifier, nil
}
