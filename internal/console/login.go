package console

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/fairshare"
)

// Issuer is an issuer of OpenID Connect at which people log in to the console. The console is a public client: it has no secret,
// and proves with PKCE (RFC 7636) that it has asked for the code.
type Issuer struct {
	URL      string // the issuer in the tokens
	ClientID string
	Client   *http.Client // for requests to the issuer
}

const (
	// issuerTime limits the exchange of a code, and the search for an issuer that can be used.
	issuerTime = 10 * time.Second
	// discoveryTime limits the request for one discovery document.
	discoveryTime = 5 * time.Second
	// foundTTL is how long a discovery document is used. After a failure no document is requested for failedTTL.
	foundTTL, failedTTL = 5 * time.Minute, 30 * time.Second
	// maxWaiting is the largest number of requests that wait for a discovery document.
	maxWaiting = 32

	// maxTokenRequest is the largest body. It has room for a code of maxCode bytes, even if JSON escapes its
	// characters.
	maxTokenRequest = 32 << 10
	// maxReading is the largest number of bodies that are read at a time, addressReading the largest for one
	// client address.
	maxReading, addressReading = 64, 8
	maxAnswer                  = 1 << 20 // bytes of a response of an issuer
	maxCode                    = 4 << 10
)

var (
	errNoIssuer = errors.New("the server has no issuer of tokens at which people can log in")
	errBusy     = errors.New("too many people log in at this moment")
	// errUnusable is the only login error that users see: the cause may have addresses that they must not see.
	errUnusable = errors.New("the issuer of tokens cannot be used")
)

// login logs people in at the first issuer whose discovery document can be read.
type login struct {
	Options
	asking    chan struct{} // held by the request that reads discovery documents
	waiting   atomic.Int64
	exchanges *places
	reading   *fairshare.Addresses // counts the request bodies that are being read
	patience  time.Duration        // issuerTime, except in tests

	mu    sync.Mutex // guards found
	found discovered
}

// discovered is the result of the last search for an issuer.
type discovered struct {
	among    []Issuer // those that were configured
	provider *provider
	err      error
	until    time.Time
}

// provider is an issuer with the addresses in its discovery document.
type provider struct {
	Issuer
	authorization, token string
	scopes               []string
}

// loginPage is the information with which the page sends a person to the issuer.
type loginPage struct {
	AuthorizationEndpoint string   `json:"authorizationEndpoint"`
	ClientID              string   `json:"clientID"`
	Scopes                []string `json:"scopes"`
}

func newLogin(o Options) *login {
	return &login{Options: o, asking: make(chan struct{}, 1), patience: issuerTime,
		exchanges: newPlaces(), reading: fairshare.NewAddresses(maxReading, addressReading)}
}

// page returns the information for the page, nil if nobody can log in now.
func (l *login) page(ctx context.Context) *loginPage {
	p, err := l.provider(ctx)
	if err != nil {
		return nil
	}
	return &loginPage{AuthorizationEndpoint: p.authorization, ClientID: p.ClientID, Scopes: p.scopes}
}

