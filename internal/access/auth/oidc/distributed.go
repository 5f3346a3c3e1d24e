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

// maxClaimBytes is the largest response of a claim's endpoint, in bytes.
const maxClaimBytes = 1 << 20

// distributedClaim fetches a claim that is not in the token itself but at an endpoint that the
// token names (OpenID Connect Core 1.0, section 5.6.2). Issuers do this for users in many
// groups.
type distributedClaim struct {
	claim  string
	issuer *Issuer
	ctx    context.Context // done when the issuer is no longer used

	mu        sync.Mutex // guards verifiers
	verifiers map[string]*claimIssuer
}

// claimIssuer is an issuer of distributed claims.
type claimIssuer struct {
	verifier *oidc.IDTokenVerifier // nil until the issuer has answered
	askedAt  time.Time
}

func newDistributedClaim(ctx context.Context, claim string, i *Issuer) *distributedClaim {
	return &distributedClaim{claim: claim, issuer: i, ctx: ctx, verifiers: map[string]*claimIssuer{}}
}

// endpoint is where a claim can be fetched.
type endpoint struct {
	URL         string `json:"endpoint"`
	AccessToken string `json:"access_token"`
}

// fetch adds the claim to c if the token names an endpoint for it.
func (d *distributedClaim) fetch(ctx context.Context, c claims) error {
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
	verifier, err := d.verifierFor(issuerOf(token))
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

// endpoint returns the endpoint of the claim, nil if the token names none.
func (d *distributedClaim) endpoint(c claims) (*endpoint, error) {
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

func (d *distributedClaim) get(ctx context.Context, from *endpoint) (string, error) {
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
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxClaimBytes))
	return string(body), err
}

// verifierFor returns the verifier for an issuer of distributed claims. It requests the keys of the issuer the first
// time, and again after retryDiscovery if that fails.
func (d *distributedClaim) verifierFor(issuer string) (*oidc.IDTokenVerifier, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.verifiers[issuer]
	if s == nil {
		s = &claimIssuer{}
		d.verifiers[issuer] = s
	}
	if s.verifier == nil && time.Since(s.askedAt) >= retryDiscovery {
		s.askedAt = time.Now()
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