// provider returns the issuer to use. If the last search is too old, it requests discovery documents.
func (l *login) provider(ctx context.Context) (*provider, error) {
	issuers := l.Issuers()
	if len(issuers) == 0 {
		return nil, errNoIssuer
	}
	if d, ok := l.remembered(issuers); ok {
		return d.provider, d.err
	}
	defer l.waiting.Add(-1)
	if l.waiting.Add(1) > maxWaiting {
		return nil, errBusy
	}
	select {
	case l.asking <- struct{}{}:
		defer func() { <-l.asking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if d, ok := l.remembered(issuers); ok {
		return d.provider, d.err
	}
	// The search must not end if this client goes away, because others may wait for its result.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.patience)
	defer cancel()
	d := discovered{among: issuers}
	var errs []error
	for _, issuer := range issuers {
		var err error
		if d.provider, err = discover(ctx, issuer); err == nil {
			break
		}
		errs = append(errs, err)
	}
	d.until = l.Now().Add(foundTTL)
	if d.provider == nil {
		d.err, d.until = errUnusable, l.Now().Add(failedTTL)
		l.Log.Warn("nobody can log in to the console at an issuer of tokens", "error", errors.Join(errs...))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.found = d
	return d.provider, d.err
}

// remembered returns the result of the last search, unless that is too old or was for other issuers.
func (l *login) remembered(issuers []Issuer) (discovered, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.found, l.Now().Before(l.found.until) && slices.Equal(l.found.among, issuers)
}

// discover reads the discovery document of an issuer (OpenID Connect Discovery 1.0).
func discover(ctx context.Context, issuer Issuer) (*provider, error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryTime)
	defer cancel()
	document := strings.TrimSuffix(issuer.URL, "/") + "/.well-known/openid-configuration"
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, document, nil)
	if err != nil {
		return nil, err
	}
	code, body, err := send(issuer.Client, r)
	if err != nil {
		return nil, err
	}
	var d struct {
		Issuer        string   `json:"issuer"`
		Authorization string   `json:"authorization_endpoint"`
		Token         string   `json:"token_endpoint"`
		Scopes        []string `json:"scopes_supported"`
	}
	switch err := json.Unmarshal(body, &d); {
	case code != http.StatusOK:
		return nil, fmt.Errorf("%s answers %d", document, code)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", document, err)
	case d.Issuer != issuer.URL:
		return nil, fmt.Errorf("%s is the document of the issuer %q", document, d.Issuer)
	case !isHTTPS(d.Authorization) || !isHTTPS(d.Token):
		return nil, fmt.Errorf("%s does not have two https URLs authorization_endpoint and token_endpoint", document)
	}
	scopes := []string{"openid"}
	for _, scope := range []string{"profile", "email", "groups"} {
		if slices.Contains(d.Scopes, scope) || len(d.Scopes) == 0 && scope != "groups" {
			scopes = append(scopes, scope)
		}
	}
	return &provider{Issuer: issuer, authorization: d.Authorization, token: d.Token, scopes: scopes}, nil
}

func isHTTPS(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Host != ""
}

// send sends a request to an issuer and reads the whole answer. It fails if that is larger than maxAnswer.
func send(client *http.Client, r *http.Request) (code int, body []byte, err error) {
	r.Header.Set("Accept", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("the answer of %s is larger than %d bytes", r.URL, maxAnswer)
	}
	return answer.StatusCode, body, err
}

// tokenRequest is the body of a request that exchanges a code for a token.
type tokenRequest struct {
	Code         string `json:"code"`
	CodeVerifier string `json:"codeVerifier"`
	RedirectURI  string `json:"redirectURI"`
}

// tokenAnswer is the answer: the ID token, and when it ends (RFC 3339).
type tokenAnswer struct {
	Token   string `json:"token"`
	Expires string `json:"expires"`
}

// verifier matches a code_verifier (RFC 7636, section 4.1).
var verifier = regexp.MustCompile(`^[A-Za-z0-9._~-]{43,128}$`)

// ownOrigin returns the origin of a request if a page of this server has sent it, else "". Browsers send the
// header Origin with each POST.
func ownOrigin(r *http.Request) string {
	origin := "https://" + r.Host
	if r.TLS == nil && r.Header.Get("Origin") == "http://"+r.Host {
		origin = "http://" + r.Host
	}
	if site := r.Header.Get("Sec-Fetch-Site"); len(r.Header["Origin"]) != 1 || r.Header.Get("Origin") != origin ||
		site != "" && site != "same-origin" {
		return ""
	}
	return origin
}

// serveToken exchanges a code for an ID token. The page cannot do that, because it may connect only to this
// server.
func (h *Handler) serveToken(w http.ResponseWriter, r *http.Request) {
	origin := ownOrigin(r)
	if origin == "" {
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, "only the console itself may send this request")
		return
	}
	if h.login == nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "%v", errNoIssuer)
		return
	}
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); strings.TrimSpace(kind) != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "the body must be application/json")
		return
	}
	address := fairshare.ClientAddress(r.RemoteAddr)
	var asked tokenRequest
	if !h.login.read(w, r, address, &asked) {
		return
	}
	if err := asked.validate(origin); err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "%v", err)
		return
	}
	if err := h.login.exchanges.take(r.Context(), address); err != nil {
		h.login.refuse(w, r, err)
		return
	}
	defer h.login.exchanges.free(address)
	answer, err := h.login.exchange(r.Context(), &asked)
	if err != nil {
		h.login.refuse(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, answer)
}

// read reads the body of a request. If it fails, it writes the response. It first takes a place of reading, not
// one of exchanges: a body that does not arrive must not block exchanges of others.
func (l *login) read(w http.ResponseWriter, r *http.Request, address netip.Addr, asked *tokenRequest) bool {
	if !l.reading.Take(address) {
		l.refuse(w, r, errBusy)
		return false
	}
	defer l.reading.Free(address)
	ctx, cancel := context.WithTimeout(r.Context(), l.patience)
	defer cancel()
	// In the server, the filter deadline can end this read by CutAt. (With HTTP/1, Close would wait for the
	// running read.)
	if body, ok := r.Body.(interface {
		CutAt(ctx context.Context) (done func())
	}); ok {
		defer body.CutAt(ctx)()
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxTokenRequest))
	late := err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded)
	if err == nil {
		err = json.Unmarshal(body, asked)
	}
	switch {
	case err == nil:
		return true
	case late:
		refuse(w, http.StatusRequestTimeout, metav1.StatusReasonTimeout, "the body does not arrive in time")
	case errors.As(err, new(*http.MaxBytesError)):
		refuse(w, http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "the body cannot be read: %v", err)
	default:
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "the body cannot be read: %v", err)
	}
	return false
}

// validate returns an error if a request from a page of the given origin is invalid.
func (r *tokenRequest) validate(origin string) error {
	switch {
	case r.Code == "" || len(r.Code) > maxCode:
		return fmt.Errorf("code must have 1 to %d characters", maxCode)
	case !verifier.MatchString(r.CodeVerifier):
		return errors.New("codeVerifier must have 43 to 128 letters, digits, and characters of -._~")
	case r.RedirectURI != origin+Root:
		return fmt.Errorf("redirectURI must be %s%s", origin, Root)
	}
	return nil
}

// refusalError means that the issuer has refused a code.
type refusalError struct{ text string }

// Error implements error.
func (e *refusalError) Error() string { return "the issuer refuses the code: " + e.text }

// refuse answers with the error of a login.
func (l *login) refuse(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, errNoIssuer):
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "%v", err)
	case errors.Is(err, errBusy):
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "%v", err)
	case errors.As(err, new(*refusalError)):
		refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "%v", err)
	case errors.Is(err, context.DeadlineExceeded):
		refuse(w, http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "the issuer of tokens does not answer in time")
	default:
		if err != errUnusable && r.Context().Err() == nil { // not logged yet, and not caused by the client
			l.Log.Warn("the issuer of tokens does not exchange a code of the console", "error", err)
		}
		refuse(w, http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, "%v", errUnusable)
	}
}

// exchange sends a code to the token endpoint of the issuer.
func (l *login) exchange(ctx context.Context, asked *tokenRequest) (*tokenAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	p, err := l.provider(ctx)
	if err != nil {
		return nil, err
	}
	form := url.Values{
		"grant_type": {"authorization_code"}, "client_id": {p.ClientID}, "code": {asked.Code},
		"code_verifier": {asked.CodeVerifier}, "redirect_uri": {asked.RedirectURI},
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.token, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	direct := *p.Client
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // the code goes nowhere else
	code, body, err := send(&direct, r)
	if err != nil {
		return nil, err
	}
	return readToken(code, body)
}

// readToken reads the answer of a token endpoint (RFC 6749, sections 5.1 and 5.2).
func readToken(code int, body []byte) (*tokenAnswer, error) {
	var answer struct {
		IDToken     string `json:"id_token"`
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("it answers %d, and no JSON", code)
	}
	switch {
	case answer.Error != "":
		return nil, &refusalError{printable(strings.TrimSuffix(answer.Error+": "+answer.Description, ": "))}
	case code != http.StatusOK:
		return nil, fmt.Errorf("it answers %d", code)
	case answer.IDToken == "":
		return nil, errors.New("it returns no ID token")
	}
	end, err := expiry(answer.IDToken)
	if err != nil {
		return nil, fmt.Errorf("it returns an ID token that cannot be read: %w", err)
	}
	return &tokenAnswer{Token: answer.IDToken, Expires: end.UTC().Format(time.RFC3339)}, nil
}

// expiry returns the time when an ID token expires. It does not verify the token; the server does when the page
// uses it.
func expiry(token string) (time.Time, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, errors.New("it does not have three parts")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}, err
	}
	var claims struct {
		Expiry *float64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return time.Time{}, err
	}
	const latest = 253402300799 // the end of the year 9999, the last one of RFC 3339
	if claims.Expiry == nil || *claims.Expiry < 0 || *claims.Expiry > latest {
		return time.Time{}, errors.New("it has no time exp")
	}
	return time.Unix(int64(*claims.Expiry), 0), nil
}

// printable returns the first characters of a text of an issuer.
func printable(text string) string {
	const longest = 300
	var out strings.Builder
	for _, c := range text {
		if out.Len() >= longest {
			break
		}
		if unicode.IsPrint(c) {
			out.WriteRune(c)
		}
	}
	return out.String()
}
